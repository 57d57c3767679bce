package ranges

import (
	"os"
	"reflect"
	"testing"
)

func check(t *testing.T, text string, wanted ...int) {
	t.Helper()
	numbers, err := Expand(text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(numbers, wanted) {
		t.Errorf("Expand(%q) = %v, not %v", text, numbers, wanted)
	}
}

func TestExpand(t *testing.T) {
	t.Run("number", func(t *testing.T) { check(t, "7", 7) })
	t.Run("range", func(t *testing.T) { check(t, "1-3", 1, 2, 3) })
	t.Run("a list", func(t *testing.T) { check(t, "1-2,7", 1, 2, 7) })
}

func TestOpenRange(t *testing.T) {
	t.Skip("not decided on")
}

// A known bug.
func TestNegativeNumber(t *testing.T) {
	check(t, "-1", -1)
}

// Its file was never committed.
func TestLongList(t *testing.T) {
	if _, err := os.ReadFile("testdata/long.txt"); err != nil {
		t.Fatal(err)
	}
}
