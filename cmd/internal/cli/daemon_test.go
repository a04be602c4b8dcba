package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// refusedOption is an error about an option, from a package that does not know flags.
type refusedOption string

func (r refusedOption) Error() string  { return "--" + string(r) + ": is refused" }
func (r refusedOption) Option() string { return string(r) }

// TestDaemonThatCannotStart checks the exit status and the hint when a daemon cannot start.
func TestDaemonThatCannotStart(t *testing.T) {
	file := fileOf(t, "\nnumber = 5\n")
	for _, c := range []struct {
		name, args   string
		settle, run  error
		code         int
		want, advice string
	}{
		{"well", "", nil, nil, 0, "", ""},
		{"an option, settled", "", refusedOption("number"), nil, 2, "--number: is refused\n",
			"dmn --help lists the options with their defaults"},
		{"well, whatever its files say by now", "--healthcheck", refusedOption("number"), nil, 0, "", ""},
		{"an option, run", "", nil, fmt.Errorf("start: %w", refusedOption("number")), 2, "start: --number: is refused\n", "dmn --help lists the options with their defaults"},
		{"of a file", "--config " + file, refusedOption("number"), nil, 2, "--number: is refused (from " + file + ":2)\n",
			"DMN_NUMBER is also --number; --help lists the options with their defaults"},
		{"on the command line, and in a file", "--number 6 --config " + file, refusedOption("number"), nil, 2, "--number: is refused\n", "dmn --help lists the options with their defaults"},
		{"a fault", "", nil, Failf(7, "all is lost"), 7, "all is lost\n", ""},
		{"taken", "", nil, fmt.Errorf("listen: %w", syscall.EADDRINUSE), 1, "listen: address already in use\n", "another program has this address, perhaps another dmn: "},
		{"of others", "", nil, syscall.EADDRNOTAVAIL, 1, "cannot assign requested address\n", "this host does not have this address: "},
		{"not ours", "", nil, syscall.EACCES, 1, "permission denied\n", "not permitted: ports below 1024"},
		{"anything else", "", nil, errors.New("it broke"), 1, "it broke\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := &cobra.Command{Use: "dmn"}
			cmd.Flags().Int("number", 0, "what is refused")
			d := Daemon{
				EnvPrefix: "DMN_", Validate: func() error { return c.settle }, Run: func() error { return c.run },
				CheckHealth: func(context.Context) error { return nil },
			}
			var errs bytes.Buffer
			code := Execute(d.Command(cmd), strings.Fields(c.args), &errs)
			text, hint, _ := strings.Cut(errs.String(), "hint: ")
			if code != c.code || strings.TrimPrefix(text, "dmn: ") != c.want || !strings.HasPrefix(hint, c.advice) || (hint == "") != (c.advice == "") {
				t.Errorf("exit status %d, want %d; stderr %s", code, c.code, errs.String())
			}
		})
	}
}
