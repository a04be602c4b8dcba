package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"gloom/cmd/internal/cli"
)

// confirm makes the user confirm on the terminal what cannot be undone.
func (t *tool) confirm(ctx context.Context, question string) error {
	if !cli.IsTerminal(os.Stdin) {
		return cli.Usagef("%s standard input is not a terminal", question).SetHint("--yes does it without asking")
	}
	fmt.Fprintf(t.stderr, "gloom: %s [y/N] ", question)
	line, err := await(ctx, func() (string, error) {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		return line, nil
	})
	if err != nil {
		return err
	}
	if s := strings.ToLower(strings.TrimSpace(line)); s != "y" && s != "yes" {
		return cli.Failf(cli.ExitFailed, "nothing was done")
	}
	return nil
}

// await returns what read returns or, if the context ends first, its cause. Reads of pipes and
// terminals cannot be interrupted, and may never end.
func await[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	case r := <-done:
		return r.value, r.err
	}
}
