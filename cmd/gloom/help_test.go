package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
)

// TestHelpFitsTerminal checks that the help of every command fits a terminal of 80 columns and has
// an example of that command, and that the help of gloom puts every command into a group.
func TestHelpFitsTerminal(t *testing.T) {
	var walk func(c *cobra.Command)
	n := 0
	walk = func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		if len(path) > 0 && (path[0] == "completion" || path[0] == "help") {
			return // a command of cobra
		}
		n++
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		if status := cli.Execute(root, append(path, "--help"), &out); status != 0 || out.Len() == 0 {
			t.Errorf("%v --help exits with %d, and says %d bytes", path, status, out.Len())
		}
		if strings.Contains(out.String(), "Additional Commands:") {
			t.Errorf("%v --help: commands without a group:\n%s", path, out.String())
		}
		for l := range strings.Lines(out.String()) {
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
