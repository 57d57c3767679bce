// Package ranges reads ranges of numbers, as people write them.
package ranges

import (
	"fmt"
	"strconv"
	"strings"
)

// Expand gives the numbers of "1-3,7": 1, 2, 3, 7.
func Expand(text string) ([]int, error) {
	var numbers []int
	for _, part := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			return nil, fmt.Errorf("no range %q: %w", part, err)
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(to); err != nil {
				return nil, fmt.Errorf("no range %q: %w", part, err)
			}
		}
		for number := first; number <= last; number++ {
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}
