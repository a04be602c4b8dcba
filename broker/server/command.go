package server

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"gloom/broker/guard"
	"gloom/broker/hub"
	"gloom/wire"
)

const (
	// batchSize is the number of requests that are decoded before the hub carries them out. In a
	// larger batch, the first requests would have left the processor's nearest cache by then.
	batchSize = 16
	// maxHelloFrame is the longest payload that a peer may send before it has shown its token.
	maxHelloFrame = 32 << 10
	// maxClientName is how many bytes are kept of the name that a peer gives itself.
	maxClientName = 256
)

// batch gathers the requests of one or more connections between two steps of the hub, and
// measures the turn of the last connection.
type batch struct {
	decoder     wire.Decoder
	commands    [batchSize]hub.Command
	count       int
	hasBigFrame bool // some requests point into a big frame
	mustStep    bool // the requests must be carried out before more is decoded

	turnFrames int   // how many frames the turn has handled
	turnEnd    int64 // when the turn ends, on the hub's clock
}

func (s *Server) newBatch() *batch {
	return &batch{decoder: wire.Decoder{DefaultType: s.defaultType, MaxPrefetch: s.options.MaxPrefetch, MaxGroups: s.options.MaxJobGroups}}
}

func (b *batch) next(from *hub.Conn) *hub.Command {
	if b.count == 0 {
		b.decoder.Reset()
	}
	m := &b.commands[b.count]
	m.From, m.StableBody, m.Refusal, m.Reply, m.Close, m.Ignore, m.Covers, m.Scope, m.Owner = from, false, nil, nil, false, false, nil, 0, 0
	b.count++
	return m
}

// reset empties the batch after it has been carried out.
func (b *batch) reset() {
	if b.hasBigFrame { // the job may keep the memory of a big frame, but the batch must not keep it, too
		for i := range b.count {
			b.commands[i].Req = wire.Request{}
		}
	}
	b.count, b.hasBigFrame, b.mustStep = 0, false, false
}

// addRequest turns the payload of a frame into a command of b.
func (c *conn) addRequest(b *batch, payload []byte, stable bool) {
	m := b.next(c.hubConn)
	m.StableBody, b.hasBigFrame = stable, b.hasBigFrame || stable
	b.turnFrames++
	c.completeCommand(b, m, payload, decodeCommand(&b.decoder, m, payload, c.hubConn))
}

func decodeCommand(d *wire.Decoder, m *hub.Command, payload []byte, from *hub.Conn) *wire.Error {
	err := d.DecodeMore(payload, from.Port, from.NamesJobs, &m.Req)
	switch n := len(m.Req.Body); {
	case err != nil || !m.StableBody:
	case n < minBigFrame:
		m.StableBody = false
	case cap(payload)-n > n/16: // the body would keep the whole frame in memory, but only the body's length is counted
		m.Req.Body = bytes.Clone(m.Req.Body)
	}
	return err
}

// completeCommand completes m, the last command of b, from what was decoded.
func (c *conn) completeCommand(b *batch, m *hub.Command, payload []byte, err *wire.Error) {
	r := &m.Req
	if c.unauthenticated() {
		switch {
		case r.Verb != wire.Hello || err != nil && r.Token == nil:
			b.count--
			c.refuseUntilHello(b)
			return
		case r.Token == nil || c.srv.tokens.Find(r.Token) == nil:
			c.refuseToken(m)
			return
		}
	}
	if err != nil {
		if r.Verb != wire.Hello {
			c.state = stateOpen
		}
		m.Refusal = err
		// A worker that cannot write JSON would fail every job it gets. A submitter stays
		// connected: where its next frame begins is known, and closing would cost it all its jobs.
		m.Close = err.Code.ConnEffect() == wire.Closes ||
			err.Code == wire.InvalidJSON && c.port == wire.WorkerPort && len(payload) > 0
		if m.Close {
			c.state = stateDraining
		}
		return
	}
	if r.Verb == wire.Hello {
		c.handleHello(m)
		return
	}
	c.state = stateOpen
	m.Ignore = r.Verb == wire.Pong
	m.Refusal = checkPermitted(c.grant, m)
	// Whether a join with prefetch succeeds decides how the next answers are read.
	b.mustStep = b.mustStep || r.Verb == wire.Join && r.Prefetch > 0
}

// refuse answers with an error and closes the connection.
func (c *conn) refuse(b *batch, err *wire.Error) {
	m := b.next(c.hubConn)
	m.Refusal, m.Close = err, true
	c.state = stateDraining
}

// unauthenticated reports whether a token is required and the peer has not shown one.
func (c *conn) unauthenticated() bool { return c.state == stateGreeting && c.srv.tokens.Required() }

// refuseUntilHello closes a connection whose first frame is not a hello.
func (c *conn) refuseUntilHello(b *batch) {
	c.srv.recordBadToken(c.remote)
	c.refuse(b, &wire.Error{Code: wire.Unauthorized, Reason: "this broker requires a hello with a token first"})
}

// refuseToken closes a connection that showed an unknown token, or none. The refusal is
// delayed so that guessing tokens takes time.
func (c *conn) refuseToken(m *hub.Command) {
	c.helloTimer.Stop()
	c.state, m.Ignore = stateDraining, true
	c.srv.recordBadToken(c.remote)
	time.AfterFunc(guard.TokenDelay, func() {
		c.srv.hub.CloseWith(c.hubConn, &wire.Error{Code: wire.Unauthorized, Reason: "this token is missing or unknown"})
	})
}

func (c *conn) handleHello(m *hub.Command) {
	r := &m.Req
	if c.state != stateGreeting {
		m.Refusal = &wire.Error{Code: wire.InvalidState, Reason: "hello_not_first: hello comes before any other frame, and once"}
		return
	}
	c.state, c.input.maxPayload = stateOpen, c.srv.options.MaxFrame
	if c.srv.tokens.Required() {
		c.helloTimer.Stop()
		if c.grant = c.srv.tokens.Find(r.Token); c.grant == nil { // the token has just been removed from the file
			c.refuseToken(m)
			return
		}
		m.Owner = c.grant.Owner()
	}
	if r.Client != nil {
		c.hubConn.SetClient(hub.Truncate(r.Client, maxClientName))
	}
	if c.heartbeat = time.Duration(r.HeartbeatMS) * time.Millisecond; c.heartbeat > 0 {
		c.startHeartbeat()
	}
	m.Reply = wire.AppendHelloOK(nil, "gloomd/"+c.srv.options.Version, c.srv.options.MaxFrame, wire.MaxFrameOut(c.srv.options.MaxFrame), wire.MaxName, c.srv.options.MaxPrefetch, wire.MaxTypes)
}

// requiredScopes lists what a token must grant for each verb. Verbs without an entry need nothing.
// Everything is checked before the lock is taken, except types that only the core knows: these
// the hub checks with Command.Covers.
var requiredScopes = [...]struct {
	scope guard.Scope
	typed bool // the token must cover the types that the request names
	asks  bool // the token must cover the types that only the core knows
}{
	wire.Submit: {scope: submitScope, typed: true},
	wire.Join:   {scope: workScope, typed: true, asks: true},
	wire.Attach: {scope: submitScope},
	wire.Cancel: {scope: submitScope, asks: true},
	wire.Change: {scope: submitScope, asks: true},
	wire.Pong:   {},
}

// checkPermitted refuses a request that a grant does not allow. Without tokens, g is nil.
func checkPermitted(g *guard.Grant, m *hub.Command) *wire.Error {
	r := &m.Req
	p := requiredScopes[r.Verb]
	if g == nil || p.scope == 0 {
		return nil
	}
	if g.Scopes&p.scope == 0 {
		return &wire.Error{Code: wire.Forbidden, ID: r.ID, Reason: fmt.Sprintf("this token lacks the scope %s", scopeNames[bits.TrailingZeros8(uint8(p.scope))])}
	}
	if p.typed && r.Type != nil && !g.CoversName(r.Type) {
		return &wire.Error{Code: wire.Forbidden, ID: r.ID, Reason: fmt.Sprintf("this token does not cover the type %.64q", wire.Value(r.Type))}
	}
	// A pattern may match a type that the token covers.
	if p.typed && r.Types != nil && !slices.ContainsFunc(r.Types, func(typ []byte) bool { return bytes.IndexByte(typ, '*') >= 0 || g.CoversName(typ) }) {
		return &wire.Error{Code: wire.Forbidden, Reason: fmt.Sprintf("this token covers none of these types, such as %.64q", wire.Value(r.Types[0]))}
	}
	if p.asks && !g.AllTypes {
		m.Covers, m.Scope = g.CoversName, g.TypesID
	}
	return nil
}
