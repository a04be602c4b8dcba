package gloom

import (
	"errors"
	"strings"
	"time"
)

// maxReason is how many bytes of an error's text are sent as a reason.
const maxReason = 4096

// failure is a handler's error, and says how the broker is to treat the job.
type failure struct {
	error
	final   bool
	release bool
	delay   time.Duration // -1 if it is not set
}

func (f *failure) Unwrap() error { return f.error }

// Fatal marks a handler's error as final: the job fails at once, even if retries are left. It
// returns nil for nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, final: true, delay: -1}
}

// RetryAfter makes a failed job wait for d before its next run, 0 … a year, in place of its
// backoff. It returns nil for a nil err.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, delay: max(d, 0)}
}

// Release returns an error with which a handler gives its job back. That uses no retry. The job
// waits for d, at most a year; with 0 this worker may get it again at once.
func Release(d time.Duration) error {
	if d <= 0 {
		d = -1
	}
	return &failure{error: errors.New("released by the worker"), release: true, delay: d}
}

func clip(s string) string {
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}
