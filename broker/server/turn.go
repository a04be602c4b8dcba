package server

import (
	"bytes"
	"time"

	"gloom/broker/hub"
	"gloom/wire"
)

const (
	// batchSize is how many requests are decoded before the hub is asked: with more,
	// what was decoded first has left the processor's nearest cache by then.
	batchSize = 16
	// turnFrames and turnTime end the turn of a peer, of whose frames the rest
	// waits for its next turn: an empty frame is four bytes, and a read takes in a
	// hundred thousand of them. Where several peers have more than fits a turn,
	// those of all together take roundTime, down to leastTurn for each.
	turnFrames = 4096
	turnTime   = 500 * time.Microsecond
	roundTime  = 2 * time.Millisecond
	leastTurn  = 40 * time.Microsecond
	// crowded is the crowd where nobody counts it.
	crowded = int(roundTime / leastTurn)
)

// batch gathers the requests of one connection between two steps of the hub, and
// measures the connection's turn.
type batch struct {
	dec wire.Decoder
	cmd [batchSize]hub.Command
	n   int
	big bool // some of them point into a big frame
	now bool // they are to be carried out before more is decoded

	frames int   // carried out in this turn
	end    int64 // of the turn, on the hub's clock
}

func (s *Server) newBatch() *batch {
	return &batch{dec: wire.Decoder{DefaultType: s.defaultType, MaxPrefetch: s.opt.MaxPrefetch, MaxGroups: s.opt.MaxJobGroups}}
}

// turn begins a turn; crowd is how many other peers have more than a turn's work.
func (b *batch) turn(now int64, crowd int) {
	b.frames = 0
	b.end = now + int64(max(leastTurn, min(turnTime, roundTime/time.Duration(crowd+1))))
}

func (b *batch) next() *hub.Command {
	if b.n == 0 {
		b.dec.Reset()
	}
	c := &b.cmd[b.n]
	c.Kept, c.Refuse, c.Reply, c.Close, c.Ignore, c.Covers, c.Scope, c.Owner = false, nil, nil, false, false, nil, 0, 0
	b.n++
	return c
}

// take reads frames from data and has them carried out, until the turn is over
// (more). It returns how many bytes it used; the rest is the beginning of a frame,
// to be given again with more behind it, or, with more, whole frames.
func (s *session) take(b *batch, data []byte) (used int, more bool) {
	for !s.closing {
		var payload []byte
		kept := false
		if s.big.size > 0 {
			n := s.big.add(data[used:])
			used += n
			if !s.big.whole() || s.big.size > s.big.most {
				break
			}
			payload, kept = s.big.take(), true
		} else {
			p, n, err := wire.SplitFrame(data[used:], s.srv.opt.MaxFrame)
			if err != nil {
				s.refuse(b, err, true)
				break
			}
			if n == 0 {
				if s.unauthenticated() && announced(data[used:]) > helloFrame {
					s.wantHello(b)
					break
				}
				if !s.big.begin(data[used:]) {
					break
				}
				used += wire.HeaderLen
				continue
			}
			payload = p
			used += n
		}
		s.frames++
		s.handle(b, payload, kept)
		if b.n == batchSize || b.now {
			b.frames += b.n
			s.step(b)
			if b.frames >= turnFrames || s.srv.hub.Now() >= b.end {
				more = used < len(data)
				break
			}
		}
	}
	if s.closing {
		used, more = len(data), false
	}
	s.srv.bytesIn.Add(uint64(used))
	s.step(b)
	return used, more
}

// step lets the hub carry out what was gathered.
func (s *session) step(b *batch) {
	if b.n == 0 {
		return
	}
	s.srv.hub.Step(s.conn, b.cmd[:b.n], s.self)
	if b.big { // it lives as long as its job, not as long as the batch
		for i := range b.n {
			b.cmd[i].Req = wire.Request{}
		}
	}
	b.n, b.big, b.now = 0, false, false
	s.named = s.conn.Named()
}

// loosen frees a kept body of the frame around it, if that is much longer: what
// is kept is counted by the body's length.
func loosen(c *hub.Command, payload []byte) {
	n := len(c.Req.Body)
	switch {
	case n < bigFrame:
		c.Kept = false
	case cap(payload)-n > n/16:
		c.Req.Body = bytes.Clone(c.Req.Body)
	}
}
