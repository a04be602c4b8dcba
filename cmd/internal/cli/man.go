package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
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
			for _, c := range root.Commands() {
				if c.Name() == "completion" {
					c.Hidden = true // cobra's own
				}
			}
			return doc.GenManTree(root, &doc.GenManHeader{
				Title: strings.ToUpper(root.Name()), Section: "1", Source: "gloom " + root.Version, Manual: "Gloom",
			}, args[0])
		},
		DisableFlagsInUseLine: true,
	}
}
