package store

import (
	"testing"

	"gloom/cmd/internal/process"
)

func TestProcessIsFormattedAndParsed(t *testing.T) {
	self := process.Self()
	if parsed := parseProcess(formatProcess(self)); parsed != self {
		t.Fatalf("%+v, want %+v", parsed, self)
	}
	for _, text := range []string{"", "a/b", "a/b/c", "a/b/x/y"} {
		if p := parseProcess(text); p != (Process{}) || p.IsGone() {
			t.Errorf("%q: %+v", text, p)
		}
	}
}
