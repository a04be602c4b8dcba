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
	// maxClientName is how many bytes of a peer's own name are kept.
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
	cmd := &b.commands[b.count]
	cmd.From, cmd.StableBody, cmd.Refusal, cmd.Reply, cmd.Close, cmd.Ignore, cmd.Covers, cmd.CoversID, cmd.Owner = from, false, nil, nil, false, false, nil, 0, 0
	b.count++
	return cmd
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
	cmd := b.next(c.hubConn)
	cmd.StableBody, b.hasBigFrame = stable, b.hasBigFrame || stable
	b.turnFrames++
	c.completeCommand(b, cmd, payload, decodeCommand(&b.decoder, cmd, payload, c.hubConn))
}

func decodeCommand(d *wire.Decoder, cmd *hub.Command, payload []byte, from *hub.Conn) *wire.Error {
	err := d.DecodeMore(payload, from.Port, from.SendsJobIDs, &cmd.Req)
	switch n := len(cmd.Req.Body); {
	case err != nil || !cmd.StableBody:
	case n < minBigFrame:
		cmd.StableBody = false
	case cap(payload)-n > n/16: // the body would keep the whole frame in memory, but only the body's length is counted
		cmd.Req.Body = bytes.Clone(cmd.Req.Body)
	}
	return err
}

// completeCommand completes cmd, the last command of b, from what was decoded.
func (c *conn) completeCommand(b *batch, cmd *hub.Command, payload []byte, err *wire.Error) {
	req := &cmd.Req
	if c.unauthenticated() {
		switch {
		case req.Verb != wire.Hello || err != nil && req.Token == nil:
			b.count--
			c.refuseUntilHello(b)
			return
		case req.Token == nil || c.srv.tokens.Find(req.Token) == nil:
			c.refuseToken(cmd)
			return
		}
	}
	if err != nil {
		if req.Verb != wire.Hello {
			c.state = stateOpen
		}
		cmd.Refusal = err
		// A worker that cannot write JSON would fail every job it gets. A submitter stays
		// connected: where its next frame begins is known, and closing would cost it all its jobs.
		cmd.Close = err.Code.ConnEffect() == wire.Closes ||
			err.Code == wire.InvalidJSON && c.port == wire.WorkerPort && len(payload) > 0
		if cmd.Close {
			c.state = stateDraining
		}
		return
	}
	if req.Verb == wire.Hello {
		c.handleHello(cmd)
		return
	}
	c.state = stateOpen
	cmd.Ignore = req.Verb == wire.Pong
	cmd.Refusal = checkPermitted(c.grant, cmd)
	// Whether a join with prefetch succeeds decides how the next answers are read.
	b.mustStep = b.mustStep || req.Verb == wire.Join && req.Prefetch > 0
}

// refuse answers with an error and closes the connection.
func (c *conn) refuse(b *batch, err *wire.Error) {
	cmd := b.next(c.hubConn)
	cmd.Refusal, cmd.Close = err, true
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
func (c *conn) refuseToken(cmd *hub.Command) {
	c.helloTimer.Stop()
	c.state, cmd.Ignore = stateDraining, true
	c.srv.recordBadToken(c.remote)
	refusal := &wire.Error{Code: wire.Unauthorized, Reason: guard.WhyTokenRefused(cmd.Req.Token)}
	time.AfterFunc(guard.TokenDelay, func() { c.srv.hub.CloseWith(c.hubConn, refusal) })
}

func (c *conn) handleHello(cmd *hub.Command) {
	req := &cmd.Req
	if c.state != stateGreeting {
		cmd.Refusal = &wire.Error{Code: wire.InvalidState, Reason: "hello_not_first: hello comes before any other frame, and once"}
		return
	}
	c.state, c.input.maxPayload = stateOpen, c.srv.options.MaxFrame
	if c.srv.tokens.Required() {
		c.helloTimer.Stop()
		if c.grant = c.srv.tokens.Find(req.Token); c.grant == nil { // the token has just been removed from the file
			c.refuseToken(cmd)
			return
		}
		cmd.Owner = c.grant.Owner()
	}
	if req.Client != nil {
		c.hubConn.SetClientName(hub.Truncate(req.Client, maxClientName))
	}
	if req.HeartbeatMS > 0 {
		c.startHeartbeat(time.Duration(req.HeartbeatMS) * time.Millisecond)
	}
	cmd.Reply = wire.AppendHelloOK(nil, "gloomd/"+c.srv.options.Version, c.srv.options.MaxFrame, wire.MaxPayloadOut(c.srv.options.MaxFrame), wire.MaxNameBytes, c.srv.options.MaxPrefetch, wire.MaxTypes)
}

// requiredScopes lists what a token must grant for each verb. Verbs without an entry need nothing.
// Everything is checked before the lock is taken, except types that only the core knows: these
// the hub checks with Command.Covers.
var requiredScopes = [...]struct {
	scope       guard.Scope
	checksNamed bool // the token must cover the types that the request names
	checksKnown bool // the token must cover the types that only the core knows
}{
	wire.Submit: {scope: submitScope, checksNamed: true},
	wire.Join:   {scope: workScope, checksNamed: true, checksKnown: true},
	wire.Attach: {scope: submitScope},
	wire.Cancel: {scope: submitScope, checksKnown: true},
	wire.Change: {scope: submitScope, checksKnown: true},
	wire.Pong:   {},
}

// checkPermitted refuses a request that a grant does not allow. Without tokens, grant is nil.
func checkPermitted(grant *guard.Grant, cmd *hub.Command) *wire.Error {
	req := &cmd.Req
	required := requiredScopes[req.Verb]
	if grant == nil || required.scope == 0 {
		return nil
	}
	if grant.Scopes&required.scope == 0 {
		return &wire.Error{Code: wire.Forbidden, ID: req.ID, Reason: fmt.Sprintf("this token lacks the scope %s", scopeNames[bits.TrailingZeros8(uint8(required.scope))])}
	}
	if required.checksNamed && req.Type != nil && !grant.CoversName(req.Type) {
		return &wire.Error{Code: wire.Forbidden, ID: req.ID, Reason: fmt.Sprintf("this token does not cover the type %.64q", wire.Value(req.Type))}
	}
	// A pattern may match a type that the token covers.
	if required.checksNamed && req.Types != nil && !slices.ContainsFunc(req.Types, func(typ []byte) bool { return bytes.IndexByte(typ, '*') >= 0 || grant.CoversName(typ) }) {
		return &wire.Error{Code: wire.Forbidden, Reason: fmt.Sprintf("this token covers none of these types, such as %.64q", wire.Value(req.Types[0]))}
	}
	if required.checksKnown && !grant.AllTypes {
		cmd.Covers, cmd.CoversID = grant.CoversName, grant.TypesID
	}
	return nil
}
