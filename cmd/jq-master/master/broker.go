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
	// MaxGroups limits the groups of a job. MaxPrefetch limits the jobs that are out on one
	// connection.
	MaxGroups, MaxPrefetch int
	// Rules is a client for the broker's rules about groups.
	Rules Rules
	// Close ends a broker inside the process.
	Close func()
	// Lost is closed when a connection to the broker breaks. The broker may then have lost the
	// jobs.
	Lost <-chan struct{}
	// IsReachable reports whether the submitter's connection is up.
	IsReachable func() bool
	// Health returns nil if all connections are up. Forget removes what Health knows about a
	// worker's connection.
	Health func() error
	Forget func(name string)
	// WantRights must be called with a type that the token does not cover. As soon as a new
	// connection would be allowed to submit jobs of this type, it calls onGranted, unless ctx
	// ends first.
	WantRights func(ctx context.Context, typ string, onGranted func())
}

// brokerConn is the connection to a broker. Submits, changes, cancels and rules are sent in order.
type brokerConn struct {
	runningTypePrefix string // prefix of the types of jobs that a worker already runs
	broker            Broker
	runCommand        func(f func(c *machine))
	log               zerolog.Logger
	sampledLog        zerolog.Logger // for what happens again and again: a broker at a limit refuses all jobs
	sampledWorkerLog  zerolog.Logger // the same for workers, which neither hide jobs nor are hidden by them
	submitter         *gloom.Submitter
	ctx               context.Context
	stop              context.CancelFunc
	goroutines        sync.WaitGroup

	mu               sync.Mutex // guards the fields below
	wake             *sync.Cond
	queue            []brokerRequest
	runEnded         bool // run has returned
	pending          int  // requests that have not been sent
	pendingChanges   int  // changes that the broker has not answered yet
	workers          map[job.ID][]*workerConn
	unreachableErr   error          // why requests do not reach the broker
	pendingRuleDrops map[string]int // how many queued requests drop the rule of a pattern
	refusal          string         // why the broker has refused a job, at refusedAt
	refusedAt        time.Time

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
	flushed func(reached bool)
	id      job.ID
}

// giveUp is called if a request will not be sent.
func (e *brokerRequest) giveUp() {
	if e.flushed != nil {
		e.flushed(false)
	}
}

// maxPending is the maximum number of jobs that may be on their way to the broker.
const maxPending = 1 << 16

func openBrokerConn(b Broker, runningTypePrefix string, maxJobs int, runCommand func(f func(m *machine)), log zerolog.Logger) (*brokerConn, error) {
	c := &brokerConn{broker: b, runCommand: runCommand, log: log, runningTypePrefix: runningTypePrefix, workers: make(map[job.ID][]*workerConn), pendingRuleDrops: make(map[string]int), outdated: make(chan struct{})}
	for _, sampled := range []*zerolog.Logger{&c.sampledLog, &c.sampledWorkerLog} {
		*sampled = log.Sample(&zerolog.BurstSampler{Burst: 1, Period: 10 * time.Second})
	}
	c.wake = sync.NewCond(&c.mu)
	c.markOutdated = sync.OnceFunc(func() { close(c.outdated) })
	c.ctx, c.stop = context.WithCancel(context.Background())
	size := maxPending
	if !b.Exclusive {
		size = maxJobs + maxPending // each job counts until it has ended
	}
	var err error
	c.submitter, err = gloom.NewSubmitter(append(b.Submitter, gloom.Window(size))...)
	if err != nil {
		c.stop()
		return nil, err
	}
	c.goroutines.Go(c.run)
	return c, nil
}

func (c *brokerConn) close() {
	c.stop()
	c.mu.Lock()
	workers := c.workers
	c.workers = nil
	c.wake.Broadcast()
	c.mu.Unlock()
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	for _, conns := range workers { // workers end before the submitter, so that the broker counts their runs as lost
		for _, conn := range conns {
			_ = conn.Stop(stopped)
		}
	}
	_ = c.submitter.Close()
	c.goroutines.Wait()
	c.broker.Close()
}

func (c *brokerConn) queueRequest(e brokerRequest) {
	c.mu.Lock()
	if c.runEnded {
		c.mu.Unlock()
		e.giveUp()
		return
	}
	c.queue = append(c.queue, e)
	c.pending++
	if e.change != nil {
		c.pendingChanges++
	}
	if e.rule != nil && e.rule.drop {
		c.pendingRuleDrops[e.rule.pattern]++
	}
	c.mu.Unlock()
	c.wake.Signal()
}

// backlog returns how many requests have not been sent, and how many changes the broker has not
// answered.
func (c *brokerConn) backlog() (pending, changes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending, c.pendingChanges
}

func (c *brokerConn) submit(s submission)     { c.queueRequest(brokerRequest{submit: &s, id: s.id}) }
func (c *brokerConn) cancel(id job.ID)        { c.queueRequest(brokerRequest{cancel: true, id: id}) }
func (c *brokerConn) setRule(r ruleChange)    { c.queueRequest(brokerRequest{rule: &r}) }
func (c *brokerConn) flush(onDone func(bool)) { c.queueRequest(brokerRequest{flushed: onDone}) }
func (c *brokerConn) change(id job.ID, groups []string, priority *int64, delay *time.Duration) {
	c.queueRequest(brokerRequest{change: &gloom.Change{Priority: priority, Groups: groups, Delay: delay}, id: id})
}

// run sends the requests in order until the connection is closed.
func (c *brokerConn) run() {
	var batch []brokerRequest
	for {
		c.mu.Lock()
		c.pending -= len(batch)
		for len(c.queue) == 0 && c.ctx.Err() == nil {
			c.wake.Wait()
		}
		clear(batch)
		batch, c.queue = c.queue, batch[:0]
		if cap(c.queue) > 1<<16 {
			c.queue = nil
		}
		c.runEnded = len(batch) == 0
		c.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for i := range batch {
			c.send(&batch[i])
		}
	}
}

// send sends a request. While the broker refuses the connection, it sends the request again,
// because nothing else would.
func (c *brokerConn) send(e *brokerRequest) {
	for c.ctx.Err() == nil {
		err := c.trySend(e)
		var refused *gloom.RefusedError
		switch ok := errors.As(err, &refused); {
		case err == nil:
			return
		case c.ctx.Err() != nil, errors.Is(err, gloom.ErrLost):
		case ok && refused.ID == "": // the connection is refused, not the job
			c.sleep(resendPause)
			continue
		case ok && refused.Code == gloom.ErrSizeError && e.submit != nil && e.submit.argument != nil:
			c.runCommand(func(m *machine) { m.onTooLong(e.id) })
		case e.submit != nil:
			c.onResult(e.submit, nil, err)
		default:
			c.log.Warn().Err(err).Stringer("job", e.id).Msg("the broker refuses a request")
		}
		if e.change != nil {
			c.recordChange()
		}
		break
	}
	e.giveUp()
}

// resendPause is the pause before the next attempt after the broker has refused the connection.
const resendPause = 500 * time.Millisecond

// sleep waits for d and reports whether the connection is still open.
func (c *brokerConn) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.ctx.Done():
		return false
	}
}

func (c *brokerConn) trySend(e *brokerRequest) (err error) {
	switch {
	case e.submit != nil:
		err = c.submitJob(e.submit)
	case e.cancel:
		err = c.submitter.CancelFunc(c.ctx, e.id.String(), func(error) {}) // an error only says that the job has already ended
	case e.change != nil:
		id, ofDelay := e.id, e.change.Delay != nil
		err = c.submitter.ChangeFunc(c.ctx, id.String(), *e.change, func(err error) {
			c.recordChange()
			if refused := (*gloom.RefusedError)(nil); errors.As(err, &refused) && refused.Code == gloom.ErrInvalidState {
				c.runCommand(func(m *machine) { m.onChangeRefused(id, ofDelay) })
			}
		})
	case e.rule != nil:
		err = c.applyRule(e.rule)
	case e.flushed != nil:
		if err = c.submitter.Ping(c.ctx); err == nil {
			e.flushed(true)
		}
	}
	return err
}

func (c *brokerConn) recordChange() {
	c.mu.Lock()
	c.pendingChanges--
	c.mu.Unlock()
}

// applyRule repeats the request until the broker has the rule, because without the rule, jobs that
// must not run would run. It gives up when a later request drops the rule: operators may drop a
// rule for which the broker has no room. Rules have a connection of their own, so a rule waits for
// the jobs' connection: if the broker has ended since, that connection is lost, and all rules are
// sent again.
func (c *brokerConn) applyRule(r *ruleChange) error {
	if r.drop {
		defer c.noteDropped(r.pattern)
	}
	if err := c.submitter.Ping(c.ctx); err != nil {
		return err
	}
	told := false
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		var err error
		if r.drop || !c.willDrop(r.pattern) {
			err = c.broker.Rules.set(c.ctx, r)
		}
		if err == nil || c.ctx.Err() != nil || r.drop && errors.Is(err, errRefused) {
			if told {
				c.setDenied(nil)
			}
			return err
		}
		told = true
		c.setDenied(fmt.Errorf("the broker does not take the rule of a constraint: %w", err))
		c.log.Warn().Err(err).Str("pattern", r.pattern).Msg("the broker does not take a rule; trying again")
		c.sleep(wait)
	}
}

// willDrop reports whether a queued request drops the rule of a pattern.
func (c *brokerConn) willDrop(pattern string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pendingRuleDrops[pattern] > 0
}

// noteDropped notes that a request to drop the rule of a pattern was carried out.
func (c *brokerConn) noteDropped(pattern string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pendingRuleDrops[pattern]--; c.pendingRuleDrops[pattern] == 0 {
		delete(c.pendingRuleDrops, pattern)
	}
}

func (c *brokerConn) setDenied(reason error) {
	c.mu.Lock()
	c.unreachableErr = reason
	c.mu.Unlock()
}

// latestRefusal returns why the broker has refused a job lately, "" if it has not.
func (c *brokerConn) latestRefusal() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.refusedAt) >= refusalPeriod {
		return ""
	}
	return c.refusal
}

// A refusal counts as recent for refusalPeriod, which is longer than refused jobs wait until they
// are submitted again.
const refusalPeriod = 10 * time.Second

// health returns nil if all requests reach the broker.
func (c *brokerConn) health() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unreachableErr != nil {
		return c.unreachableErr
	}
	return c.broker.Health()
}

func (c *brokerConn) submitJob(s *submission) error {
	j := gloom.Job{
		ID: s.id.String(), Type: s.typ, Priority: s.priority, Delay: s.delay, Age: s.age, Groups: s.groups,
		Retries: maxRetries, Backoff: gloom.NoBackoff, Detach: c.broker.Exclusive, Body: emptyBody,
	}
	if !c.broker.Exclusive {
		if s.argument != nil {
			j.Body = pack.AppendJSON(nil, s.argument)
		}
		j.Timeout, j.Backoff = s.timeout+brokerGrace, s.backoff
		if j.Retries = int(s.retries); j.Retries <= 0 {
			j.Retries = gloom.NoRetries
		}
	}
	return c.submitter.SubmitFunc(c.ctx, j, func(r gloom.Result, err error) { c.onResult(s, r.Body, err) })
}

// brokerGrace is added to the master's timeout of a run to get the broker's, so that the master
// ends the run first.
const brokerGrace = 5 * time.Second

// maxRetries is as large as the broker permits, since the master itself counts the retries of a
// job.
const maxRetries = 1000

var emptyBody = json.RawMessage("0")

// onResult is called when the broker accepts a detached job, ends a job that is not detached, or
// refuses a job. It ignores the end of jobs that were submitted under runningTypePrefix, because
// the master itself has ended these jobs.
func (c *brokerConn) onResult(s *submission, body []byte, err error) {
	var refused *gloom.RefusedError
	var failed *gloom.JobError
	own := strings.HasPrefix(s.typ, c.runningTypePrefix)
	switch {
	case errors.Is(err, gloom.ErrLost) || c.ctx.Err() != nil:
	case err == nil && (c.broker.Exclusive || own):
	case err == nil:
		result, fault := pack.FromJSON(body)
		o := &job.Outcome{Success: true, Result: result}
		if fault != nil {
			o = &job.Outcome{Reason: job.Other, Message: "the answer is malformed: " + fault.Error()}
		}
		c.runCommand(func(m *machine) { m.onBrokerAnswer(s.id, s.number, o, false) })
	case errors.As(err, &refused):
		if refused.Code == gloom.ErrForbidden { // the broker refuses such jobs until there is a new connection
			c.setDenied(err)
			c.broker.WantRights(c.ctx, s.typ, c.markOutdated)
		}
		if refused.Code != gloom.ErrIDExists {
			c.mu.Lock()
			c.refusal, c.refusedAt = refused.Reason, time.Now()
			c.mu.Unlock()
			c.sampledLog.Warn().Err(err).Msg("the broker refuses jobs such as this one; the master submits them again and again, and logs this at most every ten seconds")
		}
		c.runCommand(func(m *machine) { m.onNotAtBroker(s.id, s.number) })
	case errors.As(err, &failed) && failed.Code == gloom.ErrJobFailed && !own && failed.Reason == errFailed.Error():
		c.runCommand(func(m *machine) { m.onRetriesUsedUp(s.id, s.number, s.retried) })
	case failed != nil && failed.Code == gloom.ErrJobFailed && !own:
		o := &job.Outcome{Reason: job.Other, Message: failed.Reason, Retry: !failed.Final}
		if o.Retry {
			o.Retried = s.retried
		}
		if failed.Later {
			o.Delay = max(failed.Delay, time.Millisecond)
		}
		c.runCommand(func(m *machine) { m.onBrokerAnswer(s.id, s.number, o, failed.Lost) })
	default:
		c.runCommand(func(m *machine) { m.onNotAtBroker(s.id, s.number) })
	}
}

func (c *brokerConn) setServing(id job.ID, v serving) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workers == nil {
		return
	}
	conns, left := c.workers[id], v.prefetch
	for i := 0; i < len(conns) || left > 0; i++ {
		serves := gloom.Serving{Types: v.types, Except: v.exceptTypes, Prefetch: min(left, c.broker.MaxPrefetch)}
		left -= serves.Prefetch
		if i == len(conns) {
			p := &workerConn{Worker: c.newWorker(id, serves), serving: serves}
			conns = append(conns, p)
			c.goroutines.Go(func() { c.runWorker(id, p) })
			continue
		}
		conns[i].serving = serves
		if err := conns[i].Serve(serves); err != nil {
			c.log.Error().Err(err).Stringer("worker", id).Msg("a worker cannot serve")
		}
	}
	if len(conns) > 0 {
		c.workers[id] = conns
	}
}

func (c *brokerConn) newWorker(id job.ID, v gloom.Serving) *gloom.Worker {
	return &gloom.Worker{
		Types: v.Types, Except: v.Except, Prefetch: v.Prefetch,
		Options: c.broker.Worker(id.String()),
		Take: func(r *gloom.Run) {
			jobID, ok := job.ParseID(r.Job().ID)
			if !ok {
				r.Answer(nil, gloom.Fatal(errors.New("not a job of JQ")))
				return
			}
			c.runCommand(func(m *machine) {
				m.onHandout(id, jobID, strings.HasPrefix(r.Job().Type, c.runningTypePrefix), brokerRun{r})
			})
		},
	}
}

// runWorker runs a worker's connection until the worker leaves. If the broker refuses the
// connection, runWorker tries again.
func (c *brokerConn) runWorker(id job.ID, p *workerConn) {
	for w := p.Worker; w != nil; {
		err := w.Run(c.ctx)
		if err == nil || c.ctx.Err() != nil {
			return
		}
		c.sampledWorkerLog.Error().Err(err).Stringer("worker", id).Msg("the broker refuses the connection of a worker such as this one; the master tries again and again, and logs this at most every ten seconds")
		for w = nil; w == nil && c.sleep(resendPause); {
			c.mu.Lock()
			if p.removed || c.workers == nil {
				c.mu.Unlock()
				return
			}
			if p.serving.Prefetch > 0 {
				w = c.newWorker(id, p.serving)
				p.Worker = w
			}
			c.mu.Unlock()
		}
	}
}

// brokerRun implements handle for a run of the broker.
type brokerRun struct{ *gloom.Run }

func (r brokerRun) end()                        { r.Answer(nil, nil) }
func (r brokerRun) release(delay time.Duration) { r.Answer(nil, gloom.Release(delay)) }
func (r brokerRun) retry(delay time.Duration)   { r.Answer(nil, gloom.RetryAfter(errFailed, delay)) }

var errFailed = errors.New("the attempt has failed")

func (c *brokerConn) removeWorker(id job.ID) {
	c.mu.Lock()
	conns := c.workers[id]
	delete(c.workers, id)
	for _, conn := range conns {
		conn.removed = true
		w := conn.Worker
		c.goroutines.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
			defer cancel()
			_ = w.Stop(ctx)
			c.broker.Forget(id.String())
		})
	}
	c.mu.Unlock()
}
