package gloom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gloom/wire"
)

// Handler does a job and returns the answer: json.RawMessage and []byte are sent as they are,
// other values as JSON, nil as null.
//
// An error or a panic fails the run, with its text as the reason, and the job is retried while
// it has retries left; Fatal, RetryAfter and Release ask for something else.
//
// The context has the values of the one given to Run or Start. It ends, with a cause, when nobody
// waits for the run any more (ErrCancelled), when the connection is lost (ErrLost), and when Stop
// runs out of time (ErrClosed). A value that the handler returns after that is ignored, but the
// handler occupies its place in the pool until it returns.
type Handler func(ctx context.Context, job *Job) (any, error)

// Worker serves jobs of one or several types. Fill in the fields, then call Run or Start,
// once. It joins all brokers that Options name, each with its whole concurrency: it runs up to
// Concurrency × addresses jobs at once.
type Worker struct {
	// Type is the type of the jobs: 1 … 1024 bytes of UTF-8. Types replaces it with up to 1000
	// types, or patterns in which * stands for any characters. Except takes types, or patterns,
	// out of these. The best job goes first, whatever its type.
	Type          string
	Types, Except []string
	// Headers asks for the headers of jobs.
	Headers bool
	// Handler does the jobs, several at once.
	Handler Handler
	// Take replaces Handler for programs that only pass jobs on. It gets each run, which may
	// be answered at any later time; an unanswered run occupies no goroutine. Take needs Types.
	// Serve changes what the worker serves and how many jobs may be out (Prefetch, 0 for none
	// for now). Take is called on the goroutine that reads the connection, and must return soon.
	Take func(*Run)
	// OnUnwanted, with Take, is called on the same goroutine when nobody waits for a run any
	// more. If the cause is ErrCancelled, the run must still be answered; if it is a
	// *LostError, Answer does nothing.
	OnUnwanted func(run *Run, cause error)
	// Concurrency limits the jobs that run at once, per broker. 0 means 1, or Prefetch if that is
	// set.
	Concurrency int
	// Prefetch, if it is not 0, makes the handlers of a broker share one socket on which that
	// many jobs may be out, running or waiting here, which saves round trips. It must be at
	// least Concurrency. 0 means a socket per handler, each with one job.
	Prefetch int
	// StopTimeout is how long Run waits for running jobs after its context has ended. 0 means
	// DefaultStopTimeout.
	StopTimeout time.Duration
	// Options say which brokers to join and how: Addrs, Token, TLS and others.
	Options []Option

	conf *config

	baseCtx      context.Context // of the handlers
	abort        context.CancelCauseFunc
	leavingCtx   context.Context // ends when Stop begins
	beginLeaving context.CancelFunc
	joinedCtx    context.Context // ends when a socket has joined
	markJoined   context.CancelFunc
	done         chan struct{} // closed when all sockets have ended

	serving atomic.Pointer[Serving]
	sockets sync.Map // set of *socket; Serve updates them all

	mu         sync.Mutex // guards the creation of done, and the fields below
	giveUpErrs []error    // why sockets were given up
}

// Serving says what a worker with Take serves.
type Serving struct {
	Types, Except []string
	Prefetch      int // how many jobs may be out; 0 for no new ones
}

// Serve changes what a worker with Take serves. If it returns an error, nothing has changed.
// For a moment, runs that the change excludes may still arrive; runs that are out stay out.
func (w *Worker) Serve(v Serving) error {
	err := cmp.Or(
		errorIf(len(v.Types) == 0, "a worker with Take needs at least one of Types"),
		errorIf(v.Prefetch < 0, "prefetch %d: must not be negative", v.Prefetch),
		checkNames("type", "", slices.Concat(v.Types, v.Except)...),
	)
	if err != nil {
		return err
	}
	w.serving.Store(&v)
	for s := range w.sockets.Range {
		s.(*socket).rejoin()
	}
	return nil
}

// Run serves jobs until ctx ends or Stop is called, then leaves, finishes running jobs, and
// returns nil. It returns an error at once if the fields are wrong, and later if every broker
// refuses the worker permanently; brokers that cannot be reached are tried again. If running jobs
// take longer than StopTimeout, their contexts end, the connections are closed, and the error
// matches context.DeadlineExceeded.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	if waitDone(ctx, w.done) == nil {
		return w.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(w.StopTimeout, DefaultStopTimeout))
	defer cancel()
	return w.Stop(ctx)
}

// Start begins to serve jobs and returns once the first socket has joined. If ctx ends first,
// the worker is stopped. Stop must be called eventually.
func (w *Worker) Start(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	select {
	case <-w.joinedCtx.Done():
		return nil
	case <-w.done:
		return cmp.Or(w.Err(), ErrClosed)
	case <-ctx.Done():
		w.Stop(ctx)
		return fmt.Errorf("gloom: no broker joined: %w", context.Cause(ctx))
	}
}

// Stop accepts no more jobs, gives back those that wait here, and waits until running ones are
// finished and their answers sent. If ctx ends first, the handlers' contexts end, the
// connections are closed, and Stop returns the context's cause without waiting for handlers.
// It may be called repeatedly, and before Start has returned.
func (w *Worker) Stop(ctx context.Context) error {
	if w.Done() == nil {
		return nil
	}
	w.beginLeaving()
	if cause := waitDone(ctx, w.done); cause != nil {
		w.abort(ErrClosed)
		return fmt.Errorf("gloom: worker stopped before all jobs were answered and all brokers had replied: %w", cause)
	}
	return nil
}

// Done returns a channel that is closed when the worker has stopped, or has been refused
// permanently. It is nil before Run or Start.
func (w *Worker) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// Err returns why the worker ended, once Done is closed: nil after Stop, otherwise the brokers'
// refusals.
func (w *Worker) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leavingCtx == nil || w.leavingCtx.Err() != nil {
		return nil
	}
	return errors.Join(w.giveUpErrs...)
}

func (w *Worker) start(ctx context.Context) error {
	conf, err := newConfig(wire.WorkerPort, DefaultWorkerAddr, w.Options)
	err = cmp.Or(
		err,
		checkNames("type", "", slices.Concat([]string{w.Type}, w.Types, w.Except)...),
		errorIf(w.Type == "" && len(w.Types) == 0, "worker type is empty"),
		errorIf(w.Type != "" && len(w.Types) > 0, "worker has both a type and types"),
		errorIf(w.Type != "" && len(w.Except) > 0, "worker has except without types"),
		errorIf(w.Take != nil && (w.Handler != nil || w.Concurrency != 0 || w.Type != ""), "worker with Take has a handler, a concurrency or a single type"),
		errorIf(w.Take == nil && w.Handler == nil, "worker has no handler"),
		errorIf(w.Concurrency < 0 || w.Prefetch < 0 || w.StopTimeout < 0, "concurrency, prefetch and stop timeout must not be negative"),
		errorIf(w.Prefetch > 0 && w.Prefetch < w.Concurrency, "prefetch %d: must be at least the concurrency, %d", w.Prefetch, w.Concurrency),
	)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil {
		return errors.New("gloom: the worker has already been started")
	}
	w.conf = conf
	w.serving.CompareAndSwap(nil, &Serving{w.Types, w.Except, w.Prefetch}) // an earlier call of Serve has precedence
	w.baseCtx, w.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	w.leavingCtx, w.beginLeaving = context.WithCancel(context.Background())
	w.joinedCtx, w.markJoined = context.WithCancel(context.Background())
	w.done = make(chan struct{})

	var wg sync.WaitGroup
	sockets, _ := w.poolSize()
	for _, addr := range conf.addrs {
		for range sockets {
			wg.Go(func() { w.serve(addr) })
		}
	}
	go func() {
		wg.Wait()
		w.abort(ErrClosed)
		close(w.done)
	}()
	return nil
}

// poolSize returns how many sockets a broker gets, and how many handlers share one.
func (w *Worker) poolSize() (sockets, handlers int) {
	switch {
	case w.Take != nil:
		return 1, 0
	case w.Prefetch == 0:
		return max(w.Concurrency, 1), 1
	}
	return 1, cmp.Or(w.Concurrency, w.Prefetch)
}

// serve keeps one socket joined to a broker until the worker stops.
func (w *Worker) serve(addr string) {
	waitRetry := w.conf.newRetry()
	for {
		n := w.serveConn(addr)
		switch {
		case w.leavingCtx.Err() != nil:
			return
		case n.Event == EventFailed && isPermanent(n.Err):
			w.giveUp(n)
			return
		case waitRetry(n, w.leavingCtx.Done()):
			return
		}
	}
}

// giveUp records why a broker refuses the worker, once for all its sockets.
func (w *Worker) giveUp(n Notice) {
	w.mu.Lock()
	if !slices.ContainsFunc(w.giveUpErrs, func(e error) bool { return e.Error() == n.Err.Error() }) {
		w.giveUpErrs = append(w.giveUpErrs, n.Err)
	}
	w.mu.Unlock()
	n.Event = EventGivenUp
	w.conf.notify(n)
}
