package hub

import (
	"fmt"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"gloom/broker"
	"gloom/wire"
)

// Command is one decoded frame of a peer: a request for the core, or a reply that
// can be sent without asking the core.
type Command struct {
	From *Conn
	Req  wire.Request
	// StableBody says that nobody writes to the memory of the body again.
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
	// Ignore says that there is nothing to do and no reply, as for a pong.
	Ignore bool
	// Covers reports whether the peer's token covers a type; nil covers all types. Tokens that
	// cover the same types have the same CoversID.
	Covers   func(typ []byte) bool
	CoversID uint64
}

func (cmd *Command) String() string {
	req := cmd.Req
	lengths := fmt.Sprintf("%d bytes of body, %d of a reason", len(req.Body), len(req.Reason))
	// Bodies, headers and tokens must not appear in logs.
	req.Body, req.Headers, req.Reason, req.Token, req.Client = nil, nil, nil, nil, nil
	return fmt.Sprintf("verb %d, id %q, type %q, %s: %+v", req.Verb, req.ID, req.Type, lengths, req)
}

// Step carries out the given commands of the sink's connections, in order, in one step. If outputs is
// not nil, the output of all connections of the sink is appended there.
func (s *Sink) Step(cmds []Command, outputs *[]Output) {
	h := s.hub
	h.step(s, outputs, func(now int64) {
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

// Update lets f change the core and its connections. It is used for everything except peers'
// commands. Unlike Do it never sleeps, so an event loop may call it.
func (h *Hub) Update(f func(now int64)) { h.step(nil, nil, f) }

// step carries out f and its immediate consequences under the lock. The core changes only here.
// caller is the sink that calls it, or nil. If outputs is not nil, the output of caller is moved
// there.
func (h *Hub) step(caller *Sink, outputs *[]Output, f func(now int64)) {
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
	if outputs != nil {
		*outputs = caller.collectOutputs(now, *outputs)
	}
	h.unlock(caller)
	if send && (caller == nil || outputs != nil) { // nothing is sent in the middle of a round
		h.fleet.Send()
	}
}

// exitOnPanic ends the process when the core panics: half-changed state cannot be trusted.
func (h *Hub) exitOnPanic() {
	e := recover()
	if e == nil {
		return
	}
	cause := "a timer or an operator's request"
	if h.currentCommand != nil {
		cause = h.currentCommand.String()
	}
	h.cfg.Fatal(fmt.Sprintf("the core panicked on %s: %v\n%s", cause, e, debug.Stack()))
	panic(e)
}

// unlock arms the timer, releases the lock and wakes the owners with new output, except that of caller.
func (h *Hub) unlock(caller *Sink) {
	next := h.core.NextTick()
	if h.fleet != nil {
		next = min(next, h.fleet.NextTick())
	}
	if next < h.timerAt {
		h.armTimer(next)
	}
	var wakeArray [4]*Sink
	wake := wakeArray[:0]
	for _, s := range h.sinksToWake {
		if s == caller {
			s.takeClaimed.Store(false)
		} else {
			wake = append(wake, s)
		}
	}
	h.sinksToWake = h.sinksToWake[:0]
	h.mu.Unlock()
	for _, s := range wake {
		if caller != nil || s.owner.Write == nil || !s.owner.Write() {
			s.owner.Wake()
		}
	}
}

func (h *Hub) executeCommand(now int64, c *Conn, cmd *Command) {
	h.stats.FramesIn++
	if cmd.Owner != 0 {
		h.core.SetOwner(c.Peer, cmd.Owner)
	}
	switch {
	case cmd.Ignore:
	case cmd.Close:
		h.closeWith(c, cmd.Refusal)
	case cmd.Refusal != nil:
		h.refuse(c, cmd.Refusal)
	case cmd.Reply != nil:
		h.appendBytes(c, cmd.Reply)
	default:
		h.callCore(now, c, cmd)
	}
}

// callCore gives a command to the core.
func (h *Hub) callCore(now int64, c *Conn, cmd *Command) {
	req := &cmd.Req
	var effects []broker.Effect
	switch req.Verb {
	case wire.Submit:
		if c.state == stateAborted {
			return
		}
		if c.isSlow() {
			h.refuse(c, &wire.Error{
				Code: wire.Overloaded, ID: req.ID,
				Reason: fmt.Sprintf("%d bytes wait for this client to read; above %d (half of --max-outbound) it cannot submit", c.outbox.waitingBytes(), h.cfg.MaxOutbound/2),
			})
			return
		}
		submission := broker.Submission{
			ID: req.ID, Type: req.Type, Body: req.Body, StableBody: cmd.StableBody, Priority: req.Priority,
			Delay: millisToDuration(req.DelayMS), Timeout: millisToDuration(req.TimeoutMS), Backoff: millisToDuration(req.BackoffMS), Expires: millisToDuration(req.ExpiresMS),
			Retries: int32(req.Retries), Detach: req.Detach, NoAck: req.NoAck, Progress: req.WantProgress,
			Keep: millisToDuration(req.KeepMS), Age: millisToDuration(req.AgeMS), Headers: req.Headers, Groups: req.Groups,
		}
		if h.outcomes > 0 {
			h.settleReusedID(now, req.ID)
		}
		effects = h.core.Submit(now, c.Peer, &submission)
	case wire.Respond:
		effects = h.core.Respond(now, c.Peer, req.ID, req.Body, cmd.StableBody)
	case wire.Join:
		effects = h.core.Join(now, c.Peer, &broker.JoinRequest{
			Type: req.Type, Types: req.Types, Except: req.Except, Allows: cmd.Covers, AllowsID: cmd.CoversID,
			Prefetch: req.Prefetch, WantsNotices: req.WantCancels, WantsHeaders: req.WantHeaders,
		})
		c.SendsJobIDs = c.SendsJobIDs || req.Prefetch > 0 && len(effects) > 0 && effects[0].Op == broker.OpOK
	case wire.Cancel, wire.Change:
		if typ := h.core.TypeOf(c.Peer, req.ID); cmd.Covers != nil && typ != nil && !cmd.Covers(typ) {
			h.refuse(c, &wire.Error{Code: wire.Forbidden, ID: req.ID, Reason: fmt.Sprintf("this token does not cover the job's type %.64q", wire.Value(typ))})
			return
		}
		if req.Verb == wire.Cancel {
			effects = h.core.Cancel(now, c.Peer, req.ID)
			break
		}
		effects = h.core.Change(now, c.Peer, &broker.ChangeRequest{
			ID: req.ID, Priority: req.Priority, SetPriority: req.HasPriority, Groups: req.Groups, SetGroups: req.HasGroups, Delay: millisToDuration(req.AfterMS),
		})
	case wire.Attach:
		effects = h.core.Attach(now, c.Peer, req.ID, req.WantProgress, h.cfg.MaxOutbound-c.outbox.waitingBytes())
	case wire.Fail:
		failure := broker.Failure{ID: req.ID, Reason: wire.DefaultFailReason, NoRetry: req.NoRetry, Delay: -1}
		if req.Reason != nil {
			failure.Reason = Truncate(wire.Value(req.Reason), maxReasonBytes)
		}
		if req.AfterMS >= 0 {
			failure.Delay = int64(millisToDuration(req.AfterMS))
		}
		effects = h.core.Fail(now, c.Peer, &failure)
	case wire.Release:
		effects = h.core.Release(now, c.Peer, &broker.ReleaseRequest{ID: req.ID, Delay: millisToDuration(max(req.AfterMS, 0))})
	case wire.Progress:
		effects = h.core.Progress(now, c.Peer, req.ID, req.Body, cmd.StableBody)
	case wire.Leave:
		effects = h.core.Leave(now, c.Peer)
	case wire.Ping:
		h.appendFrame(c, 0, func(o *outbox) { o.buf = wire.AppendOK(o.buf) })
		return
	default:
		panic(fmt.Sprintf("verb %d is not for the core", req.Verb))
	}
	h.appendEffects(effects)
}

// maxReasonBytes is how many bytes of a worker's reason are kept.
const maxReasonBytes = 16 << 10

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
