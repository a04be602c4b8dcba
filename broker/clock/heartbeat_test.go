package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// runHeartbeat checks a heartbeat from 0 until the peer is lost or until end. heard holds the times
// at which bytes arrive; reading reports whether bytes are read at a given time. It returns the
// times of the pings, of the doubts and of the loss.
func runHeartbeat(beat time.Duration, end int64, heard []int64, reading func(now int64) bool) (pings, doubts []int64, lostAt int64) {
	h := StartHeartbeat(0, beat)
	for now := int64(beat); now < end; {
		for len(heard) > 0 && heard[0] <= now {
			h.Hear(heard[0])
			heard = heard[1:]
		}
		event, wait := h.Check(now, reading(now))
		switch event {
		case Ping:
			pings = append(pings, now)
		case Doubtful:
			doubts = append(doubts, now)
		case Lost:
			return pings, doubts, now
		}
		now += max(1, int64(wait))
	}
	return pings, doubts, 0
}

func always(int64) bool { return true }

// TestHeartbeatOfSilentPeer: a peer that answers pings is never doubtful. Once the peer is silent,
// it is doubtful an eighth of a beat after the first unanswered ping, and is lost after two beats
// and a quarter. Among peers that fall silent together, all are doubtful before one is lost.
func TestHeartbeatOfSilentPeer(t *testing.T) {
	const beat, rtt = int64(time.Second), int64(time.Millisecond)
	rng := rand.New(rand.NewPCG(1, 2))
	firstLoss, lastDoubt := int64(1<<62), int64(0)
	for range 1000 {
		start := rng.Int64N(beat) // when it connects
		const deathAt = 10 * beat
		var heard []int64
		for at := beat; start+at+rtt < deathAt; at += beat {
			heard = append(heard, at+rtt)
		}
		pings, doubts, lostAt := runHeartbeat(time.Duration(beat), 100*beat, heard, always)
		last := heard[len(heard)-1]
		if len(doubts) != 1 || doubts[0] != last-rtt+beat+beat/8 || lostAt != last+2*beat+beat/4 || len(pings) < 10 {
			t.Fatalf("doubtful at %v, lost at %v; last heard at %d", doubts, lostAt, last)
		}
		firstLoss, lastDoubt = min(firstLoss, start+lostAt), max(lastDoubt, start+doubts[0])
	}
	if lastDoubt >= firstLoss {
		t.Errorf("one is lost at %d, when another is not yet doubtful (%d)", firstLoss, lastDoubt)
	}
}

// TestHeartbeatWithoutReading: nobody is doubtful or lost while nothing is read.
func TestHeartbeatWithoutReading(t *testing.T) {
	const beat = int64(time.Second)
	pings, doubts, lostAt := runHeartbeat(time.Duration(beat), 20*beat+1, nil, func(int64) bool { return false })
	if len(pings) != 20 || len(doubts) != 0 || lostAt != 0 {
		t.Errorf("pings %v, doubtful %v, lost at %d", pings, doubts, lostAt)
	}
}
