package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gloom/cmd/jobd/peer"
)

// Options configure a Master.
type Options struct {
	PingInterval  time.Duration // time between two pings to a worker
	PokeThrottle  time.Duration // minimum time between two rounds of polls
	WorkerTimeout time.Duration // maximum time for one worker's part of an answer
	MaxAnswer     int           // bytes of a worker's message, which may have the outputs of many jobs; default 128 MiB
	Clock         Clock         // default SystemClock
	Log           zerolog.Logger
	Metrics       prometheus.Registerer // nil for none
}

const (
	// listenGap is the pause between the answer to a worker's registration and the first request to
	// the worker. Earlier versions of jobd begin to listen only after the answer, and lose a
	// message that arrives together with it.
	listenGap = 50 * time.Millisecond
	// maxPolls is the maximum number of polls that one worker may leave unanswered.
	maxPolls = 16
	// minSilence is the minimum time that a worker that has answered pings must be silent before its
	// connection is closed.
	minSilence = 15 * time.Second
	// maxTargets limits the bytes that the targets of all workers take. Each target takes
	// targetBytes in addition to its name, mostly in a snapshot. So a snapshot has at most some
	// 130,000 targets, and making it takes less than the time for which it is valid.
	maxTargets  = 32 << 20
	targetBytes = 256
)

// Master holds the registered workers, and passes requests on to them.
type Master struct {
	options        Options
	clock          Clock
	log            zerolog.Logger
	metrics        metrics
	maxMissedPings int // unanswered pings after which a connection is closed

	snapshots snapshotState // the last snapshot

	mu             sync.Mutex           // guards the fields below, and the workers' fields
	workers        []*worker            // in the order of registration
	servedTargets  map[string]int       // by target: how often the workers' lists name it
	allTargetBytes int                  // bytes of workers' targets
	leftAt         map[string]time.Time // when targets lost their last worker, by target
	pokes          pokes
	stopRound      func() bool // stops the next round; nil if none is due
	stopPing       func() bool
	isClosed       bool
}

// worker is one registered connection.
type worker struct {
	conn  *peer.Conn
	ready chan struct{} // closed when the worker listens

	name              string
	targets           []string
	since             time.Time
	isListening       bool         // ready is closed
	isWithoutOverview *atomic.Bool // the worker does not know the request look: it is another implementation or an earlier version

	duePolls            nameSet // targets to be sent in a poll as soon as possible
	unansweredPolls     nameSet // targets of polls that were not answered in time, unless a later poll with them was answered
	unansweredPollCount int     // number of polls that are not answered yet
	hasAnswered         bool    // the worker has answered a request

	lastHeard    time.Time // when the worker had last sent something at the time of the last ping
	answersPings bool      // the worker has sent something after a ping at least once
	missedPings  int       // number of pings since the worker last sent something
}

// New returns a master; Close stops its timers.
func New(opt Options) *Master {
	if opt.Clock == nil {
		opt.Clock = SystemClock{}
	}
	if opt.MaxAnswer == 0 {
		opt.MaxAnswer = 128 << 20
	}
	m := &Master{options: opt, clock: opt.Clock, log: opt.Log, servedTargets: make(map[string]int), leftAt: make(map[string]time.Time), pokes: pokes{interval: opt.PokeThrottle}}
	m.maxMissedPings = max(3, int((minSilence+opt.PingInterval-1)/opt.PingInterval))
	m.metrics = newMetrics(opt.Metrics, m)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopPing = m.clock.AfterFunc(opt.PingInterval, m.pingWorkers)
	return m
}

// Close stops the timers. The server closes the connections.
func (m *Master) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isClosed = true
	m.stopPing()
	if m.stopRound != nil {
		m.stopRound()
		m.stopRound = nil
	}
}

// registerWorker registers a connection as a worker, or replaces its earlier registration. It returns a
// function that must be called after the answer was sent, or an error if all workers together
// would have too many targets.
func (m *Master) registerWorker(conn *peer.Conn, name string, targets []string) (onAnswered func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.workers, func(w *worker) bool { return w.conn == conn })
	newBytes := targetsSize(targets)
	if i >= 0 {
		newBytes -= targetsSize(m.workers[i].targets)
	}
	if newBytes > 0 && m.allTargetBytes+newBytes > maxTargets {
		return nil, fmt.Errorf("workers have too many targets (limit %d bytes for all workers; each target takes %d bytes and its name)", maxTargets, targetBytes)
	}
	conn.Trust(m.options.MaxAnswer)
	if i < 0 {
		i = len(m.workers)
		w := &worker{conn: conn, ready: make(chan struct{}), since: m.clock.Now(), isWithoutOverview: new(atomic.Bool), lastHeard: conn.LastHeard()}
		m.workers = append(m.workers, w)
		go func() {
			<-conn.Done()
			m.removeWorker(w)
		}()
	}
	w := m.workers[i]
	m.countServed(w.targets, -1)
	w.name, w.targets = name, targets
	m.countServed(targets, 1)
	for _, t := range targets {
		delete(m.leftAt, t)
	}
	m.log.Info().Stringer("peer", conn.Remote()).Str("name", name).Strs("targets", targets).Msg("worker registered")
	return func() { m.clock.AfterFunc(listenGap, func() { m.onListening(w) }) }, nil
}

// targetsSize returns how many bytes targets take.
func targetsSize(targets []string) (n int) {
	for _, t := range targets {
		n += targetBytes + len(t)
	}
	return n
}

// onListening marks a worker as ready for requests, and sends it the polls that were requested in
// the meantime.
func (m *Master) onListening(w *worker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !w.isListening {
		w.isListening = true
		close(w.ready)
	}
	if !slices.Contains(m.workers, w) {
		return // the worker has left, so remembered pokes wait for another one
	}
	if due := m.pokes.remembered.remove(w.targets); len(due) > 0 {
		m.log.Info().Stringer("peer", w.conn.Remote()).Strs("targets", due).Msg("polling for remembered pokes")
		m.pollWorker(w, due)
	}
	if len(w.duePolls.list) > 0 {
		m.pollWorker(w, nil)
	}
}

func (m *Master) removeWorker(w *worker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.workers = slices.DeleteFunc(m.workers, func(other *worker) bool { return other == w })
	m.countServed(w.targets, -1)
	m.log.Info().Stringer("peer", w.conn.Remote()).Str("name", w.name).Msg("worker is gone")
	for _, t := range w.targets {
		if len(m.leftAt) < maxLeft && !m.isServed(t) {
			m.leftAt[t] = m.clock.Now()
		}
	}
	m.repoke(append(w.duePolls.list, w.unansweredPolls.list...))
	w.duePolls = nameSet{}
}

// poke asks the workers that serve the targets to poll, now or in the next round.
func (m *Master) poke(targets []string) error {
	for _, t := range targets {
		if len(t) > maxName {
			return fmt.Errorf("name of a target is too long: %d bytes (limit %d)", len(t), maxName)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	wait, err := m.pokes.add(m.clock.Now(), targets, m.isServed)
	if err != nil {
		return err
	}
	m.metrics.pokes.Inc()
	m.scheduleRound(wait)
	return nil
}

// isServed reports whether a worker serves a target. Callers hold mu.
func (m *Master) isServed(target string) bool { return m.servedTargets[target] > 0 }

// countServed adds a worker's targets to the served targets if n is 1, and removes them if n is -1.
// Callers hold mu.
func (m *Master) countServed(targets []string, n int) {
	m.allTargetBytes += n * targetsSize(targets)
	for _, t := range targets {
		m.servedTargets[t] += n
		if m.servedTargets[t] == 0 {
			delete(m.servedTargets, t)
		}
	}
}

// repoke pokes targets again if their poll may not have arrived. Callers hold mu.
func (m *Master) repoke(targets []string) {
	if len(targets) == 0 {
		return
	}
	if wait, err := m.pokes.add(m.clock.Now(), targets, m.isServed); err == nil {
		m.scheduleRound(wait)
	}
}

// scheduleRound starts the next round after wait, unless one is already scheduled. Callers hold mu.
func (m *Master) scheduleRound(wait time.Duration) {
	switch {
	case m.stopRound != nil || m.isClosed:
	case wait == 0:
		m.pokeRound()
	default:
		m.stopRound = m.clock.AfterFunc(wait, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.stopRound = nil
			if !m.isClosed {
				m.pokeRound()
			}
		})
	}
}

// pokeRound sends the poked targets to all their workers, and remembers the targets without
// a worker. Callers hold mu.
func (m *Master) pokeRound() {
	targets := m.pokes.beginRound(m.clock.Now())
	asked, served := toSet(targets), make(map[string]bool)
	for _, w := range m.workers {
		due := intersect(w.targets, asked)
		for _, t := range due {
			served[t] = true
		}
		if len(due) > 0 {
			m.pollWorker(w, due)
		}
	}
	for _, t := range targets {
		if !served[t] {
			m.log.Debug().Str("target", t).Msg("a poked target has no worker; the poke is remembered")
			m.pokes.remembered.add(t)
		}
	}
}

// pollWorker asks a worker to poll as soon as it listens. While too many polls are unanswered, targets
// are collected for one poll. Callers hold mu.
func (m *Master) pollWorker(w *worker, targets []string) {
	w.duePolls.add(targets...)
	if !w.isListening || w.unansweredPollCount == maxPolls || len(w.duePolls.list) == 0 {
		return
	}
	due := w.duePolls.list
	w.duePolls = nameSet{}
	w.unansweredPollCount++
	go m.sendPoll(w, due, !w.hasAnswered)
}

// targetsArg is the data of a request about targets.
type targetsArg struct {
	Targets []string `json:"targets,omitempty"`
}

// sendPoll sends one poll. The first poll to a worker is repeated if it is not answered, because it
// may have arrived before the worker listened.
func (m *Master) sendPoll(w *worker, due []string, repeat bool) {
	log := m.log.With().Stringer("peer", w.conn.Remote()).Strs("targets", due).Logger()
	log.Debug().Msg("poll")
	m.metrics.polls.Inc()
	ctx, cancel := context.WithTimeout(context.Background(), m.options.WorkerTimeout)
	defer cancel()
	_, err := w.conn.Call(ctx, "poll", targetsArg{due})

	m.mu.Lock()
	defer m.mu.Unlock()
	w.unansweredPollCount--
	var refused *peer.RemoteError
	switch {
	case err == nil, errors.As(err, &refused):
		w.hasAnswered = true
		w.unansweredPolls.remove(due)
		if refused != nil {
			log.Warn().Err(err).Msg("worker refuses to poll")
		}
	case errors.Is(err, peer.ErrClosed), !slices.Contains(m.workers, w):
		m.repoke(due)
		return
	case repeat && !w.hasAnswered:
		w.hasAnswered = true // the poll is repeated only once
		w.duePolls.add(due...)
	default:
		log.Warn().Err(err).Msg("worker does not answer a poll")
		w.unansweredPolls.add(due...)
	}
	m.pollWorker(w, nil)
}

// pingWorkers pings all workers, and closes the connections of those that have stopped answering.
func (m *Master) pingWorkers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed {
		return
	}
	for _, w := range m.workers {
		lastHeard := w.conn.LastHeard()
		if lastHeard.After(w.lastHeard) {
			w.answersPings, w.missedPings = w.missedPings > 0 || w.answersPings, 0
		}
		w.lastHeard = lastHeard
		if w.missedPings++; w.answersPings && w.missedPings > m.maxMissedPings {
			m.log.Warn().Stringer("peer", w.conn.Remote()).Str("name", w.name).Int("pings", w.missedPings-1).
				Msg("worker has stopped answering pings; closing its connection")
			w.conn.Close()
			continue
		}
		w.conn.Ping()
	}
	m.stopPing = m.clock.AfterFunc(m.options.PingInterval, m.pingWorkers)
}
