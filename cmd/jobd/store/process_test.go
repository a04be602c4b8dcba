package store

import (
	"testing"

	"gloom/cmd/internal/process"
)

func TestProcessIsFormattedAndParsed(t *testing.T) {
	here := process.Self()
	if back := parseProcess(formatProcess(here)); back != here {
		t.Fatalf("%+v, want %+v", back, here)
	}
	for _, text := range []string{"", "a/b", "a/b/c", "a/b/x/y"} {
		if p := parseProcess(text); p != (Process{}) || p.IsGone() {
			t.Errorf("%q: %+v", text, p)
		}
	}
}
