// Package hub puts the core behind one lock: it gives the core commands, appends the effects to
// the outboxes of connections, and runs the core's timer.
//
// Frames are decoded before the lock is taken and written after it is released; in between, a
// step costs well under a microsecond. Every effect is appended under the lock, so the frames
// of a connection are sent in the order of steps, whatever caused them. The hub does not know
// sockets: a connection's owner (an event loop, or a call over HTTP) takes its output and writes
// it.
package hub

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gloom/broker"
	"gloom/broker/clock"
	"gloom/broker/container"
	"gloom/wire"
)

// Config is the configuration of the hub and of its core.
type Config struct {
	Core broker.Config
	// MaxOutbound bounds the bytes that wait for one connection. Above half of it, the
	// connection's submits are refused, progress for it is dropped, and it gets no more jobs.
	// If more than MaxOutbound bytes wait, the next frame closes the connection.
	MaxOutbound int
	// MaxUnread bounds the memory of the output that waits for all connections together, in
	// bytes; 0 means no limit. Above it, the connections with the most unread output are closed.
	MaxUnread int64
	// MaxInbound bounds the memory of unfinished frames of all connections together; 0 is no
	// limit. Above it, the connections that hold the most are closed.
	MaxInbound int64
	// MaxTLS bounds the memory that TLS takes for its connections; 0 means no limit.
	MaxTLS int64
	// Clock returns nanoseconds of a monotonic clock. By default it stands still while the
	// process is suspended.
	Clock func() int64
	// Fatal is called with a description when the core panics. It must not return; nil prints
	// the description and ends the process with status 70.
	Fatal func(what string)
}

// Hub is the lock around the core. All methods are safe for concurrent use.
type Hub struct {
	cfg      Config
	clock    func() int64
	ownClock *clock.Clock                    // the clock, if it is the hub's own
	readAll  atomic.Pointer[func(fn func())] // reads all sockets, then calls fn; set by SetReadAll

	mu           sync.Mutex
	core         *broker.Broker
	conns        []*Conn // by the slot of the peer
	closedConns  closedConns
	spareBuffers container.Buffers // for output
	// closingConns are the connections that close once their output is written.
	closingConns map[*Conn]struct{}
	// unreadBytes is the memory of unread output, by port, inputBytes is that of unfinished frames,
	// and tlsBytes is that of TLS. They may be used without the lock.
	unreadBytes          [2]atomic.Int64
	inputBytes, tlsBytes atomic.Int64
	timer                *time.Timer
	// timerAt is when the timer fires, or broker.Never. ticking reports that the timer has
	// fired and that everything that has arrived is being read before the core ticks.
	timerAt  int64
	ticking  bool
	isClosed bool
	// sinksToWake are the sinks that have got output since the lock was taken. connsToRemove are
	// the connections that must be removed from the core before the lock is released.
	sinksToWake   []*Sink
	connsToRemove []*Conn
	// currentCommand is the command that is being carried out. It is logged if the core panics.
	currentCommand *Command
	// fleet holds the peers that are other brokers; it is nil if the broker is in no fleet.
	fleet Fleet
	// outcomes counts the kept outcomes in all outboxes.
	outcomes int
	stats    Stats
}

// Stats holds counts since the start.
type Stats struct {
	FramesIn           uint64 // frames received, including invalid ones
	FramesOut          uint64
	Errors             [32]uint64 // error frames sent, by wire code
	UndeliveredAnswers uint64     // an upper bound on the number of answers that were not written because their connection closed
	DroppedProgress    uint64     // progress frames dropped because their submitter reads slowly
	Overflows          uint64     // connections closed because their peers did not read
	Ticks              uint64
}

// New returns a hub around an empty core.
func New(cfg Config) *Hub {
	cfg.Core.Credit = int64(cfg.MaxOutbound / 2)
	h := &Hub{cfg: cfg, clock: cfg.Clock, core: broker.New(cfg.Core), timerAt: broker.Never, spareBuffers: container.Buffers{MaxBytes: maxSpareBytes}, closingConns: map[*Conn]struct{}{}, closedConns: closedConns{byPeer: map[broker.Peer]ClosedConn{}}}
	if h.clock == nil {
		h.ownClock = clock.Start()
		h.clock = h.ownClock.Now
	}
	if h.cfg.Fatal == nil {
		h.cfg.Fatal = func(description string) {
			fmt.Fprintln(os.Stderr, description)
			os.Exit(70)
		}
	}
	h.timer = time.AfterFunc(time.Hour, h.tick)
	h.timer.Stop()
	return h
}

// Close stops the timer and the clock.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isClosed = true
	h.timer.Stop()
	if h.ownClock != nil {
		h.ownClock.Stop()
	}
}

// Now returns the time on the hub's clock.
func (h *Hub) Now() int64 { return h.clock() }

// Fleet lends jobs to other brokers and borrows theirs, as peers of the core. Its methods are
// called with the hub's lock held and must not call the hub.
type Fleet interface {
	// HandleEffect handles an effect for a peer of the fleet. It returns false for other peers.
	HandleEffect(e *broker.Effect) bool
	// Step is called after each step of the core, and Tick at the time that NextTick returns. Step
	// reports whether there is something to send.
	Step(now int64) (send bool)
	Tick(now int64)
	NextTick() int64
	// Send sends what Step or Tick has left to be sent. It is called without the lock, on any
	// goroutine, and must not wait for anything.
	Send()
	// Memory returns how much memory the fleet holds, in bytes. It is called without the lock.
	Memory() int64
}

// JoinFleet adds the fleet that join returns. The fleet gives core commands of its own, and
// passes their effects to apply.
func (h *Hub) JoinFleet(join func(core *broker.Broker, now int64, apply func([]broker.Effect)) Fleet) {
	h.Update(func(now int64) { h.fleet = join(h.core, now, h.appendEffects) })
}

// Do runs fn on the core under the lock and sends the effects that fn returns. It is for
// operators' requests: after a long call it sleeps (see clock.GiveWay). fn must be brief.
func (h *Hub) Do(fn func(core *broker.Broker, now int64) []broker.Effect) {
	var begun time.Time
	h.Update(func(now int64) { begun = time.Now(); h.appendEffects(fn(h.core, now)) })
	clock.GiveWay(begun)
}

// View runs fn under the lock, and sleeps like Do. fn must not change or retain any part of the core.
func (h *Hub) View(fn func(core *broker.Broker, now int64)) {
	h.mu.Lock()
	defer clock.GiveWay(time.Now())
	defer h.mu.Unlock()
	fn(h.core, h.clock())
}

// Stats returns the hub's counts.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stats
}

// wireCodes maps the codes of the core to those of the protocol.
var wireCodes = [...]wire.Code{
	broker.IDExists:      wire.IDExists,
	broker.UnknownID:     wire.UnknownID,
	broker.NotProcessing: wire.InvalidState,
	broker.Overloaded:    wire.Overloaded,
	broker.Draining:      wire.Draining,
	broker.JobFailed:     wire.JobFailed,
	broker.JobLost:       wire.JobFailed,
	broker.JobNoRetry:    wire.JobFailed,
	broker.JobRetryLater: wire.JobFailed,
	broker.Expired:       wire.Expired,
	broker.Cancelled:     wire.Cancelled,
	broker.TakenOver:     wire.TakenOver,
}

// causes maps codes of the core to the cause that a job_failed frame carries.
var causes = [len(wireCodes)]string{broker.JobLost: wire.CauseLost, broker.JobNoRetry: wire.CauseFinal, broker.JobRetryLater: wire.CauseLater}
