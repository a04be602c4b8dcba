package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

// completeTime is how long a shell waits for names from the broker.
const completeTime = 500 * time.Millisecond

// completeContext offers the contexts of the file.
func completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	path, err := contextsPath()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	file, err := cli.ReadFile(path)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return file.Keys(), cobra.ShellCompDirectiveNoFileComp
}

// completeType offers the broker's types as the first argument.
func (t *tool) completeType(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if t.conn.settle(cmd.Flags()) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	o := t.conn.operator()
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	defer cancel()
	types, _, err := listOf[api.Type](ctx, o, "/v1/types", pageSize)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, k := range types {
		if strings.HasPrefix(k.Type, prefix) && cli.Clean(k.Type) == k.Type {
			names = append(names, fmt.Sprintf("%s\t%d queued, %d running", k.Type, k.Queued, k.Running))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
