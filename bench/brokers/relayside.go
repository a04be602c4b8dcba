package brokers

import (
	"bytes"

	"gloom/bench/load"
	"gloom/bench/relay"
)

// Relay uses the protocol of package relay: Gloom's frames, passed on unchanged. A worker gets the
// submit frame, a submitter the respond frame; only the number in the body identifies an answer.
var Relay = load.Protocol{
	Traits:    load.Traits{Acks: load.CountedAcks, Queues: true},
	Submitter: newRelaySubmitter, Worker: newRelayWorker,
}

func newRelaySubmitter(s *load.Submitter) load.SubmitterSide {
	g := newGloomSubmitter(s)
	g.handleNext = g.handleRelayed
	return g
}

func newRelayWorker(w *load.Worker) load.WorkerSide {
	g := newGloomWorker(w)
	g.handleNext = g.handleRelayed
	return g
}

const relayedAnswer = `{"action":"respond","body":`

func (g *gloomSubmitter) handleRelayed(in []byte) int {
	p, used := nextFrame(in)
	switch {
	case used == 0:
	case string(p) == relay.SubmitAck:
		g.s.AckedNext()
	case bytes.HasPrefix(p, []byte(relayedAnswer)):
		g.s.Answered(nil, p[len(relayedAnswer):len(p)-1])
	default:
		g.s.Misbehaved("frame %.80q to a submitter", p)
	}
	return used
}

func (g *gloomWorker) handleRelayed(in []byte) int {
	p, used := nextFrame(in)
	switch start := len(p) - 1 - g.w.Body().Len(); {
	case used == 0:
	case string(p) == okFrame:
		g.handleOK()
	case start < len(submitOpen)-frameHeadLen || !bytes.HasSuffix(p[:start], []byte(`"body":`)):
		g.w.Misbehaved("frame %.80q to a worker", p)
	default:
		g.takeJob(nil, p[start:len(p)-1])
	}
	return used
}
