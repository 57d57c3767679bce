package ranges;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RangesTest {
    @Test
    void number() {
        assertEquals(List.of(7), Ranges.expand("7"));
    }

    @Test
    void range() {
        assertEquals(List.of(1, 2, 3), Ranges.expand("1-3"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"1-2,7", "7,7"})
    void endsWithSeven(String text) {
        List<Integer> numbers = Ranges.expand(text);
        assertEquals(7, numbers.get(numbers.size() - 1));
    }

    @Test
    @Disabled("not decided on")
    void openRange() {
        assertEquals(List.of(3), Ranges.expand("3-"));
    }

    @Nested
    class KnownBugs {
        @Test
        void duplicates() {
            assertEquals(List.of(1), Ranges.expand("1,1"));
        }

        @Test
        void negativeNumber() { // throws
            assertEquals(List.of(-1), Ranges.expand("-1"));
        }

        @Test
        void longList() throws Exception { // its file was never committed
            assertEquals(1000, Ranges.expand(Files.readString(Path.of("lists/long.txt"))).size());
        }
    }
}
