package gloom

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxReason is how many bytes of an error's text are sent as a reason.
const maxReason = 4096

// failure is a handler's error with what is to become of the job.
type failure struct {
	error
	final bool
	delay time.Duration // negative: the job's own backoff
}

func (f *failure) Unwrap() error { return f.error }

// Fatal marks a handler's error as final: the job fails at once, whatever
// retries it has left. It is nil for nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, final: true, delay: -1}
}

// RetryAfter asks that a failed job waits for d before its next run, 0 … a year,
// in place of its backoff. It is nil for a nil err.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, delay: max(d, 0)}
}

// verdict reads what a handler's error asks for: the outermost mark counts.
func verdict(err error) (reason string, retry bool, delayMS int64) {
	reason, retry, delayMS = clip(err.Error()), true, -1
	var f *failure
	if errors.As(err, &f) {
		retry = !f.final
		if f.delay >= 0 {
			delayMS = millis(f.delay)
		}
	}
	return reason, retry, delayMS
}

func clip(s string) string {
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}

func panicText(v any) string {
	if err, ok := v.(error); ok {
		return err.Error()
	}
	return fmt.Sprint(v)
}
