package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"gloom/cmd/internal/cli"
)

// ask makes the user confirm on the terminal what cannot be undone.
func (t *tool) ask(ctx context.Context, question string) error {
	if !cli.Terminal(os.Stdin) {
		return cli.Usagef("%s standard input is not a terminal", question).Advise("--yes does it without asking")
	}
	fmt.Fprintf(t.err, "gloom: %s [y/N] ", question)
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		said <- line
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case line := <-said:
		if s := strings.ToLower(strings.TrimSpace(line)); s != "y" && s != "yes" {
			return cli.Failf(cli.ExitFailed, "nothing was done")
		}
	}
	return nil
}
