package gloom

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/goccy/go-json"

	"gloom/wire"
)

// Pending is a job that was submitted and may not have ended. It is safe for concurrent use.
type Pending struct {
	id  string
	key string // canonical id

	onProgress func(json.RawMessage) // of Job.OnProgress
	callback   func(Result, error)   // of SubmitFunc, otherwise nil
	owner      *Submitter            // one slot of its window is held until the job ends
	isDetached bool
	noAck      bool // of Job.NoAck

	// Guarded by owner.mu.
	session       *session   // the last session whose table it was in
	requestNumber uint64     // the number of its request there
	kept          *keptState // nil if the job ends with its connection

	acked bool // the broker has accepted the job; also valid once ack is closed

	result Result   // valid once ended
	err    error    // valid once ended
	ack    doneChan // closed when the broker has accepted the job, or the job has ended
	done   doneChan // closed when the job has ended
}

// doneChan is a channel to be closed, created when it is first needed.
type doneChan struct{ atomic.Value }

var closedChan = make(chan struct{})

func init() { close(closedChan) }

func (d *doneChan) wait() <-chan struct{} {
	if d.Load() == nil {
		d.CompareAndSwap(nil, make(chan struct{}))
	}
	return d.Load().(chan struct{})
}

func (d *doneChan) close() {
	if c := d.Swap(closedChan); c != nil && c != closedChan {
		close(c.(chan struct{}))
	}
}

// waitDone waits until done is closed. If ctx ends first, it returns the context's cause.
func waitDone(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select { // both may have happened
	case <-done:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// ID returns the job's id.
func (p *Pending) ID() string { return p.id }

// Acked returns a channel that is closed when the broker has accepted the job, or when the job
// has ended (refused, lost); then Done is closed, too. Ack reports which.
func (p *Pending) Acked() <-chan struct{} { return p.ack.wait() }

// Done returns a channel that is closed when the job has ended, with a result or an error.
func (p *Pending) Done() <-chan struct{} { return p.done.wait() }

// Ack waits until the broker has accepted the job. It returns the job's error if it was not
// accepted. If ctx ends first, it returns the context's cause, and the job continues.
func (p *Pending) Ack(ctx context.Context) error {
	if err := waitDone(ctx, p.Acked()); err != nil || p.acked {
		return err
	}
	return p.err
}

// Result waits for the job's end. Its error is a *RefusedError, a *JobError, a *LostError, or
// the context's cause if ctx ends first; then the job continues, and Result may be called
// again.
func (p *Pending) Result(ctx context.Context) (Result, error) {
	if err := waitDone(ctx, p.Done()); err != nil {
		return Result{}, err
	}
	return p.result, p.err
}

// Cancel cancels the job as Submitter.Cancel does, over the job's connection.
func (p *Pending) Cancel(ctx context.Context) error {
	return await(ctx, func(done func(error)) error {
		r := request{verb: wire.Cancel, key: p.key, job: p, done: done}
		return p.owner.send(ctx, r, wire.AppendCancel(nil, []byte(p.key)))
	})
}

// markAccepted announces that the broker has accepted the job. owner.mu must be held.
func (p *Pending) markAccepted() {
	if !p.acked {
		p.acked = true
		p.ack.close()
	}
}

// notify announces how the job has ended. It is called once, when the job's connection has no
// more to do with the job.
func (p *Pending) notify() {
	p.result.Body = slices.Clone(p.result.Body) // it points into the frame
	<-p.owner.window                            // first, because code that waits for the end may rely on a free place in the window
	p.ack.close()
	p.done.close()
	if p.callback != nil {
		p.callback(p.result, p.err)
	}
}
