package cli

import (
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// TestLinesShareOneGoroutine: a LossyWriter starts no goroutine for a line.
func TestLinesShareOneGoroutine(t *testing.T) {
	seen := make(map[string]bool)
	o := NewLossyWriter(writer(func([]byte) {
		seen[strings.Fields(string(debug.Stack()))[1]] = true // goroutine N
	}), time.Minute)
	for range 100 {
		if _, err := o.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 1 {
		t.Errorf("%d goroutines wrote 100 lines", len(seen))
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
