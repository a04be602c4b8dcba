package gloom

import (
	"context"
	"sync"

	"github.com/goccy/go-json"
)

// Pending is a job that was submitted and may not have ended. It is safe for
// concurrent use.
type Pending struct {
	id  string
	key string // canonical id

	detach   bool
	progress func(json.RawMessage) // of Job.OnProgress
	notify   func(Result, error)   // of SubmitFunc, else nil
	window   chan struct{}         // one slot of it is held until the job ends
	session  *session              // set before the job is in its table

	seq uint64 // of its request; guarded by session.mu

	mu     sync.Mutex // guards what follows
	acked  bool       // the broker took the job
	ended  bool
	ackCh  chan struct{} // made when asked for
	doneCh chan struct{} // made when asked for
	result Result        // valid once ended
	err    error         // valid once ended
}

// ID is the job's id.
func (p *Pending) ID() string { return p.id }

// Acked is closed when the broker's reply is in: it took the job, or the job has
// ended (refused, lost) and Done is closed as well. Ack tells which.
func (p *Pending) Acked() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acked || p.ended {
		return closed
	}
	if p.ackCh == nil {
		p.ackCh = make(chan struct{})
	}
	return p.ackCh
}

// Done is closed when the job has ended, with a result or an error.
func (p *Pending) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return closed
	}
	if p.doneCh == nil {
		p.doneCh = make(chan struct{})
	}
	return p.doneCh
}

// Ack waits until the broker has taken the job, and returns nil then. It returns
// the job's error if it was not taken, and the context's cause if that ends
// first; the job goes on then.
func (p *Pending) Ack(ctx context.Context) error {
	select {
	case <-p.Acked():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acked {
		return nil
	}
	return p.err
}

// Result waits for the job's end. Its error is a *RefusedError, a *JobError, a
// *LostError, or the context's cause if that ends first; the job goes on then,
// and Result may be called again.
func (p *Pending) Result(ctx context.Context) (Result, error) {
	select {
	case <-p.Done():
	case <-ctx.Done():
		select { // what has come counts
		case <-p.Done():
		default:
			return Result{}, context.Cause(ctx)
		}
	}
	return p.result, p.err
}

// Cancel asks the broker to cancel the job, as Submitter.Cancel does.
func (p *Pending) Cancel(ctx context.Context) error {
	return p.session.cancel(ctx, p.key)
}

// taken notes that the broker took the job, which ends it if it is detached. The
// caller has removed a detached job from its session.
func (p *Pending) taken() {
	if p.detach {
		p.end(Result{ID: p.id}, nil)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked = true
	p.wakeAck()
}

// wakeAck is called with mu held, once acked or ended is set.
func (p *Pending) wakeAck() {
	if p.ackCh != nil {
		close(p.ackCh)
		p.ackCh = nil
	}
}

// end is called once, by the goroutine that reads the session's connection.
func (p *Pending) end(result Result, err error) {
	<-p.window // first: who waits for the end may count on the room
	p.mu.Lock()
	p.ended, p.result, p.err = true, result, err
	p.wakeAck()
	if p.doneCh != nil {
		close(p.doneCh)
	}
	p.mu.Unlock()
	if p.notify != nil {
		p.notify(result, err)
	}
}

// lost is the error of a job whose connection went.
func (p *Pending) lost(addr string, sent bool, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &LostError{ID: p.id, Addr: addr, Acked: p.acked, Sent: sent || p.acked, Cause: cause}
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
