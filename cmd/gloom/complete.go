package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

// completionTimeout limits the time that a shell waits for names from the broker.
const completionTimeout = 500 * time.Millisecond

// completeContext offers the contexts of the file.
func completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	if path, err := contextsPath(); err == nil {
		if file, err := cli.ReadFile(path); err == nil {
			return file.Keys(), cobra.ShellCompDirectiveNoFileComp
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeType offers the broker's types as the first argument.
func (t *tool) completeType(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(t, cmd, "/v1/types", prefix, func(k *api.Type) (name, about string) {
		return k.Type, fmt.Sprintf("%d queued, %d running", k.Queued, k.Running)
	})
}

// completeID offers the ids of jobs that have not ended.
func (t *tool) completeID(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "cancel" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(t, cmd, "/v1/jobs?id="+url.QueryEscape(prefix), prefix, func(j *api.Job) (name, about string) {
		return j.ID, cli.Clean(j.Type) + ", " + j.State
	})
}

// complete offers the names that begin with prefix from a listing of the broker.
func complete[T any](t *tool, cmd *cobra.Command, path, prefix string, describe func(*T) (name, about string)) ([]string, cobra.ShellCompDirective) {
	if t.conn.resolve(cmd.Flags()) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	items, _, err := listItems[T](ctx, t.conn.operator(), path, pageSize)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	var names []string
	for i := range items {
		name, about := describe(&items[i])
		if strings.HasPrefix(name, prefix) && cli.Clean(name) == name {
			names = append(names, name+"\t"+about)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
