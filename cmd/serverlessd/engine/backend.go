package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"
)

// backend is a store and the jobs that this daemon has taken from it.
type backend struct {
	engine *Engine
	store  store.Store
	lane   string // the name of the store's lane in the journal
	log    zerolog.Logger

	mu              sync.Mutex       // guards the following
	sysid           string           // "" while none is reserved
	oldSysids       []string         // sysids of an earlier process that are still to be released
	miscounted      int64            // the difference between the store's counts and its jobs
	miscountedSeen  map[string]int   // how many sweeps have found the counts of a type wrong
	clockAhead      time.Duration    // see store.SweepResult
	droppedSegments []string         // segments whose read points the store can drop
	renewedAt       time.Duration    // when the last call that reserved or renewed the sysid began, by boot.Since: locks expire while this host is suspended, too
	lostAt          time.Duration    // when a sysid was lost last, by boot.Since
	awayReason      error            // why the store is away; nil: the store answers
	answersSince    time.Time        // when it became nil
	logged          string           // what the log last said of the store: logAway, logAvailable, or "": nothing
	failures        map[string]error // what fails although the store answers, and why
	reachableCtx    context.Context
	markAway        context.CancelFunc // ends reachableCtx
	runsInHand      map[job.ID]*run
	queue           []*queuedEnding
	endingsQueued   chan struct{} // signals that the queue is not empty
	sweepWake       chan struct{} // signals sweep that some locks can be freed at once
	reachableAgain  chan struct{} // signals that the store answers again
	ingestWake      chan struct{} // signals ingest that a request waits until the journal's jobs are stored

	leaving    chan struct{} // closed when keepSysid must release the sysid
	keeperDone chan struct{} // closed when keepSysid has returned
	// transit is held while jobs go from the journal to the store, and while the store's jobs are
	// counted.
	transit *semaphore.Weighted

	dueTypes  []store.DueType // the store's last answer, which pick uses
	askedAt   time.Time       // when the store was last asked; zero: pick must ask again
	nextDueAt time.Time       // when the next deferred job is due; zero: not known
}

func newBackend(e *Engine, s store.Store) *backend {
	b := &backend{
		engine: e, store: s, lane: laneOf(e.cfg.Dir, s.Name()), log: e.log.With().Str("store", s.Name()).Logger(),
		runsInHand: make(map[job.ID]*run), failures: make(map[string]error), endingsQueued: make(chan struct{}, 1), sweepWake: make(chan struct{}, 1), reachableAgain: make(chan struct{}, 1),
		ingestWake: make(chan struct{}, 1), awayReason: store.ErrAway,
		leaving: make(chan struct{}), keeperDone: make(chan struct{}), transit: semaphore.NewWeighted(1),
	}
	b.reachableCtx, b.markAway = context.WithCancel(e.ctx)
	b.markAway()
	return b
}

// noteCall records the result of a call that one of the loops has made to the store, and returns err.
func (b *backend) noteCall(action string, err error) error {
	switch {
	case err != nil && b.engine.ctx.Err() != nil, errors.Is(err, store.ErrTaken):
	case errors.Is(err, store.ErrAway) && !errors.Is(err, store.ErrUnwell):
		b.noteAnswer(err)
	default: // the store answers, even if it refuses the call
		b.setFailure(action, err)
		b.noteAnswer(nil)
	}
	return err
}

// setFailure records why an action fails although the store answers, or with nil that it no longer
// fails, and logs each change once.
func (b *backend) setFailure(action string, err error) {
	b.mu.Lock()
	oldErr := b.failures[action]
	if b.failures[action] = err; err == nil {
		delete(b.failures, action)
	}
	b.mu.Unlock()
	switch {
	case (oldErr == nil) == (err == nil):
	case err != nil:
		b.log.Error().Err(err).Msg("cannot " + action + "; trying again")
	default:
		b.log.Info().Msg("recovered: " + action)
	}
}

// These are the log's messages about a store.
const (
	logAway      = "the store is away; jobs are waiting"
	logAvailable = "the store is available"
)

// A store that was away must have answered for steadyTime before the log says that it is available.
// So a store that answers only now and then stays away in the log.
const steadyTime = time.Second

// noteAnswer records that the store answers (err is nil), or why it does not.
func (b *backend) noteAnswer(err error) {
	b.mu.Lock()
	oldErr := b.awayReason
	if b.awayReason = err; oldErr == nil && err != nil {
		b.markAway()
	} else if oldErr != nil && err == nil {
		b.reachableCtx, b.markAway = context.WithCancel(b.engine.ctx)
		b.answersSince = time.Now()
	}
	message := b.logged
	if err != nil {
		message = logAway
	} else if b.logged == "" || time.Since(b.answersSince) >= steadyTime {
		message = logAvailable
	}
	isNews := message != b.logged
	b.logged = message
	b.mu.Unlock()
	switch {
	case isNews && err != nil:
		b.log.Warn().Err(err).Msg(message)
	case isNews:
		b.log.Info().Msg(message)
	}
	if oldErr != nil && err == nil {
		signal(b.reachableAgain)
		b.wakePick()
	}
}

// noteRequest is like noteCall, but for a call on behalf of a request. If the request is cancelled
// or its call takes too long, this says nothing about the store. The caller must repeat a call that
// the store refuses. If the request got no turn because the store is away, noteRequest returns why
// the store is away.
func (b *backend) noteRequest(ctx context.Context, err error) error {
	if errors.Is(err, store.ErrBusy) {
		return cmp.Or(b.checkReachable(), err)
	}
	if err == nil || errors.Is(err, store.ErrAway) && !errors.Is(err, store.ErrUnwell) &&
		ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) && b.engine.ctx.Err() == nil {
		b.noteAnswer(err)
	}
	return err
}

// health returns why the store is away or what it refuses, or nil.
func (b *backend) health() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awayReason != nil || len(b.failures) == 0 {
		return b.awayReason
	}
	first := slices.Min(slices.Collect(maps.Keys(b.failures)))
	return fmt.Errorf("cannot %s: %w", first, b.failures[first])
}

// checkReachable returns why the store cannot be reached, or nil.
func (b *backend) checkReachable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.awayReason
}

// reachableContext returns a context that ends when the store goes away.
func (b *backend) reachableContext() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reachableCtx
}

// wakePick makes pick ask this store for due jobs again.
func (b *backend) wakePick() {
	b.mu.Lock()
	b.askedAt = time.Time{}
	b.mu.Unlock()
	b.engine.wakePick()
}

// usableSysid returns the sysid under which this daemon takes jobs, or "" while it may take none.
func (b *backend) usableSysid() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awayReason != nil || !b.holds(b.sysid) {
		return ""
	}
	return b.sysid
}

// holds reports whether the locks of a sysid have not expired. The caller holds mu.
func (b *backend) holds(sysid string) bool {
	return b.sysid == sysid && boot.Since()-b.renewedAt < b.engine.cfg.LockTTL
}

// keepSysid reserves a sysid, and renews the sysid and the locks of the jobs in hand until the
// daemon leaves.
func (b *backend) keepSysid() {
	defer close(b.keeperDone)
	pause := b.engine.cfg.LockTTL / 3
	shortPause := min(pause, time.Second)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for due := time.Now(); ; {
		select {
		case <-b.engine.ctx.Done():
			return
		case <-b.leaving:
			b.release()
			return
		case now := <-timer.C:
			// If the store was away at the last call, it is tried again soon. After a suspend of this
			// host, the sysid may have expired.
			if b.checkReachable() != nil || !now.Before(due) || b.renewableFor() <= 0 {
				if due = now.Add(shortPause); b.updateSysids() {
					due = now.Add(pause)
				}
			}
			timer.Reset(min(shortPause, time.Until(due), max(b.renewableFor(), time.Millisecond)))
		}
	}
}

// updateSysids reserves, renews and releases sysids as needed. It returns false if it must be
// called again soon.
func (b *backend) updateSysids() bool {
	if b.currentSysid() == "" {
		return b.lostRunsEnded() && b.awaitOldRuns() && b.reserve() && b.freeOldSysids() // no job is taken before reserve is called
	}
	return b.renew() && b.freeOldSysids()
}

// lostRunsTimeout bounds the wait for the ends of runs whose locks were lost, while the store answers.
const lostRunsTimeout = 10 * time.Second

// lostRunsEnded reports whether the ends of all runs are written. After a sysid was lost, this daemon
// would otherwise take jobs again whose runs have ended.
func (b *backend) lostRunsEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	waited := boot.Since() - b.lostAt
	switch {
	case len(b.runsInHand) == 0:
		return true
	case b.awayReason == nil:
		waited = min(waited, time.Since(b.answersSince))
	case len(b.queue) > 0: // write notices when the store answers again
		return false
	}
	return waited > lostRunsTimeout
}

func (b *backend) currentSysid() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sysid
}

// reserve reserves the daemon's sysid in the store.
func (b *backend) reserve() bool {
	start := boot.Since()
	sysid := b.engine.ids.Sysid()
	err := b.noteCall("reserve a sysid", b.store.Reserve(b.engine.ctx, sysid, b.engine.cfg.LockTTL))
	switch {
	case errors.Is(err, store.ErrTaken):
		b.engine.newSysid(sysid)
		return false
	case err != nil:
		return false
	}
	b.mu.Lock()
	b.sysid, b.renewedAt = sysid, start
	b.mu.Unlock()
	b.engine.setGuardDeadline()
	b.log.Info().Str("sysid", sysid).Msg("taking jobs")
	b.wakePick()
	return true
}

// freeOldSysids frees the jobs that earlier sysids of this directory hold.
func (b *backend) freeOldSysids() bool {
	for {
		b.mu.Lock()
		old := b.oldSysids
		b.mu.Unlock()
		if len(old) == 0 {
			return true
		}
		if b.noteCall("free the jobs of an earlier daemon", b.store.Leave(b.engine.ctx, old[0])) != nil {
			return false
		}
		b.mu.Lock()
		b.oldSysids = old[1:]
		b.mu.Unlock()
		signal(b.sweepWake)
	}
}

// release removes the daemon's sysid from the store.
func (b *backend) release() {
	sysid := b.currentSysid()
	if sysid == "" {
		return
	}
	if err := b.store.Leave(b.engine.ctx, sysid); err != nil {
		b.log.Warn().Err(err).Msg("the sysid could not be released")
		return
	}
	b.mu.Lock()
	b.sysid = ""
	b.mu.Unlock()
}

const actionRenew = "renew locks"

// A sysid that cannot be renewed is given up renewMargin before it expires. So the runs of its
// store end before the guard would end the runs of all stores.
const renewMargin = time.Second

// renewableFor returns how long the sysid can still be renewed, or a day if none is reserved.
func (b *backend) renewableFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sysid == "" {
		return 24 * time.Hour
	}
	return b.renewedAt + b.engine.cfg.LockTTL - min(renewMargin, b.engine.cfg.LockTTL/4) - boot.Since()
}

// guardDeadline returns the time, by boot.Since, at which the first of the stores' sysids expires.
// Until then the runs here may continue. It returns zero if no sysid is reserved.
func (e *Engine) guardDeadline() (first time.Duration) {
	for _, b := range e.backends {
		b.mu.Lock()
		at := b.renewedAt + e.cfg.LockTTL
		if b.sysid != "" && (first == 0 || at < first) {
			first = at
		}
		b.mu.Unlock()
	}
	return first
}

// setGuardDeadline tells the guard when it must end the runs here: at that time this process may be
// stopped or hang.
func (e *Engine) setGuardDeadline() {
	if limit := e.guardDeadline(); limit != 0 {
		e.guard.SetDeadline(time.Now().Add(limit - boot.Since()))
	}
}

// renew extends the sysid's lease and the locks of the jobs in hand. A daemon that could not renew
// them for a whole ttl has lost them.
func (b *backend) renew() bool {
	b.mu.Lock()
	sysid := b.sysid
	runs := make([]store.Run, 0, len(b.runsInHand))
	for _, r := range b.runsInHand {
		if r.sysid == sysid && !r.lockLost {
			runs = append(runs, r.Run)
		}
	}
	b.mu.Unlock()
	timeLeft := b.renewableFor()
	if timeLeft <= 0 {
		b.loseSysid(sysid)
		return false
	}
	ctx, cancel := context.WithTimeout(b.engine.ctx, min(b.engine.cfg.LockTTL/3, timeLeft))
	defer cancel()
	start, renewedAt := time.Now(), boot.Since()
	lostRuns, err := b.store.Renew(ctx, sysid, b.engine.cfg.LockTTL, runs)
	b.engine.metrics.observeCall("renew", start)
	if errors.Is(err, store.ErrUnknown) {
		b.noteCall(actionRenew, nil)
		b.loseSysid(sysid)
		return false
	}
	if b.noteCall(actionRenew, err) != nil {
		return false
	}
	b.mu.Lock()
	b.renewedAt = renewedAt
	takenCount := 0
	for _, l := range lostRuns {
		// A run that has ended meanwhile has no lock any more.
		if r := b.runsInHand[l.ID]; r != nil && r.Run == l && !r.endQueued {
			r.lockLost = true
			takenCount++
		}
	}
	b.mu.Unlock()
	b.engine.setGuardDeadline()
	if takenCount > 0 {
		b.log.Warn().Int("jobs", takenCount).Msg("locks were lost: others have taken these jobs")
	}
	return true
}

// lastAnswersWait is less than renewMargin for the shortest --lock-ttl.
const lastAnswersWait = 100 * time.Millisecond

// loseSysid gives up a sysid because other daemons may have taken its jobs.
func (b *backend) loseSysid(sysid string) {
	b.engine.metrics.sysidsLost.Inc()
	b.mu.Lock()
	b.sysid, b.lostAt = "", boot.Since()
	b.mu.Unlock()
	b.engine.sleep(lastAnswersWait) // after a stop of this daemon, the answers of its handlers wait in sockets
	jobs := 0
	b.mu.Lock()
	for _, r := range b.runsInHand {
		if r.sysid == sysid {
			jobs++
			r.batch.cancel(errLocksLost)
		}
	}
	b.mu.Unlock()
	if lossLog := b.log.With().Str("sysid", sysid).Stringer("lock_ttl", b.engine.cfg.LockTTL).Logger(); jobs > 0 {
		lossLog.Error().Int("jobs", jobs).Msg("locks could not be renewed in time: jobs that this daemon has taken are stopped, and run again unless they have ended")
	} else {
		lossLog.Warn().Msg("the sysid could not be renewed in time; this daemon had taken no jobs")
	}
	b.engine.setGuardDeadline()
	b.engine.newSysid(sysid)
}

// sweep does the store's maintenance at intervals, until the engine ends.
func (b *backend) sweep() {
	timer := time.NewTicker(b.engine.cfg.Sweep)
	defer timer.Stop()
	for {
		select {
		case <-b.engine.ctx.Done():
			return
		case <-timer.C:
		case <-b.sweepWake:
		}
		b.engine.journal.FreeDisk() // the jobs and a store on the same disk need room, too
		for b.usableSysid() != "" && b.sweepOnce() {
		}
	}
}

// sweepOnce does a slice of the maintenance and reports whether more remains.
func (b *backend) sweepOnce() (more bool) {
	// The first sweep may come before the handlers have been read.
	if err := b.engine.handlers.refresh(b); err != nil && !errors.Is(err, store.ErrUnwell) {
		return false
	}
	b.mu.Lock()
	dropped := b.droppedSegments
	b.droppedSegments = nil
	b.mu.Unlock()
	swept, err := b.store.Sweep(b.engine.ctx, store.SweepOptions{
		RetryFor: b.engine.cfg.RetryFor, KeepDone: b.engine.cfg.KeepDone, KeepUnrun: b.engine.cfg.KeepUnrun, TTL: b.engine.cfg.LockTTL,
		Handled: b.engine.handlers.handledFunc(), Next: b.engine.handlers.nextFailed, NextID: func() job.ID { return b.engine.ids.Next(1) },
		Segments: dropped, Limit: 1000,
	})
	b.engine.noteSweep(&swept)
	if b.noteCall("sweep", err) != nil {
		b.mu.Lock()
		b.droppedSegments = append(b.droppedSegments, dropped...)
		b.mu.Unlock()
		return false
	}
	b.mu.Lock()
	b.miscounted = swept.Imbalance
	miscountedNews := b.findMiscountedNews(&swept)
	clockWasSet := (swept.Ahead - b.clockAhead).Abs() > time.Second
	b.clockAhead = swept.Ahead
	b.mu.Unlock()
	if clockWasSet {
		b.log.Warn().Stringer("ahead", swept.Ahead).Msg("the host's clock was set; the store's clock continues as before, until all daemons of this store have stopped")
	}
	if len(miscountedNews) > 0 {
		b.log.Error().Strs("types", miscountedNews).Msg("the store's counts of jobs are wrong")
	}
	if swept.CorrectedTimes > 0 {
		b.log.Warn().Int("jobs", swept.CorrectedTimes).Msg("the store's clock was ahead when the due times of these jobs were set; they wait no longer than requested")
	}
	if swept.Freed+swept.Abandoned+swept.CorrectedTimes > 0 {
		b.wakePick()
	}
	return swept.More
}

// findMiscountedNews returns the types of wrong counts that the log should tell: each at first, and ever
// fewer times after that, because the counts stay wrong. The caller holds b.mu.
func (b *backend) findMiscountedNews(s *store.SweepResult) (news []string) {
	if s.Imbalance == 0 || b.miscountedSeen == nil {
		b.miscountedSeen = make(map[string]int)
	}
	for _, typ := range s.Miscounted {
		b.miscountedSeen[typ]++
		if n := b.miscountedSeen[typ]; n&(n-1) == 0 {
			news = append(news, typ)
		}
	}
	return news
}

// noteSweep counts and logs what a sweep did.
func (e *Engine) noteSweep(s *store.SweepResult) {
	e.metrics.observeSweep(s)
	for i := range s.Ended {
		e.events.logSwept(&s.Ended[i])
	}
	e.events.logFollowed(s.FollowJobs)
}

// dropSegment makes all stores drop their read point of a segment that was removed.
func (e *Engine) dropSegment(name string) {
	for _, b := range e.backends {
		b.mu.Lock()
		b.droppedSegments = append(b.droppedSegments, name)
		b.mu.Unlock()
	}
}
