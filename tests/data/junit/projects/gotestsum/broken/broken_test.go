package broken

import "testing"

func TestNever(t *testing.T) { missing() }
