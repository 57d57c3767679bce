package experiments

import "testing"

// Does not build: what it calls has moved.
func TestParse(t *testing.T) {
	parse("1-3")
}
