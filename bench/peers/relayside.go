package peers

import (
	"bytes"

	"gloom/bench/load"
	"gloom/bench/poll"
	"gloom/bench/relay"
)

// Relay speaks to the relay of package relay: Gloom's frames, passed on as they
// are. A worker is sent the submit frame, a submitter the respond frame; answers
// are told apart by the number in their body alone.
type Relay struct{}

// Traits implements load.Protocol.
func (Relay) Traits() load.Traits { return load.Traits{Acks: load.CountedAcks, Queues: true} }

// Submitter implements load.Protocol.
func (Relay) Submitter(s *load.Submitter) load.SubmitSide {
	return &relaySubmitter{gloomSubmitter{s: s, heads: submitHeads(s.Types())}}
}

// Worker implements load.Protocol.
func (Relay) Worker(w *load.Worker) load.WorkSide {
	return &relayWorker{gloomWorker{w: w}}
}

type relaySubmitter struct{ gloomSubmitter }

func (r *relaySubmitter) Dial(l *poll.Loop) (err error) {
	if r.c, err = l.Dial(r.s.Addr(), r); err != nil {
		return err
	}
	r.s.Ready()
	return nil
}

const relayedAnswer = `{"action":"respond","body":`

func (r *relaySubmitter) Data(_ *poll.Conn, in []byte, now int64) (used int) {
	r.s.Arrived(now)
	for {
		p, n := frame(in[used:])
		if n == 0 {
			return used
		}
		used += n
		switch {
		case string(p) == relay.SubmitAck:
			r.s.AckedNext()
		case bytes.HasPrefix(p, []byte(relayedAnswer)):
			r.s.Answered(nil, p[len(relayedAnswer):len(p)-1])
		default:
			r.s.Misbehaved("frame %.80q to a submitter", p)
		}
	}
}

type relayWorker struct{ gloomWorker }

func (r *relayWorker) Dial(l *poll.Loop) (err error) {
	if r.c, err = l.Dial(r.w.Addr(), r); err != nil {
		return err
	}
	out := append([]byte(nil), "\x00\x00\x00\x00"+`{"action":"join","type":"`+r.w.Type+`"}`...)
	r.c.SetOut(closeFrame(out, 0))
	return nil
}

func (r *relayWorker) Data(_ *poll.Conn, in []byte, now int64) (used int) {
	r.w.Arrived(now)
	for {
		p, n := frame(in[used:])
		if n == 0 {
			return used
		}
		used += n
		if string(p) == okFrame {
			r.ok()
			continue
		}
		start := len(p) - 1 - r.w.Body().Len()
		if start < len(submitOpen)-frameHead || !bytes.HasSuffix(p[:start], []byte(`"body":`)) {
			r.w.Misbehaved("frame %.80q to a worker", p)
			continue
		}
		r.handed(nil, p[start:len(p)-1])
	}
}
