package panics

import "testing"

func TestFirst(t *testing.T) {}

func TestPanics(t *testing.T) { panic("no") }

func TestLater(t *testing.T) {}
