package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelp holds the help of every command to what a terminal of 80 columns
// shows, with an example that is this command's.
func TestHelp(t *testing.T) {
	var walk func(c *cobra.Command)
	n := 0
	walk = func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		if len(path) > 0 && (path[0] == "completion" || path[0] == "help") {
			return // cobra's own
		}
		n++
		out, err := exec.Command(filepath.Join(bin, "gloom"), append(path, "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("%v --help: %v", path, err)
		}
		for l := range strings.Lines(string(out)) {
			if utf8.RuneCountInString(strings.TrimRight(l, "\n")) > 80 {
				t.Errorf("%v --help: wider than 80: %s", path, l)
			}
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%v: short help %q", path, c.Short)
		}
		if !c.Hidden && !strings.Contains(c.Example, strings.Join(append([]string{"gloom"}, path...), " ")) {
			t.Errorf("%v: no example of its own: %q", path, c.Example)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	if n < 17 {
		t.Errorf("only %d commands found", n)
	}
}
