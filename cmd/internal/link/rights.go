package link

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	gloom "gloom/clients/go"
)

// A connection keeps the rights that its token had when it connected. To find out whether a
// new connection has more rights, a delayed job of a refused type is submitted on a new
// connection, which is closed before the job is due.

const (
	// A refusal counts as current for deniedPeriod.
	deniedPeriod = 6 * time.Second
	// tryTimeout bounds one try of a new connection.
	tryTimeout = 10 * time.Second
)

// isDenied reports whether an error is a refusal for lack of rights.
func isDenied(err error) bool {
	var refused *gloom.RefusedError
	return errors.As(err, &refused) && (refused.Code == gloom.ErrForbidden || refused.Code == gloom.ErrUnauthorized)
}

// RetryRights is called with a type whose jobs the token does not cover. It tries new connections,
// and calls onGranted when a connection may submit jobs of the last refused type. It calls
// onGranted once for all types that were refused in the meantime, and never after ctx has ended.
// The pause between two tries grows from a second to a minute.
func (l *Link) RetryRights(ctx context.Context, typ string, onGranted func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isRetrying := l.deniedType != ""
	if l.deniedType = typ; isRetrying {
		return
	}
	l.rightsTries.Go(func() {
		pause := backoff.NewExponentialBackOff()
		pause.InitialInterval, pause.MaxInterval = time.Second, time.Minute
		for refusedType := typ; ; {
			select {
			case <-time.After(pause.NextBackOff()):
			case <-ctx.Done():
				return
			}
			err := l.tryRights(ctx, refusedType)
			l.mu.Lock()
			if refusedType = l.deniedType; err == nil {
				l.deniedType = ""
			}
			l.mu.Unlock()
			if err == nil {
				onGranted()
				return
			}
		}
	})
}

// tryRights submits a delayed job on a new connection, and closes the connection before the job
// is due.
func (l *Link) tryRights(ctx context.Context, typ string) error {
	const side = "rights"
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	s, err := gloom.NewSubmitter(l.submitterOptions(side)...)
	if err != nil {
		return err
	}
	defer l.ForgetSide(side)
	defer s.Close()
	job, err := s.Submit(ctx, gloom.Job{Type: typ, Body: []byte("0"), Delay: time.Hour, Retries: gloom.NoRetries})
	if err != nil {
		return err
	}
	if err := s.Ping(ctx); err != nil {
		return err
	}
	select {
	case <-job.Done():
		if _, err := job.Result(ctx); isDenied(err) {
			return err
		}
	default:
	}
	return nil
}
