package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// newManual returns a command that writes manual pages, for packages.
func newManual(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write manual pages into a directory", Hidden: true, Args: cobra.ExactArgs(1),
		// The checks that a program makes before its commands are not needed here.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true
			walkCommands(root, func(c *cobra.Command) {
				c.Hidden = c.Hidden || c.Name() == "completion"      // cobra's own
				if topic := c.Annotations[flagsTopic]; topic != "" { // the page lists the flags
					c.Long += "\n\n" + topic
				}
				c.Long = separateBlocks(c.Long)
				c.LocalFlags().VisitAll(showDefault)
			})
			if err := doc.GenManTree(root, &doc.GenManHeader{
				Title: strings.ToUpper(root.Name()), Section: "1", Source: "gloom " + root.Version, Manual: "Gloom",
			}, args[0]); err != nil {
				return err
			}
			pages, err := filepath.Glob(filepath.Join(args[0], root.Name()+"*.1"))
			for _, page := range pages {
				err = errors.Join(err, showPlain(page))
			}
			return err
		},
		DisableFlagsInUseLine: true,
	}
}

// showPlain removes from a page the marks that cobra adds to flags: [=false] of flags without a
// value, quotes around the kind of value.
func showPlain(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	replacer := strings.NewReplacer(`\fP[=false]`, `\fP`, `\fP="string"`, `\fP=string`).Replace(string(text))
	return os.WriteFile(page, []byte(replacer), 0o644)
}

// showDefault makes a page show the kind of value of a flag, and its default after the text:
// cobra shows the default instead of the kind.
func showDefault(f *pflag.Flag) {
	kind, text := pflag.UnquoteUsage(f)
	if kind == "" || f.NoOptDefVal != "" {
		return
	}
	if !slices.Contains([]string{"", "0", "0s", "[]", kind}, f.DefValue) {
		text += " (default " + f.DefValue + ")"
	}
	f.Usage, f.DefValue = text, kind
}

// separateBlocks puts blank lines around indented lines. Without these, manual pages would not show
// the lines indented.
func separateBlocks(text string) string {
	var out []string
	for i, line := range strings.Split(text, "\n") {
		if i > 0 && line != "" && out[len(out)-1] != "" && strings.HasPrefix(line, "    ") != strings.HasPrefix(out[len(out)-1], "    ") {
			out = append(out, "")
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
