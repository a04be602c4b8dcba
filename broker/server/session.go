package server

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"gloom/broker/hub"
	"gloom/wire"
)

const (
	// bigFrame is the payload from which a frame is gathered in memory of its own,
	// so that its body can be kept without being copied. For smaller ones, copies
	// into memory that is used again cost less than the collector does.
	bigFrame = 128 << 10
	// strangerFrame is the longest payload that is taken from a peer that has
	// shown no token yet.
	strangerFrame = 32 << 10
	// growth is how many times what has come is allocated for a big frame.
	growth = 4
	// batchSize is how many requests are decoded before the hub is asked.
	batchSize = 32
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
	// shut asks for the connection to be closed at once, from any goroutine.
	shut func()

	named   bool   // a worker that ever joined with prefetch
	spoke   bool   // a frame other than a refused hello has come
	closing bool   // whatever still comes is thrown away
	grant   *grant // what its token allows; nil before hello, or without tokens

	big    []byte // a big frame that is still coming, or nil
	bigLen int
	// What takes long is done aside where it must not be done by the reader,
	// who sets giant and looks here after each take: giantFrame has come whole
	// and is to be decoded, or big is to grow to giantCap.
	giant      int // payloads longer than this; 0 if none are
	giantFrame []byte
	giantCap   int
	partial    int64 // bytes counted in Server.inbound

	beat    time.Duration
	heard   atomic.Int64 // when bytes last came; kept only with a heartbeat
	over    atomic.Bool  // the connection is gone
	beater  *time.Timer
	waiting *time.Timer // for hello
}

// batch gathers the requests of one connection between two steps of the hub.
type batch struct {
	dec [batchSize]wire.Decoder
	cmd [batchSize]hub.Command
	n   int
}

func (s *Server) newBatch() *batch {
	b := &batch{}
	for i := range b.dec {
		b.dec[i].DefaultType = s.defaultType
		b.dec[i].MaxPrefetch = s.opt.MaxPrefetch
	}
	return b
}

// opened is called once the hub knows the connection.
func (s *session) opened() {
	if s.srv.tokens.required() {
		s.waiting = time.AfterFunc(helloTime, func() {
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
	for _, t := range []*time.Timer{s.beater, s.waiting} {
		if t != nil {
			t.Stop()
		}
	}
}

// take reads frames from data and has them carried out. It returns how many
// bytes it used; the rest is the beginning of a frame, to be given again with
// more behind it.
func (s *session) take(b *batch, data []byte) (used int) {
	for !s.closing {
		var payload []byte
		kept := false
		if s.big != nil {
			n := s.gather(data[used:])
			used += n
			if len(s.big) < s.bigLen {
				break
			}
			payload, kept, s.big = s.big, true, nil
			if s.giant > 0 && len(payload) > s.giant {
				s.giantFrame = payload
				break
			}
		} else {
			p, n, err := wire.SplitFrame(data[used:], s.srv.opt.MaxFrame)
			if err != nil {
				s.refuse(b, err, true)
				break
			}
			if n == 0 {
				if s.stranger() && announced(data[used:]) > strangerFrame {
					s.turnAway(b)
					break
				}
				if !s.begin(data[used:]) {
					break
				}
				used += wire.HeaderLen
				continue
			}
			payload = p
			used += n
		}
		s.handle(b, payload, kept)
		if b.n == batchSize {
			s.step(b)
		}
	}
	if s.closing {
		used = len(data)
	}
	s.srv.bytesIn.Add(uint64(used))
	s.step(b)
	return used
}

// announced is the length of the payload that data begins, or 0.
func announced(data []byte) int {
	if len(data) < wire.HeaderLen {
		return 0
	}
	return int(binary.BigEndian.Uint32(data))
}

// begin starts to gather a big frame, if data begins one.
func (s *session) begin(data []byte) bool {
	n := announced(data)
	if n <= bigFrame {
		return false
	}
	s.bigLen = n
	s.big = make([]byte, 0, min(n, growth*len(data)))
	return true
}

// gather appends what there is of a big frame. Memory grows with what has
// come, by fours: a frame of 16 MiB is copied a third of once more.
func (s *session) gather(data []byte) int {
	n := min(len(data), s.bigLen-len(s.big))
	if need := len(s.big) + n; need > cap(s.big) {
		most := min(s.bigLen, max(need, growth*cap(s.big)))
		if s.giant > 0 && most > s.giant {
			s.giantCap = most
			return 0
		}
		s.move(grown(s.big, most))
	}
	s.big = append(s.big, data[:n]...)
	return n
}

// spare is room for more of the frame that is gathered, filled tells how much of
// it has been read into.
func (s *session) spare() []byte { return s.big[len(s.big):min(cap(s.big), s.bigLen)] }

func (s *session) filled(n int) {
	s.big = s.big[:len(s.big)+n]
	s.srv.bytesIn.Add(uint64(n))
}

// grown is a copy of big with room for most bytes.
func grown(big []byte, most int) []byte {
	to := make([]byte, len(big), most)
	copy(to, big)
	return to
}

// move lets big go on in other memory.
func (s *session) move(to []byte) {
	s.srv.released.Add(int64(cap(s.big)))
	s.big = to
}

// hungry says how many bytes make a read worthwhile, header included: so many
// must be there before take can get anywhere.
func (s *session) hungry(head []byte) int {
	n := int(binary.BigEndian.Uint32(head))
	if n > bigFrame || n > s.srv.opt.MaxFrame {
		return wire.HeaderLen
	}
	return wire.HeaderLen + n
}

// count notes that the connection holds so many bytes of an unfinished frame.
// If that is too much for all together, it is closed.
func (s *session) count(left int) {
	n := int64(left + cap(s.big))
	if n == s.partial {
		return
	}
	total := s.srv.inbound.Add(n - s.partial)
	grew := n > s.partial
	s.partial = n
	if grew && total > s.srv.opt.MaxInbound && !s.closing {
		s.closing = true
		s.drop()
		s.srv.hub.Dismiss(s.conn, &wire.Error{Code: wire.Overloaded, Reason: fmt.Sprintf(
			"%d bytes of unfinished frames have come from all connections, at most %d may (max-inbound)", total, s.srv.opt.MaxInbound)})
	}
}

// drop throws the unfinished frame away.
func (s *session) drop() {
	s.srv.released.Add(int64(cap(s.big)))
	s.big = nil
	s.count(0)
}

// step lets the hub carry out what was gathered.
func (s *session) step(b *batch) {
	if b.n == 0 {
		return
	}
	s.srv.hub.Step(s.conn, b.cmd[:b.n], s.self)
	for i := range b.n {
		// Big frames live as long as their jobs, not as long as the batch.
		if c := &b.cmd[i]; c.Kept {
			c.Req = wire.Request{}
		}
	}
	b.n = 0
}

func (b *batch) next() (*hub.Command, *wire.Decoder) {
	c := &b.cmd[b.n]
	c.Kept, c.Refuse, c.Reply, c.Close, c.Ignore, c.Covers = false, nil, nil, false, false, nil
	b.n++
	return c, &b.dec[b.n-1]
}

// refuse answers with an error, and closes behind it if it is told to.
func (s *session) refuse(b *batch, err *wire.Error, closing bool) {
	c, _ := b.next()
	c.Refuse, c.Close = err, closing
	s.closing = s.closing || closing
}

// handle turns one payload into a command.
func (s *session) handle(b *batch, payload []byte, kept bool) {
	c, d := b.next()
	c.Kept = kept
	if kept {
		s.srv.released.Add(int64(len(payload)))
	}
	s.settle(b, c, payload, d.Decode(payload, s.port, s.named, &c.Req))
}

// settle makes a command, the last of b, of what was decoded.
func (s *session) settle(b *batch, c *hub.Command, payload []byte, err *wire.Error) {
	r := &c.Req
	if s.stranger() && (err != nil || r.Verb != wire.Hello || len(payload) > strangerFrame) {
		b.n--
		s.turnAway(b)
		return
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
		if c.Refuse = s.allowed(work, r.Type, nil); c.Refuse == nil && r.Prefetch > 0 {
			s.named = true
		}
	case wire.Submit:
		c.Refuse = s.allowed(submit, r.Type, r.ID)
	case wire.Cancel:
		c.Refuse = s.allowed(submit, nil, r.ID)
		if s.grant != nil {
			c.Covers = s.grant.coversName
		}
	}
	s.spoke = true
}

// stranger tells that a token has yet to be shown.
func (s *session) stranger() bool { return s.grant == nil && s.srv.tokens.required() }

// turnAway closes a connection whose first frame is not a hello.
func (s *session) turnAway(b *batch) {
	s.srv.tokenFailed(s.conn.Remote)
	s.refuse(b, &wire.Error{Code: wire.Unauthorized, Reason: "this broker wants a hello with a token first"}, true)
}

// allowed refuses what the connection's token does not cover.
func (s *session) allowed(sc scope, typ, id []byte) *wire.Error {
	if s.grant == nil {
		return nil
	}
	if s.grant.scopes&sc == 0 {
		return &wire.Error{Code: wire.Forbidden, ID: id, Reason: fmt.Sprintf("this token lacks the scope %s", sc)}
	}
	if typ != nil && !s.grant.covers(wire.Value(typ)) {
		return &wire.Error{Code: wire.Forbidden, ID: id, Reason: fmt.Sprintf("this token does not cover the type %.64q", wire.Value(typ))}
	}
	return nil
}

func (s *session) hello(c *hub.Command) {
	r := &c.Req
	if s.spoke {
		c.Refuse = &wire.Error{Code: wire.InvalidState, Reason: "hello_not_first: hello comes before any other frame, and once"}
		return
	}
	if s.srv.tokens.required() {
		g := s.srv.tokens.find(r.Token)
		s.waiting.Stop()
		if g == nil {
			// The refusal is slowed: guessing tokens shall take time.
			s.closing = true
			c.Ignore = true
			s.srv.tokenFailed(s.conn.Remote)
			conn := s.conn
			time.AfterFunc(tokenDelay, func() {
				s.srv.hub.Dismiss(conn, &wire.Error{Code: wire.Unauthorized, Reason: "this token is missing or unknown"})
			})
			return
		}
		s.grant = g
	}
	s.spoke = true
	if r.Client != nil {
		s.conn.SetClient(brief(r.Client, maxClient))
	}
	if s.beat = time.Duration(r.HeartbeatMS) * time.Millisecond; s.beat > 0 {
		s.startBeat()
	}
	c.Reply = wire.AppendHelloOK(nil, "gloomd/"+s.srv.opt.Version, s.srv.opt.MaxFrame, wire.MaxName, s.srv.opt.MaxPrefetch, wire.MaxTypes)
}

// startBeat pings the peer at its pace, and drops it when nothing came from it
// for two beats. Before that it waits a quarter of a beat: what came while this
// process itself stood still has yet to be read.
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
		silent := now-s.heard.Load() >= 2*int64(s.beat)
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
