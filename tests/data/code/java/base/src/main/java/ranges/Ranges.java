package ranges;

import java.util.ArrayList;
import java.util.List;

/** Ranges of numbers, as people write them. */
public final class Ranges {
    private Ranges() {}

    /** The numbers of "1-3,7": 1, 2, 3, 7. */
    public static List<Integer> expand(String text) {
        List<Integer> numbers = new ArrayList<>();
        for (String part : text.split(",")) {
            String[] ends = part.split("-", 2);
            int first = Integer.parseInt(ends[0]);
            int last = ends.length == 1 ? first : Integer.parseInt(ends[1]);
            for (int number = first; number <= last; number++) {
                numbers.add(number);
            }
        }
        return numbers;
    }
}
