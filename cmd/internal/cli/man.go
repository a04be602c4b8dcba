package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// manual writes manual pages, for packages; people read --help.
func manual(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write manual pages into a directory", Hidden: true, Args: cobra.ExactArgs(1),
		// Nothing that a program checks before its commands is needed here.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true
			each(root, func(c *cobra.Command) {
				c.Hidden = c.Hidden || c.Name() == "completion" // cobra's own
				c.Long = setApart(c.Long)
				c.LocalFlags().VisitAll(sayDefault)
			})
			return doc.GenManTree(root, &doc.GenManHeader{
				Title: strings.ToUpper(root.Name()), Section: "1", Source: "gloom " + root.Version, Manual: "Gloom",
			}, args[0])
		},
		DisableFlagsInUseLine: true,
	}
}

// sayDefault has a page show what kind of value a flag takes, and its default
// behind the text: cobra shows the default in place of the value.
func sayDefault(f *pflag.Flag) {
	kind, text := pflag.UnquoteUsage(f)
	if kind == "" || f.NoOptDefVal != "" {
		return
	}
	if !slices.Contains([]string{"", "0", "0s", "[]", kind}, f.DefValue) {
		text += " (default " + f.DefValue + ")"
	}
	f.Usage, f.DefValue = text, kind
}

// setApart puts blank lines around indented ones, which pages show as they are
// only then.
func setApart(text string) string {
	var out []string
	for i, line := range strings.Split(text, "\n") {
		if i > 0 && line != "" && out[len(out)-1] != "" && strings.HasPrefix(line, "    ") != strings.HasPrefix(out[len(out)-1], "    ") {
			out = append(out, "")
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
