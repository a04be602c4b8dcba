package link

import (
	"context"
	"fmt"
	"sync"

	gloom "gloom/clients/go"
)

// JobSubmitter holds the connection over which a door submits its jobs. A connection keeps the
// rights that its token had when it connected. If a job was refused for lack of rights, and a new
// connection may submit such a job, the new connection replaces the old connection. The old one
// stays until the jobs that it submitted have ended.
type JobSubmitter struct {
	link   *Link
	opts   []gloom.Option
	ctx    context.Context
	cancel context.CancelFunc
	drains sync.WaitGroup

	mu          sync.Mutex // guards the following
	current     *gloom.Submitter
	sideName    string // the name of the submitter's connection in Config.OnNotice
	openedCount int
}

// NewJobSubmitter opens a connection with further options.
func (l *Link) NewJobSubmitter(opts ...gloom.Option) (*JobSubmitter, error) {
	j := &JobSubmitter{link: l, opts: opts}
	if err := j.open(); err != nil {
		return nil, err
	}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	return j, nil
}

// open replaces the connection.
func (j *JobSubmitter) open() error {
	j.openedCount++
	side := SubmitterSide
	if j.openedCount > 1 {
		side = fmt.Sprintf("submitter %d", j.openedCount)
	}
	s, err := gloom.NewSubmitter(append(j.link.submitterOptions(side), j.opts...)...)
	if err == nil {
		j.current, j.sideName = s, side
	}
	return err
}

// Current returns the submitter for the next job.
func (j *JobSubmitter) Current() *gloom.Submitter {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.current
}

// NoteRefusal is called with the error of a job of this type, or nil. If the error is a refusal for
// lack of rights, NoteRefusal starts to look for a new connection that has these rights. jobWaits
// says that the job still waits to be submitted; then the link is unhealthy until a connection has
// the rights.
func (j *JobSubmitter) NoteRefusal(typ string, err error, jobWaits bool) {
	if !isDenied(err) {
		return
	}
	if jobWaits {
		j.link.setDenied(err)
	}
	j.link.RetryRights(j.ctx, typ, j.reconnect)
}

func (j *JobSubmitter) reconnect() {
	j.mu.Lock()
	defer j.mu.Unlock()
	old, side := j.current, j.sideName
	if j.ctx.Err() != nil || j.open() != nil {
		return // the next refusal tries again
	}
	j.drains.Go(func() {
		_ = old.Drain(j.ctx)
		j.link.ForgetSide(side)
	})
}

// Close closes all connections.
func (j *JobSubmitter) Close() {
	j.cancel()
	_ = j.Current().Close()
	j.drains.Wait()
}
