package link

import (
	"context"
	"fmt"
	"sync"

	gloom "gloom/clients/go"
)

// Jobs is a door's submitter. A connection keeps the rights that its token had when it connected.
// If a job was refused for lack of rights, and a new connection may submit such a job, the new
// connection replaces the old one. The old one stays until the jobs that it submitted have ended.
type Jobs struct {
	link *Link
	opts []gloom.Option
	life context.Context
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex // guards the following
	current *gloom.Submitter
	side    string // the name of the submitter's connection in Config.News
	opened  int
}

// NewJobs opens a submitter with further options.
func (l *Link) NewJobs(opts ...gloom.Option) (*Jobs, error) {
	j := &Jobs{link: l, opts: opts}
	if err := j.open(); err != nil {
		return nil, err
	}
	j.life, j.end = context.WithCancel(context.Background())
	return j, nil
}

// open replaces the connection.
func (j *Jobs) open() error {
	j.opened++
	side := Submits
	if j.opened > 1 {
		side = fmt.Sprintf("submitter %d", j.opened)
	}
	s, err := gloom.NewSubmitter(append(j.link.submitter(side), j.opts...)...)
	if err == nil {
		j.current, j.side = s, side
	}
	return err
}

// Submitter returns the submitter for the next job.
func (j *Jobs) Submitter() *gloom.Submitter {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.current
}

// Note records how a job of this type ended; err may be nil. While jobs like it are refused
// for lack of rights, the link is unhealthy.
func (j *Jobs) Note(typ string, err error, waits bool) {
	if !forbids(err) {
		return
	}
	if waits {
		j.link.setBarred(err)
	}
	j.link.WantRights(j.life, typ, j.renew)
}

func (j *Jobs) renew() {
	j.mu.Lock()
	defer j.mu.Unlock()
	old, side := j.current, j.side
	if j.life.Err() != nil || j.open() != nil {
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
