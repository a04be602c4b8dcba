package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// promptPassword reads a secret: without echo if the input is a terminal, otherwise as one line.
func (a *app) promptPassword(prompt string) (string, error) {
	fmt.Fprint(a.stderr, prompt)
	defer fmt.Fprintln(a.stderr)
	f, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		line, err := bufio.NewReader(a.stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("cannot read the password: %w", err)
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	// An interrupt must not leave the terminal without echo.
	state, err := term.GetState(int(f.Fd()))
	if err != nil {
		return "", fmt.Errorf("cannot read the password: %w", err)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(interrupted)
	go func() {
		if _, ok := <-interrupted; ok {
			_ = term.Restore(int(f.Fd()), state)
			fmt.Fprintln(a.stderr)
			os.Exit(1)
		}
	}()
	secret, err := term.ReadPassword(int(f.Fd()))
	if err != nil {
		return "", fmt.Errorf("cannot read the password: %w", err)
	}
	return string(secret), nil
}
