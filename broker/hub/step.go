package hub

import (
	"fmt"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"gloom/broker"
	"gloom/wire"
)

// Command is one decoded frame of a peer: a request for the core, or a reply that needs no
// core.
type Command struct {
	From *Conn
	Req  wire.Request
	// StableBody reports that nobody writes to the memory of the body again.
	StableBody bool
	// Refusal, if set, is sent as the reply, and the core is not asked.
	Refusal *wire.Error
	// Reply, if set, is a whole frame that is sent as the reply, and the core is not asked.
	Reply []byte
	// Close closes the connection after the reply.
	Close bool
	// Owner, unless it is 0, becomes the submitter's owner: only a submitter with the same
	// owner may attach to its kept jobs. Initially a submitter has no owner.
	Owner uint64
	// Ignore reports that there is nothing to do and no reply, as for a pong.
	Ignore bool
	// Covers reports whether the peer's token covers a type; nil covers all types. Tokens that
	// cover the same types have the same Scope.
	Covers func(typ []byte) bool
	Scope  uint64
}

func (m *Command) String() string {
	r := m.Req
	lengths := fmt.Sprintf("%d bytes of body, %d of a reason", len(r.Body), len(r.Reason))
	// Bodies, headers and tokens must not appear in logs.
	r.Body, r.Headers, r.Reason, r.Token, r.Client = nil, nil, nil, nil, nil
	return fmt.Sprintf("verb %d, id %q, type %q, %s: %+v", r.Verb, r.ID, r.Type, lengths, r)
}

// Step carries out commands of the sink's connections, in order, in one step. If outs is not nil,
// the output of all connections of the sink is appended there.
func (s *Sink) Step(cmds []Command, outs *[]Output) {
	h := s.hub
	h.step(s, outs, func(now int64) {
		for i := range cmds {
			if id := cmds[i].Req.ID; id != nil && len(cmds) > 1 {
				h.core.PrefetchID(id)
			}
		}
		for i := range cmds {
			h.currentCommand = &cmds[i]
			h.executeCommand(now, cmds[i].From, &cmds[i])
		}
		h.currentCommand = nil
	})
}

// update lets f change the core and its connections. It is used for everything except peers'
// commands.
func (h *Hub) update(f func(now int64)) { h.step(nil, nil, f) }

// step carries out f and its immediate consequences under the lock. The core changes only here.
// own is the sink that calls it, or nil. If outs is not nil, the output of own is moved
// there.
func (h *Hub) step(own *Sink, outs *[]Output, f func(now int64)) {
	defer h.exitOnPanic()
	now := h.clock()
	h.mu.Lock()
	f(now)
	send := h.fleet != nil && h.fleet.Step(h.clock())
	for h.shedUnread(); len(h.connsToRemove) > 0; h.shedUnread() {
		c := h.connsToRemove[len(h.connsToRemove)-1]
		h.connsToRemove = h.connsToRemove[:len(h.connsToRemove)-1]
		h.removePeer(c, "")
	}
	if outs != nil {
		*outs = own.take(now, *outs)
	}
	h.unlock(own)
	if send && (own == nil || outs != nil) { // nothing is sent in the middle of a round
		h.fleet.Send()
	}
}

// exitOnPanic ends the process when the core panics, because half-changed state cannot be
// trusted.
func (h *Hub) exitOnPanic() {
	e := recover()
	if e == nil {
		return
	}
	what := "a timer or an operator's request"
	if h.currentCommand != nil {
		what = h.currentCommand.String()
	}
	h.cfg.Fatal(fmt.Sprintf("the core panicked on %s: %v\n%s", what, e, debug.Stack()))
	panic(e)
}

// unlock arms the timer, releases the lock and wakes the owners with new output, except own.
func (h *Hub) unlock(own *Sink) {
	next := h.core.NextTick()
	if h.fleet != nil {
		next = min(next, h.fleet.NextTick())
	}
	if next < h.timerAt {
		h.armTimer(next)
	}
	var few [4]*Sink
	wake := few[:0]
	for _, s := range h.sinksToWake {
		if s == own {
			s.takeClaimed.Store(false)
		} else {
			wake = append(wake, s)
		}
	}
	h.sinksToWake = h.sinksToWake[:0]
	h.mu.Unlock()
	for _, s := range wake {
		if own != nil || s.owner.Write == nil || !s.owner.Write() {
			s.owner.Wake()
		}
	}
}

func (h *Hub) executeCommand(now int64, c *Conn, m *Command) {
	h.stats.FramesIn++
	if m.Owner != 0 {
		h.core.SetOwner(c.Peer, m.Owner)
	}
	switch {
	case m.Ignore:
	case m.Close:
		h.closeWith(c, m.Refusal)
	case m.Refusal != nil:
		h.refuse(c, m.Refusal)
	case m.Reply != nil:
		h.appendBytes(c, m.Reply)
	default:
		h.callCore(now, c, m)
	}
}

// callCore gives a command to the core.
func (h *Hub) callCore(now int64, c *Conn, m *Command) {
	r := &m.Req
	var fx []broker.Effect
	switch r.Verb {
	case wire.Submit:
		if c.state == stateAborted {
			return
		}
		if c.isSlow() {
			h.refuse(c, &wire.Error{
				Code: wire.Overloaded, ID: r.ID,
				Reason: fmt.Sprintf("%d bytes wait for this connection to read them; from %d on (half of max-outbound) it may not submit", c.outbox.waitingBytes(), h.cfg.MaxOutbound/2),
			})
			return
		}
		s := broker.Submission{
			ID: r.ID, Type: r.Type, Body: r.Body, StableBody: m.StableBody, Priority: r.Priority,
			Delay: millisToDuration(r.DelayMS), Timeout: millisToDuration(r.TimeoutMS), Backoff: millisToDuration(r.BackoffMS), Expires: millisToDuration(r.ExpiresMS),
			Retries: int32(r.Retries), Detach: r.Detach, NoAck: r.NoAck, Progress: r.WantProgress,
			Keep: millisToDuration(r.KeepMS), Age: millisToDuration(r.AgeMS), Headers: r.Headers, Groups: r.Groups,
		}
		if h.outcomes > 0 {
			h.settleReusedID(now, r.ID)
		}
		fx = h.core.Submit(now, c.Peer, &s)
	case wire.Respond:
		fx = h.core.Respond(now, c.Peer, r.ID, r.Body, m.StableBody)
	case wire.Join:
		fx = h.core.Join(now, c.Peer, &broker.JoinRequest{
			Type: r.Type, Types: r.Types, Except: r.Except, Allows: m.Covers, Scope: m.Scope,
			Prefetch: r.Prefetch, WantsNotices: r.WantCancels, WantsHeaders: r.WantHeaders,
		})
		c.NamesJobs = c.NamesJobs || r.Prefetch > 0 && len(fx) > 0 && fx[0].Op == broker.OpOK
	case wire.Cancel, wire.Change:
		if typ := h.core.TypeOf(c.Peer, r.ID); m.Covers != nil && typ != nil && !m.Covers(typ) {
			h.refuse(c, &wire.Error{Code: wire.Forbidden, ID: r.ID, Reason: fmt.Sprintf("this token does not cover the job's type %.64q", wire.Value(typ))})
			return
		}
		if r.Verb == wire.Cancel {
			fx = h.core.Cancel(now, c.Peer, r.ID)
			break
		}
		fx = h.core.Change(now, c.Peer, &broker.ChangeRequest{
			ID: r.ID, Priority: r.Priority, SetPriority: r.HasPriority, Groups: r.Groups, SetGroups: r.HasGroups, Delay: millisToDuration(r.AfterMS),
		})
	case wire.Attach:
		fx = h.core.Attach(now, c.Peer, r.ID, r.WantProgress, h.cfg.MaxOutbound-c.outbox.waitingBytes())
	case wire.Fail:
		f := broker.Failure{ID: r.ID, Reason: wire.DefaultFailReason, NoRetry: r.NoRetry, Delay: -1}
		if r.Reason != nil {
			f.Reason = Truncate(wire.Value(r.Reason), maxReason)
		}
		if r.AfterMS >= 0 {
			f.Delay = int64(millisToDuration(r.AfterMS))
		}
		fx = h.core.Fail(now, c.Peer, &f)
	case wire.Release:
		fx = h.core.Release(now, c.Peer, &broker.ReleaseRequest{ID: r.ID, Delay: millisToDuration(max(r.AfterMS, 0))})
	case wire.Progress:
		fx = h.core.Progress(now, c.Peer, r.ID, r.Body, m.StableBody)
	case wire.Leave:
		fx = h.core.Leave(now, c.Peer)
	case wire.Ping:
		h.appendFrame(c, 0, func(o *outbox) { o.buf = wire.AppendOK(o.buf) })
		return
	default:
		panic(fmt.Sprintf("verb %d is not for the core", r.Verb))
	}
	h.appendEffects(fx)
}

// maxReason is how many bytes of a worker's reason are kept.
const maxReason = 16 << 10

// Truncate cuts a text to at most limit bytes, between characters, and appends "…" to a text
// that it has cut.
func Truncate[T string | []byte](text T, limit int) string {
	if len(text) <= limit {
		return string(text)
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return string(text[:limit]) + "…"
}

func millisToDuration(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
