package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	gloom "gloom/clients/go"
)

// Jobs is a door's submitter. A connection keeps the rights that its token had when it
// came: once a job was refused for want of them, and a new connection may submit such a
// job, that one takes its place. The old one stays until what it submitted has ended.
type Jobs struct {
	link *Link
	opts []gloom.Option
	life context.Context
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex // guards the following
	now     *gloom.Submitter
	side    string // its name in the link's news
	opened  int
	refused string // type that was refused last
	waiting bool   // for the rights
}

// barredFor is how long a refusal counts as one that will come again.
const barredFor = 6 * time.Second

// NewJobs opens a submitter with further options.
func (l *Link) NewJobs(opts ...gloom.Option) (*Jobs, error) {
	j := &Jobs{link: l, opts: opts}
	if err := j.open(); err != nil {
		return nil, err
	}
	j.life, j.end = context.WithCancel(context.Background())
	return j, nil
}

// open replaces the connection by a new one.
func (j *Jobs) open() error {
	j.opened++
	side := "submitter"
	if j.opened > 1 {
		side = fmt.Sprintf("submitter %d", j.opened)
	}
	s, err := gloom.NewSubmitter(append(j.link.submitter(side), j.opts...)...)
	if err == nil {
		j.now, j.side = s, side
	}
	return err
}

// Submitter is the one for the next job.
func (j *Jobs) Submitter() *gloom.Submitter {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.now
}

// Note is told how a job of this type ended, nil or not. Where jobs like it wait until
// the broker takes them, the link is not well.
func (j *Jobs) Note(typ string, err error, waits bool) {
	if !forbids(err) {
		return
	}
	if waits {
		j.link.setBarred(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refused = typ
	if j.waiting || j.life.Err() != nil {
		return
	}
	j.waiting = true
	j.done.Go(func() {
		err := j.link.AwaitRights(j.life, func() string {
			j.mu.Lock()
			defer j.mu.Unlock()
			return j.refused
		})
		j.mu.Lock()
		defer j.mu.Unlock()
		j.waiting = false
		if err == nil {
			j.renew()
		}
	})
}

func (j *Jobs) renew() {
	old, side := j.now, j.side
	if j.open() != nil {
		return // the next refusal tries again
	}
	j.done.Go(func() {
		_ = old.Drain(j.life)
		j.link.Forget(side)
	})
}

// Close closes all connections.
func (j *Jobs) Close() {
	j.end()
	_ = j.Submitter().Close()
	j.done.Wait()
}

// forbids tells whether an error is a refusal for want of rights.
func forbids(err error) bool {
	var refused *gloom.RefusedError
	return errors.As(err, &refused) && (refused.Code == gloom.ErrForbidden || refused.Code == gloom.ErrUnauthorized)
}

// AwaitRights returns nil once a new connection may submit jobs of a type, which is asked
// for anew each time: after a second at first, then up to a minute apart.
func (l *Link) AwaitRights(ctx context.Context, typ func() string) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = time.Second, time.Minute
	for {
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if l.tryRights(ctx, typ()) == nil {
			return nil
		}
	}
}

// tryRights submits a job of a type that goes with its connection before it is due.
func (l *Link) tryRights(ctx context.Context, typ string) error {
	const side = "rights"
	ctx, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	s, err := gloom.NewSubmitter(l.submitter(side)...)
	if err != nil {
		return err
	}
	defer l.Forget(side)
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
		if _, err := job.Result(ctx); forbids(err) {
			return err
		}
	default:
	}
	return nil
}
