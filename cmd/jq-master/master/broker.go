package master

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-json"
	"github.com/rs/zerolog"

	gloom "gloom/clients/go"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

// Broker is the master's access to a Gloom broker.
type Broker struct {
	// Submitter holds the options of the submitter's connection; Worker returns those of a worker's
	// connection.
	Submitter []gloom.Option
	Worker    func(name string) []gloom.Option
	// Exclusive says that only this master can reach the broker. Then jobs are submitted as detached,
	// and without their arguments.
	Exclusive bool
	// MaxGroups is how many groups a job may be in, MaxPrefetch how many jobs may be
	// out on one connection.
	MaxGroups, MaxPrefetch int
	// Rules changes the broker's rules for groups.
	Rules Rules
	// Close ends a broker inside the process.
	Close func()
	// Lost is closed when a connection to the broker breaks. The broker may then have lost the
	// jobs.
	Lost <-chan struct{}
	// IsReachable reports whether the submitter's connection is up.
	IsReachable func() bool
	// Health returns nil if all connections are up. Forget drops the connection of a worker.
	Health func() error
	Forget func(name string)
	// WantRights must be called with a type that the token does not cover. As soon as a new
	// connection would be allowed to submit jobs of this type, it calls onGranted, unless ctx
	// ends first.
	WantRights func(ctx context.Context, typ string, onGranted func())
}

// brokerConn is the connection to a broker. Submits, changes, cancels and rules are sent in order.
type brokerConn struct {
	ownPrefix   string // prefix of the types of jobs that a worker already runs
	broker      Broker
	runCommand  func(f func(c *machine))
	log         zerolog.Logger
	refusalLog  zerolog.Logger // a sampled log: a broker at a limit refuses all jobs again and again
	submitter   *gloom.Submitter
	ctx         context.Context
	stop        context.CancelFunc
	workerLoops sync.WaitGroup

	mu             sync.Mutex // guards the fields below
	wake           *sync.Cond
	queue          []brokerRequest
	pending        int // requests that have not been sent
	pendingChanges int // changes that the broker has not answered yet
	workers        map[job.ID][]*workerConn
	denied         error          // why requests do not reach the broker
	droppedRules   map[string]int // how many queued requests drop the rule of a pattern

	outdated     chan struct{} // closed by outdate, when a new connection would have rights that this one lacks
	markOutdated func()
}

// workerConn is a connection through which a worker gets jobs. A worker has several if it may have
// more jobs than the broker sends to one connection.
type workerConn struct {
	*gloom.Worker
	serving gloom.Serving
	removed bool
}

// brokerRequest is a request to the broker.
type brokerRequest struct {
	submit  *submission
	change  *gloom.Change
	cancel  bool
	rule    *ruleChange
	flushed func()
	id      job.ID
}

// maxPending is the maximum number of jobs that may be on their way to the broker.
const maxPending = 1 << 16

func openBrokerConn(b Broker, own string, maxJobs int, runCommand func(f func(m *machine)), log zerolog.Logger) (*brokerConn, error) {
	l := &brokerConn{broker: b, runCommand: runCommand, log: log, ownPrefix: own, workers: make(map[job.ID][]*workerConn), droppedRules: make(map[string]int), outdated: make(chan struct{})}
	l.refusalLog = log.Sample(&zerolog.BurstSampler{Burst: 1, Period: 10 * time.Second})
	l.wake = sync.NewCond(&l.mu)
	l.markOutdated = sync.OnceFunc(func() { close(l.outdated) })
	l.ctx, l.stop = context.WithCancel(context.Background())
	size := maxPending
	if !b.Exclusive {
		size = maxJobs + maxPending // each job counts until it has ended
	}
	var err error
	l.submitter, err = gloom.NewSubmitter(append(b.Submitter, gloom.Window(size))...)
	if err != nil {
		l.stop()
		return nil, err
	}
	l.workerLoops.Go(l.run)
	return l, nil
}

func (l *brokerConn) close() {
	l.stop()
	l.mu.Lock()
	workers := l.workers
	l.workers = nil
	l.wake.Broadcast()
	l.mu.Unlock()
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	for _, posts := range workers { // workers end before the submitter, so that the broker counts their runs as lost
		for _, p := range posts {
			_ = p.Stop(stopped)
		}
	}
	_ = l.submitter.Close()
	l.workerLoops.Wait()
	l.broker.Close()
}

func (l *brokerConn) queueRequest(e brokerRequest) {
	l.mu.Lock()
	l.queue = append(l.queue, e)
	l.pending++
	if e.change != nil {
		l.pendingChanges++
	}
	if e.rule != nil && e.rule.drop {
		l.droppedRules[e.rule.pattern]++
	}
	l.mu.Unlock()
	l.wake.Signal()
}

// backlog returns how many requests have not been sent, and how many changes the broker has not
// answered.
func (l *brokerConn) backlog() (pending, changes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending, l.pendingChanges
}

func (l *brokerConn) submit(s submission)  { l.queueRequest(brokerRequest{submit: &s, id: s.id}) }
func (l *brokerConn) cancel(id job.ID)     { l.queueRequest(brokerRequest{cancel: true, id: id}) }
func (l *brokerConn) setRule(r ruleChange) { l.queueRequest(brokerRequest{rule: &r}) }
func (l *brokerConn) flush(onDone func())  { l.queueRequest(brokerRequest{flushed: onDone}) }
func (l *brokerConn) change(id job.ID, groups []string, priority *int64, delay *time.Duration) {
	l.queueRequest(brokerRequest{change: &gloom.Change{Priority: priority, Groups: groups, Delay: delay}, id: id})
}

// run sends the requests in order until the connection is closed.
func (l *brokerConn) run() {
	var batch []brokerRequest
	for {
		l.mu.Lock()
		l.pending -= len(batch)
		for len(l.queue) == 0 && l.ctx.Err() == nil {
			l.wake.Wait()
		}
		clear(batch)
		batch, l.queue = l.queue, batch[:0]
		if cap(l.queue) > 1<<16 {
			l.queue = nil
		}
		l.mu.Unlock()
		if l.ctx.Err() != nil {
			return
		}
		for i := range batch {
			l.send(&batch[i])
		}
	}
}

// send sends a request. While the broker refuses the connection, it sends the request again,
// because nothing else would.
func (l *brokerConn) send(e *brokerRequest) {
	for {
		err := l.trySend(e)
		var refused *gloom.RefusedError
		switch ok := errors.As(err, &refused); {
		case err == nil:
			return
		case l.ctx.Err() != nil, errors.Is(err, gloom.ErrLost):
		case ok && refused.ID == "": // the connection is refused, not the job
			l.sleep(resendPause)
			continue
		case ok && refused.Code == gloom.ErrSizeError && e.submit != nil && e.submit.argument != nil:
			l.runCommand(func(m *machine) { m.onTooLong(e.id) })
		case e.submit != nil:
			l.onResult(e.submit, nil, err)
		default:
			l.log.Warn().Err(err).Stringer("job", e.id).Msg("the broker refuses a request")
		}
		if e.change != nil {
			l.changed()
		}
		return
	}
}

// resendPause is the pause before the next attempt after the broker has refused the connection.
const resendPause = 500 * time.Millisecond

// sleep waits for d and reports whether the connection is still open.
func (l *brokerConn) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.ctx.Done():
		return false
	}
}

func (l *brokerConn) trySend(e *brokerRequest) (err error) {
	switch {
	case e.submit != nil:
		err = l.submitJob(e.submit)
	case e.cancel:
		err = l.submitter.CancelFunc(l.ctx, e.id.String(), func(error) {}) // an error only says that the job has already ended
	case e.change != nil:
		id := e.id
		err = l.submitter.ChangeFunc(l.ctx, id.String(), *e.change, func(err error) {
			l.changed()
			if refused := (*gloom.RefusedError)(nil); errors.As(err, &refused) && refused.Code == gloom.ErrInvalidState {
				l.runCommand(func(m *machine) { m.onGroupsRefused(id) })
			}
		})
	case e.rule != nil:
		err = l.applyRule(e.rule)
	case e.flushed != nil:
		if err = l.submitter.Ping(l.ctx); err == nil {
			e.flushed()
		}
	}
	return err
}

func (l *brokerConn) changed() {
	l.mu.Lock()
	l.pendingChanges--
	l.mu.Unlock()
}

// applyRule repeats the request until the broker has the rule, because without the rule, jobs that
// must not run would run. It gives up when a later request drops the rule: operators may do that if
// the broker has no room for it. Rules have a connection of their own, so a rule waits for the
// jobs' connection: if the broker has ended since, that connection is lost, and all rules are sent
// again.
func (l *brokerConn) applyRule(r *ruleChange) error {
	if r.drop {
		defer l.noteDropped(r.pattern)
	}
	if err := l.submitter.Ping(l.ctx); err != nil {
		return err
	}
	told := false
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		var err error
		if r.drop || !l.willDrop(r.pattern) {
			err = l.broker.Rules.set(l.ctx, r)
		}
		if err == nil || l.ctx.Err() != nil || r.drop && errors.Is(err, errRefused) {
			if told {
				l.setDenied(nil)
			}
			return err
		}
		told = true
		l.setDenied(fmt.Errorf("the broker does not take the rule of a constraint: %w", err))
		l.log.Warn().Err(err).Str("pattern", r.pattern).Msg("the broker does not take a rule; trying again")
		l.sleep(wait)
	}
}

// willDrop reports whether a queued request drops the rule of a pattern. noteDropped notes that
// such a request was carried out.
func (l *brokerConn) willDrop(pattern string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.droppedRules[pattern] > 0
}

func (l *brokerConn) noteDropped(pattern string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.droppedRules[pattern]--; l.droppedRules[pattern] == 0 {
		delete(l.droppedRules, pattern)
	}
}

func (l *brokerConn) setDenied(why error) {
	l.mu.Lock()
	l.denied = why
	l.mu.Unlock()
}

// health returns nil if all requests reach the broker.
func (l *brokerConn) health() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.denied != nil {
		return l.denied
	}
	return l.broker.Health()
}

func (l *brokerConn) submitJob(s *submission) error {
	j := gloom.Job{
		ID: s.id.String(), Type: s.typ, Priority: s.priority, Delay: s.delay, Age: s.age, Groups: s.groups,
		Retries: maxRetries, Backoff: gloom.NoBackoff, Detach: l.broker.Exclusive, Body: emptyBody,
	}
	if !l.broker.Exclusive {
		if s.argument != nil {
			j.Body = pack.AppendJSON(nil, s.argument)
		}
		j.Timeout = s.timeout + brokerGrace
		if j.Retries = s.retries; j.Retries <= 0 {
			j.Retries = gloom.NoRetries
		}
	}
	return l.submitter.SubmitFunc(l.ctx, j, func(r gloom.Result, err error) { l.onResult(s, r.Body, err) })
}

// brokerGrace is how much longer the broker's timeout of a run is than the master's, so that the
// master ends the run first.
const brokerGrace = 5 * time.Second

// maxRetries is the maximum number of retries that the broker allows: the master itself counts the
// retries of a job.
const maxRetries = 1000

var emptyBody = json.RawMessage("0")

// onResult is called when the broker accepts a detached job, ends a job that is not detached, or
// refuses a job. It ignores the end of a job that a worker already ran when it was submitted,
// because the master itself has ended that job.
func (l *brokerConn) onResult(s *submission, body []byte, err error) {
	var refused *gloom.RefusedError
	var failed *gloom.JobError
	own := strings.HasPrefix(s.typ, l.ownPrefix)
	switch {
	case errors.Is(err, gloom.ErrLost) || l.ctx.Err() != nil:
	case err == nil && (l.broker.Exclusive || own):
	case err == nil:
		result, wrong := pack.FromJSON(body)
		o := &job.Outcome{Success: true, Result: result}
		if wrong != nil {
			o = &job.Outcome{Reason: job.Other, Message: "the answer is malformed: " + wrong.Error()}
		}
		l.runCommand(func(m *machine) { m.onBrokerAnswer(s.id, s.bid, o, false) })
	case errors.As(err, &refused):
		if refused.Code == gloom.ErrForbidden { // the broker refuses such jobs until there is a new connection
			l.setDenied(err)
			l.broker.WantRights(l.ctx, s.typ, l.markOutdated)
		}
		if refused.Code != gloom.ErrIDExists {
			l.refusalLog.Warn().Err(err).Msg("the broker refuses jobs such as this one; the master submits them again and again, and logs this at most every ten seconds")
		}
		l.runCommand(func(m *machine) { m.onNotAtBroker(s.id, s.bid) })
	case errors.As(err, &failed) && failed.Code == gloom.ErrJobFailed && !own && failed.Reason != errFailed.Error():
		o := &job.Outcome{Reason: job.Other, Message: failed.Reason}
		l.runCommand(func(m *machine) { m.onBrokerAnswer(s.id, s.bid, o, failed.Lost) })
	default:
		l.runCommand(func(m *machine) { m.onNotAtBroker(s.id, s.bid) })
	}
}

func (l *brokerConn) setServing(id job.ID, v serving) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers == nil {
		return
	}
	posts, left := l.workers[id], v.prefetch
	for i := 0; i < len(posts) || left > 0; i++ {
		serves := gloom.Serving{Types: v.types, Except: v.except, Prefetch: min(left, l.broker.MaxPrefetch)}
		left -= serves.Prefetch
		if i == len(posts) {
			p := &workerConn{Worker: l.newWorker(id, serves), serving: serves}
			posts = append(posts, p)
			l.workerLoops.Go(func() { l.runWorker(id, p) })
			continue
		}
		posts[i].serving = serves
		if err := posts[i].Serve(serves); err != nil {
			l.log.Error().Err(err).Stringer("worker", id).Msg("a worker cannot serve")
		}
	}
	if len(posts) > 0 {
		l.workers[id] = posts
	}
}

func (l *brokerConn) newWorker(id job.ID, v gloom.Serving) *gloom.Worker {
	return &gloom.Worker{
		Types: v.Types, Except: v.Except, Prefetch: v.Prefetch,
		Options: l.broker.Worker(id.String()),
		Take: func(r *gloom.Run) {
			jobID, ok := job.ParseID(r.Job().ID)
			if !ok {
				r.Answer(nil, gloom.Fatal(errors.New("not a job of JQ")))
				return
			}
			l.runCommand(func(m *machine) { m.onHandout(id, jobID, strings.HasPrefix(r.Job().Type, l.ownPrefix), brokerRun{r}) })
		},
	}
}

// runWorker runs a worker's connection until the worker leaves. If the broker refuses the
// connection, runWorker tries again.
func (l *brokerConn) runWorker(id job.ID, p *workerConn) {
	for w := p.Worker; w != nil; {
		err := w.Run(l.ctx)
		if err == nil || l.ctx.Err() != nil {
			return
		}
		l.log.Error().Err(err).Stringer("worker", id).Msg("the broker refuses a worker; trying again")
		for w = nil; w == nil && l.sleep(resendPause); {
			l.mu.Lock()
			if p.removed || l.workers == nil {
				l.mu.Unlock()
				return
			}
			if p.serving.Prefetch > 0 {
				w = l.newWorker(id, p.serving)
				p.Worker = w
			}
			l.mu.Unlock()
		}
	}
}

// brokerRun implements handle for a run of the broker.
type brokerRun struct{ *gloom.Run }

func (r brokerRun) end()                        { r.Answer(nil, nil) }
func (r brokerRun) release(delay time.Duration) { r.Answer(nil, gloom.Release(delay)) }
func (r brokerRun) retry(delay time.Duration)   { r.Answer(nil, gloom.RetryAfter(errFailed, delay)) }

var errFailed = errors.New("the attempt has failed")

func (l *brokerConn) removeWorker(id job.ID) {
	l.mu.Lock()
	posts := l.workers[id]
	delete(l.workers, id)
	for _, p := range posts {
		p.removed = true
		w := p.Worker
		l.workerLoops.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
			defer cancel()
			_ = w.Stop(ctx)
			l.broker.Forget(id.String())
		})
	}
	l.mu.Unlock()
}
