package server

import (
	"bytes"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"gloom/broker/guard"
	"gloom/broker/hub"
	"gloom/wire"
)

const (
	// helloFrame is the longest payload that is taken from a peer that has
	// shown no token yet.
	helloFrame = 32 << 10
	// helloTime is how long a peer may wait with its token.
	helloTime = 10 * time.Second
	// maxClient is how much is kept of the name that a peer gives itself, in
	// bytes.
	maxClient = 256
)

// session is what a connection's bytes mean: frames, hello, scopes. It belongs
// to whoever reads the connection.
type session struct {
	srv  *Server
	conn *hub.Conn
	self *hub.Sink // set if the reader also takes the output
	port wire.Port
	// shut asks for the connection to be closed at once, unpause for it to be read
	// again after a pause; from any goroutine.
	shut, unpause func()

	named   bool         // a worker that ever joined with prefetch
	spoke   bool         // a frame other than a refused hello has come
	closing bool         // whatever still comes is thrown away
	grant   *guard.Grant // what its token allows; nil before hello, or without tokens

	big        gathered
	frames     int // that have come
	unfinished unfinished
	// paused: nothing is read from it until it has read some of what waits for it.
	paused atomic.Bool
	ending atomic.Bool // it is being closed by us; kept for streams only

	beat    time.Duration
	heard   atomic.Int64 // when bytes last came; kept only with a heartbeat
	over    atomic.Bool  // the connection is gone
	beater  *time.Timer
	waiting *hub.Timer // for hello
}

// opened is called once the hub knows the connection.
func (s *session) opened() {
	if s.srv.tokens.Required() {
		s.waiting = s.srv.hub.After(helloTime, func() {
			s.srv.tokenFailed(s.conn.Remote)
			s.srv.hub.Dismiss(s.conn, &wire.Error{Code: wire.Unauthorized, Reason: fmt.Sprintf("no hello with a token came within %v", helloTime)})
		})
	}
}

// closed is called when the connection is gone.
func (s *session) closed() {
	s.over.Store(true)
	s.drop()
	s.srv.hub.Gone(s.conn)
	if s.beater != nil {
		s.beater.Stop()
	}
	if s.waiting != nil {
		s.waiting.Stop()
	}
}

// refuse answers with an error, and closes behind it if it is told to.
func (s *session) refuse(b *batch, err *wire.Error, closing bool) {
	c := b.next()
	c.Refuse, c.Close = err, closing
	s.closing = s.closing || closing
}

// handle turns one payload into a command.
func (s *session) handle(b *batch, payload []byte, kept bool) {
	c := b.next()
	c.Kept = kept
	b.big = b.big || kept
	if kept && s.big.slot != nil {
		s.settle(b, c, payload, s.decodeInSlot(&b.dec, c, payload))
	} else {
		s.settle(b, c, payload, s.decode(&b.dec, c, payload))
	}
}

func (s *session) decodeInSlot(d *wire.Decoder, c *hub.Command, payload []byte) (err *wire.Error) {
	s.big.slot(func() { err = s.decode(d, c, payload) })
	return err
}

func (s *session) decode(d *wire.Decoder, c *hub.Command, payload []byte) *wire.Error {
	err := d.DecodeMore(payload, s.port, s.named, &c.Req)
	if c.Kept && err == nil {
		loosen(c, payload)
	}
	return err
}

// settle makes a command, the last of b, of what was decoded.
func (s *session) settle(b *batch, c *hub.Command, payload []byte, err *wire.Error) {
	r := &c.Req
	if s.unauthenticated() {
		switch known := r.Token != nil && s.srv.tokens.Find(r.Token) != nil; {
		case r.Verb != wire.Hello || err != nil && r.Token == nil || len(payload) > helloFrame:
			b.n--
			s.wantHello(b)
			return
		case !known:
			s.refuseToken(c)
			return
		}
	}
	if err != nil {
		s.spoke = s.spoke || r.Verb != wire.Hello
		c.Refuse = err
		// A worker that cannot write JSON would break every job it gets. A
		// submitter stays: its frames' borders are known, and closing would
		// cost it all its jobs.
		c.Close = err.Code.Reach() == wire.ReplyAndClose ||
			err.Code == wire.InvalidJSON && s.port == wire.WorkerPort && len(payload) > 0
		s.closing = c.Close
		return
	}
	switch r.Verb {
	case wire.Hello:
		s.hello(c)
		return
	case wire.Pong:
		c.Ignore = true
	case wire.Join:
		s.cover(c)
		if c.Refuse = s.allowed(work, r.Type, nil); c.Refuse == nil {
			c.Refuse = s.allowedOf(r.Types)
		}
		b.now = r.Prefetch > 0 // whether it is accepted decides how answers are read
	case wire.Submit:
		c.Refuse = s.allowed(submit, r.Type, r.ID)
	case wire.Attach:
		c.Refuse = s.allowed(submit, nil, r.ID)
	case wire.Cancel, wire.Change:
		c.Refuse = s.allowed(submit, nil, r.ID)
		s.cover(c)
	}
	s.spoke = true
}

// unauthenticated tells that a token has yet to be shown.
func (s *session) unauthenticated() bool { return s.grant == nil && s.srv.tokens.Required() }

// wantHello closes a connection whose first frame is not a hello.
func (s *session) wantHello(b *batch) {
	s.srv.tokenFailed(s.conn.Remote)
	s.refuse(b, &wire.Error{Code: wire.Unauthorized, Reason: "this broker wants a hello with a token first"}, true)
}

// allowed refuses what the connection's token does not cover.
func (s *session) allowed(sc guard.Scope, typ, id []byte) *wire.Error {
	if s.grant == nil {
		return nil
	}
	if s.grant.Scopes&sc == 0 {
		return &wire.Error{Code: wire.Forbidden, ID: id, Reason: fmt.Sprintf("this token lacks the scope %s", scopeNames[bits.TrailingZeros8(uint8(sc))])}
	}
	if typ != nil && !s.grant.Covers(wire.Value(typ)) {
		return &wire.Error{Code: wire.Forbidden, ID: id, Reason: fmt.Sprintf("this token does not cover the type %.64q", wire.Value(typ))}
	}
	return nil
}

// allowedOf refuses a list of types of which the token covers none.
func (s *session) allowedOf(types [][]byte) *wire.Error {
	if s.grant == nil || types == nil {
		return nil
	}
	for _, typ := range types {
		if bytes.IndexByte(typ, '*') >= 0 || s.grant.CoversName(typ) {
			return nil
		}
	}
	return &wire.Error{Code: wire.Forbidden, Reason: fmt.Sprintf("this token covers none of these types, such as %.64q", wire.Value(types[0]))}
}

// cover has the core ask which types the connection's token covers.
func (s *session) cover(c *hub.Command) {
	if s.grant != nil && !s.grant.All {
		c.Covers, c.Scope = s.grant.CoversName, s.grant.Types
	}
}

func (s *session) hello(c *hub.Command) {
	r := &c.Req
	if s.spoke {
		c.Refuse = &wire.Error{Code: wire.InvalidState, Reason: "hello_not_first: hello comes before any other frame, and once"}
		return
	}
	if s.srv.tokens.Required() {
		s.waiting.Stop()
		s.grant = s.srv.tokens.Find(r.Token)
	}
	s.spoke = true
	if r.Client != nil {
		s.conn.SetClient(brief(r.Client, maxClient))
	}
	if s.beat = time.Duration(r.HeartbeatMS) * time.Millisecond; s.beat > 0 {
		s.startBeat()
	}
	if s.grant != nil {
		c.Owner = s.grant.Owner()
	}
	c.Reply = wire.AppendHelloOK(nil, "gloomd/"+s.srv.opt.Version, s.srv.opt.MaxFrame, wire.MaxFrameOut(s.srv.opt.MaxFrame), wire.MaxName, s.srv.opt.MaxPrefetch, wire.MaxTypes)
}

// refuseToken closes a connection that showed an unknown token, or none. The refusal
// is slowed: guessing tokens shall take time.
func (s *session) refuseToken(c *hub.Command) {
	s.waiting.Stop()
	s.closing, c.Ignore = true, true
	s.srv.tokenFailed(s.conn.Remote)
	conn := s.conn
	time.AfterFunc(guard.TokenDelay, func() {
		s.srv.hub.Dismiss(conn, &wire.Error{Code: wire.Unauthorized, Reason: "this token is missing or unknown"})
	})
}

// readAgain ends a pause in reading: what the peer said meanwhile has yet to be read.
func (s *session) readAgain() {
	s.heard.Store(s.srv.hub.Now())
	s.paused.Store(false)
}

// startBeat pings the peer at its pace, and drops it when nothing came from it
// for two beats, in which this process did not stand still. Before that it waits a
// quarter of a beat: what has just come has yet to be read.
func (s *session) startBeat() {
	start := s.srv.hub.Now()
	s.heard.Store(start)
	beats := int64(0)
	suspected := false
	// The pace is counted from the start, so that it does not drift.
	s.beater = time.AfterFunc(time.Hour, func() {
		// Stopping this timer misses it while it runs.
		if s.over.Load() {
			return
		}
		now := s.srv.hub.Now()
		silent := now-s.heard.Load() >= 2*int64(s.beat) && !s.paused.Load() // or it is us who do not read
		if silent && suspected {
			s.srv.log.Info().Str("peer", s.conn.Remote).Str("client", s.conn.Client()).Dur("beat", s.beat).Msg("no byte for two beats, dropped")
			s.shut()
			return
		}
		if suspected = silent; silent {
			s.beater.Reset(s.beat / 4)
			return
		}
		s.srv.hub.Send(s.conn, pingFrame)
		beats = max(beats+1, (now-start)/int64(s.beat))
		s.beater.Reset(time.Duration(start + (beats+1)*int64(s.beat) - now))
	})
	s.beater.Reset(s.beat)
}

// brief cuts a text to n bytes, on a character's border.
func brief(text []byte, n int) string {
	if len(text) <= n {
		return string(text)
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return string(text[:n]) + "…"
}

var pingFrame = wire.AppendPing(nil)
