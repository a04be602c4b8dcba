package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// completeTime is how long a shell waits for names from the broker.
const completeTime = 500 * time.Millisecond

// completeType offers the broker's types as the first argument.
func (t *tool) completeType(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if settle(cmd.Flags()) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a, err := t.link.api()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	defer cancel()
	types, _, err := listOf[typeInfo](ctx, a, "/v1/types", pageSize)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, k := range types {
		if strings.HasPrefix(k.Type, begin) && clean(k.Type) == k.Type {
			names = append(names, fmt.Sprintf("%s\t%d queued, %d running", k.Type, k.Queued, k.Running))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// newMan writes manual pages, for packages; people read --help.
func newMan(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write manual pages into a directory",
		Hidden: true,
		Args:   exactly("a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return usage("%w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Title: "GLOOM", Section: "1", Source: "gloom " + version(), Manual: "Gloom"}, args[0])
		},
		DisableFlagsInUseLine: true,
	}
}
