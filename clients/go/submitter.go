package gloom

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goccy/go-json"

	"gloom/wire"
)

// Submitter submits jobs to a broker over one connection. It is safe for concurrent use. Call
// Close, Leave or Drain when done.
type Submitter struct {
	conf        *config
	prefix      string // prefix of generated ids: 50 random bits, to distinguish submitters
	lastID      atomic.Uint64
	window      chan struct{} // has one element per outstanding job, and drainPlaces more
	drainPlaces atomic.Int64  // the number of places that Drain has taken
	closing     atomic.Bool   // Drain, Leave or Close was called
	leaving     atomic.Bool   // Leave was called

	ctx       context.Context // ends with Close
	cancelCtx context.CancelCauseFunc

	mu         condMutex  // guards the fields below, and those of sessions and jobs that name it
	sessions   []*session // the current one, and others with pending jobs
	current    *session   // nil if there is none
	lastErr    error      // of the last attempt to connect
	allRefused bool       // every broker refused permanently in that attempt
	keptJobs   []*Pending // kept jobs of the previous session, all of one broker

	nextAddr int // the address to try first; only the connecting goroutine uses it
}

// NewSubmitter returns a submitter that connects in the background. Submit waits for the
// connection. The error, if any, is about the options.
func NewSubmitter(opts ...Option) (*Submitter, error) {
	conf, err := newConfig(wire.SubmitPort, DefaultSubmitAddr, opts)
	if err != nil {
		return nil, err
	}
	s := &Submitter{conf: conf, prefix: strings.ToLower(rand.Text()[:10]) + "-", window: make(chan struct{}, conf.window)}
	s.ctx, s.cancelCtx = context.WithCancelCause(context.Background())
	go s.stayConnected()
	return s, nil
}

// Dial is like NewSubmitter, but waits until the submitter is connected, for at most one attempt
// at each address. ctx limits only this wait.
func Dial(ctx context.Context, opts ...Option) (*Submitter, error) {
	s, err := NewSubmitter(opts...)
	if err != nil {
		return nil, err
	}
	err = s.mu.waitFor(ctx, true, func() error {
		if err := s.checkReady(ctx, s.current); err != ErrNotConnected || s.lastErr == nil {
			return err
		}
		return s.lastErr
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Submit submits a job and returns once its frame is queued for sending. It waits for room in
// the window and for a connection while ctx lasts; ctx has no effect on the job.
//
// The error is a *RefusedError about the job itself, the context's cause, ErrClosed, or the
// refusal of all brokers. The Pending reports everything later, including the broker's refusal.
func (s *Submitter) Submit(ctx context.Context, job Job) (*Pending, error) {
	return s.submit(ctx, &job, nil, true)
}

// SubmitFunc is like Submit, but takes a function in place of the Pending. Unless SubmitFunc
// returns an error, done is called once, with what Pending.Result would return.
//
// done is called on the goroutine that reads the connection, in the order of the broker's
// frames, after its job has left the window. It must return soon and must not wait
// for this submitter: within it, use TrySubmit and TrySubmitFunc.
func (s *Submitter) SubmitFunc(ctx context.Context, job Job, done func(Result, error)) error {
	_, err := s.submit(ctx, &job, done, true)
	return err
}

// TrySubmit is like Submit, but returns ErrWindowFull or ErrNotConnected instead of waiting.
func (s *Submitter) TrySubmit(job Job) (*Pending, error) {
	return s.submit(context.Background(), &job, nil, false)
}

// TrySubmitFunc is like SubmitFunc, but returns ErrWindowFull or ErrNotConnected instead of
// waiting.
func (s *Submitter) TrySubmitFunc(job Job, done func(Result, error)) error {
	_, err := s.submit(context.Background(), &job, done, false)
	return err
}

// Do submits a job and waits for its result. If ctx ends first, Do returns its cause and asks
// the broker to cancel the job, unless it is detached. It does not report whether that was in time.
func (s *Submitter) Do(ctx context.Context, job Job) (Result, error) {
	p, err := s.submit(ctx, &job, nil, true)
	if err != nil {
		return Result{}, err
	}
	r, err := p.Result(ctx)
	if err != nil && ctx.Err() != nil && !job.Detach {
		s.abandon(p)
	}
	return r, err
}

// Cancel asks the broker to cancel a job: one of this submitter's, which then ends with a
// *JobError of ErrCancelled, or any detached one. Nil means cancelled. A *RefusedError of
// ErrUnknownID means that the job has ended or never existed.
func (s *Submitter) Cancel(ctx context.Context, id string) error {
	return await(ctx, func(done func(error)) error { return s.CancelFunc(ctx, id, done) })
}

// CancelFunc is like Cancel, but takes a function that gets the reply, on the same goroutine as
// that of SubmitFunc. It waits for a connection and for room while ctx lasts. Unless CancelFunc
// returns an error, done is called once.
func (s *Submitter) CancelFunc(ctx context.Context, id string, done func(error)) error {
	key, err := canonicalKey(id)
	if err != nil {
		return err
	}
	return s.send(ctx, request{verb: wire.Cancel, key: key, done: done}, wire.AppendCancel(nil, []byte(key)))
}

// Change says what to change about a waiting job. A nil field changes nothing.
type Change struct {
	Priority *int64
	Groups   []string       // replace its groups; empty, but not nil, removes all
	Delay    *time.Duration // how long to wait from now, at most a year; 0 makes the job ready
}

// Change changes a waiting job: one of this submitter's, a kept one without a connection, or any
// detached one. If it returns a *RefusedError, nothing has changed: with ErrInvalidState the job
// is running, with ErrUnknownID it has ended or never existed.
func (s *Submitter) Change(ctx context.Context, id string, c Change) error {
	return await(ctx, func(done func(error)) error { return s.ChangeFunc(ctx, id, c, done) })
}

// ChangeFunc is like Change, but takes a function that gets the reply, as CancelFunc does.
func (s *Submitter) ChangeFunc(ctx context.Context, id string, c Change, done func(error)) error {
	key, err := canonicalKey(id)
	if err != nil {
		return err
	}
	if err := checkNames("group", "", c.Groups...); err != nil {
		return err
	}
	r := wire.Request{ID: []byte(key), Groups: canonicalNames(c.Groups), HasGroups: c.Groups != nil, AfterMS: -1}
	if c.Priority != nil {
		r.HasPriority, r.Priority = true, *c.Priority
	}
	if c.Delay != nil {
		if r.AfterMS = toMillis(*c.Delay); r.AfterMS < 0 {
			return &RefusedError{Code: ErrInvalidValue, ID: id, Reason: fmt.Sprintf("delay is %v: must not be negative", *c.Delay)}
		}
	}
	return s.send(ctx, request{verb: wire.Change, key: key, done: done}, wire.AppendChange(nil, &r))
}

// Attach takes over a kept job: one submitted with Keep and the same token that has not ended or
// whose outcome is still kept. It is then treated like a job submitted here with Keep and, if
// progress is not nil, with progress as OnProgress. If there is no such job, the Pending ends with
// a *RefusedError of ErrUnknownID.
func (s *Submitter) Attach(ctx context.Context, id string, progress func(json.RawMessage)) (*Pending, error) {
	return s.attachJob(ctx, id, progress, nil)
}

// AttachFunc is like Attach, but takes a function in place of the Pending, as SubmitFunc does.
func (s *Submitter) AttachFunc(ctx context.Context, id string, progress func(json.RawMessage), done func(Result, error)) error {
	_, err := s.attachJob(ctx, id, progress, done)
	return err
}

func (s *Submitter) attachJob(ctx context.Context, id string, progress func(json.RawMessage), notify func(Result, error)) (*Pending, error) {
	key, err := canonicalKey(id)
	if err != nil {
		return nil, err
	}
	return s.startJob(ctx, &Pending{id: id, key: key, onProgress: progress, callback: notify, owner: s, kept: &keptState{}}, nil, true)
}

// Ping waits for a reply from the broker.
func (s *Submitter) Ping(ctx context.Context) error {
	return await(ctx, func(done func(error)) error {
		return s.send(ctx, request{verb: wire.Ping, done: done}, wire.AppendPing(nil))
	})
}

// Outstanding returns how many jobs have not ended, including those that wait in Submit.
func (s *Submitter) Outstanding() int {
	drainPlaces := s.drainPlaces.Load()
	if n := len(s.window) - int(drainPlaces); drainPlaces == s.drainPlaces.Load() {
		return n
	}
	return s.Outstanding() // Drain has taken places meanwhile
}

// Drain accepts no more jobs, waits until the outstanding ones have ended, and closes the
// submitter. If ctx ends first, Drain closes it at once and returns the context's cause.
func (s *Submitter) Drain(ctx context.Context) error {
	s.closing.Store(true)
	defer s.Close()
	for int(s.drainPlaces.Load()) < cap(s.window) {
		select {
		case s.window <- struct{}{}:
			s.drainPlaces.Add(1)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return nil
		}
	}
	return nil
}

// Leave shuts down this side of the connection, reads what the broker has sent until the broker
// closes its side or ctx ends, and then closes like Close. The broker forgets the outcome of a
// kept job once it has sent it; Leave delivers such outcomes. The other pending jobs end as with
// Close, and the broker still keeps the outcomes of those that are kept.
func (s *Submitter) Leave(ctx context.Context) {
	s.closing.Store(true)
	s.leaving.Store(true)
	defer s.Close()
	s.mu.Lock()
	sessions := slices.Clone(s.sessions)
	for _, sess := range sessions {
		sess.endOutput()
	}
	s.mu.Unlock()
	for _, sess := range sessions {
		_ = waitDone(ctx, sess.ended)
	}
}

// Close closes the connection. Pending jobs end with a *LostError whose cause is ErrClosed;
// Close does not wait for that. Outcomes of kept jobs that the broker has sent, but that have not
// been read, are lost; Leave reads them. It may be called repeatedly and returns nil.
func (s *Submitter) Close() error {
	s.closing.Store(true)
	s.cancelCtx(ErrClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.wakeAll()
	return nil
}

func (s *Submitter) submit(ctx context.Context, job *Job, notify func(Result, error), wait bool) (*Pending, error) {
	if job.ID == "" {
		var buf [32]byte
		job.ID = string(strconv.AppendUint(append(buf[:0], s.prefix...), s.lastID.Add(1), 36))
	}
	if err := job.validate(s.conf.trustBodies); err != nil {
		return nil, err
	}
	p := &Pending{
		id: job.ID, key: canonical(job.ID), isDetached: job.Detach, noAck: job.NoAck,
		onProgress: job.OnProgress, callback: notify, owner: s,
	}
	buf := frameBuffers.Get().(*[]byte)
	defer returnBuffer(buf)
	*buf = appendSubmit((*buf)[:0], job, p.key)
	if job.Keep > 0 {
		p.kept = &keptState{frame: slices.Clone(*buf), mayResend: job.AtLeastOnce}
	}
	return s.startJob(ctx, p, *buf, wait)
}

// startJob sends a job once there is room in the window and a connection that has room, too.
func (s *Submitter) startJob(ctx context.Context, p *Pending, submit []byte, wait bool) (*Pending, error) {
	if err := s.enterWindow(ctx, wait); err != nil {
		return nil, err
	}
	err := s.mu.waitFor(ctx, wait, func() error {
		sess := s.current
		if err := s.checkReady(ctx, sess); err != nil {
			return err
		} else if s.closing.Load() {
			return ErrClosed
		} else if sess.jobs[p.key] != nil {
			return &RefusedError{Code: ErrIDExists, ID: p.id, Reason: "id is pending on this connection"}
		}
		return sess.sendJob(p, submit)
	})
	if err != nil {
		<-s.window
		return nil, err
	}
	return p, nil
}

func (s *Submitter) enterWindow(ctx context.Context, wait bool) error {
	if s.closing.Load() {
		return ErrClosed
	}
	select {
	case s.window <- struct{}{}:
		return nil
	default:
		if !wait {
			return ErrWindowFull
		}
	}
	select {
	case s.window <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ctx.Done():
		return ErrClosed
	}
}

// send sends any other request once the connection of its job, or else the current one, has room.
func (s *Submitter) send(ctx context.Context, r request, frame []byte) error {
	return s.mu.waitFor(ctx, true, func() error {
		sess := s.current
		for _, other := range s.sessions {
			if p := other.jobs[r.key]; p != nil && (r.job == nil || r.job == p) {
				if sess = other; p.kept != nil && r.verb == wire.Cancel {
					p.kept.mayResend = false
				}
				break
			}
		}
		err := s.checkReady(ctx, sess)
		if err == nil {
			sess.send(frame, r)
		}
		return err
	})
}

// checkReady returns why a request cannot be sent on a connection, which may be nil: ErrNotConnected
// and ErrWindowFull if it may be possible later. mu must be held.
func (s *Submitter) checkReady(ctx context.Context, sess *session) error {
	alive := sess != nil && sess.ctx.Err() == nil
	switch cause := context.Cause(ctx); {
	case s.ctx.Err() != nil:
		return ErrClosed
	case cause != nil && s.current != nil:
		return cause
	case cause != nil && s.lastErr == nil:
		return fmt.Errorf("gloom: not connected yet: %w", cause)
	case cause != nil:
		return fmt.Errorf("gloom: no broker reached: %w (last attempt: %w)", cause, s.lastErr)
	case !alive && s.allRefused:
		return s.lastErr
	case !alive:
		return ErrNotConnected
	case sess.isFull():
		return ErrWindowFull
	}
	return nil
}

func canonicalKey(id string) (string, error) {
	if err := wire.CheckName("id", id); err != nil {
		return "", &RefusedError{Code: ErrInvalidType, Reason: err.Reason}
	}
	return canonical(id), nil
}
