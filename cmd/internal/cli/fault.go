package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// These exit statuses mean the same in all programs.
const (
	ExitFailed      = 1
	ExitUsage       = 2 // the command line or the configuration is invalid
	ExitAborted     = 3 // after a drain that a second signal cut short
	ExitInterrupted = 130
	ExitTerminated  = 143
)

// Fault is an error with an exit status and, optionally, a hint at a remedy.
type Fault struct {
	Code int
	Err  error // nil if everything has been reported
	Hint string
}

// Failf returns a Fault with a status, and a text that is formatted as by fmt.Errorf.
func Failf(code int, format string, args ...any) *Fault {
	return &Fault{Code: code, Err: fmt.Errorf(format, args...)}
}

// Usagef is like Failf, with the status for an invalid command line.
func Usagef(format string, args ...any) *Fault { return Failf(ExitUsage, format, args...) }

// SilentExit returns a Fault that ends the program with a status and without a message.
func SilentExit(code int) *Fault { return &Fault{Code: code} }

// SetHint sets the hint.
func (f *Fault) SetHint(format string, args ...any) *Fault {
	f.Hint = fmt.Sprintf(format, args...)
	return f
}

func (f *Fault) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("exit status %d", f.Code)
	}
	return f.Err.Error()
}

func (f *Fault) Unwrap() error { return f.Err }

// Report prints an error and returns the exit status: that of the Fault in it, else
// ExitFailed; 0 without an error.
func Report(stderr io.Writer, program string, err error) int {
	if err == nil {
		return 0
	}
	var f *Fault
	if !errors.As(err, &f) {
		f = &Fault{Code: ExitFailed, Err: err}
	}
	if f.Err == nil {
		return f.Code
	}
	fmt.Fprintf(stderr, "%s: %s\n", program, CleanText(err.Error()))
	if f.Hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", CleanText(f.Hint))
	}
	return f.Code
}

// StopWindow is the time within which several signals to stop count as one: timeout of coreutils
// signals its command and then the command's process group.
const StopWindow = 5 * time.Millisecond

// UntilSignal returns a context that ends at Ctrl-C or SIGTERM; its cause is then a Fault. The next
// signal ends the process. stop releases the context.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		select {
		case sig := <-signals:
			time.Sleep(StopWindow)
			signal.Stop(signals)
			if sig == syscall.SIGTERM {
				cancel(Failf(ExitTerminated, "terminated"))
			} else {
				cancel(Failf(ExitInterrupted, "interrupted"))
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}
