package ok

import "testing"

func TestPass(t *testing.T) {}

func TestFail(t *testing.T) { t.Fatal("control \x1b[31mred\x1b[0m \x00 ]]> & <b>") }

func TestSkip(t *testing.T) { t.Skip("not today") }

func TestTable(t *testing.T) {
	for _, name := range []string{"a b", "a b", "x/y", "ü"} {
		t.Run(name, func(t *testing.T) {
			if name == "x/y" {
				t.Error("no")
			}
		})
	}
}

func ExamplePass() {
	// Output:
}
