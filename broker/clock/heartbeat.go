package clock

import (
	"math"
	"time"
)

// Heartbeat decides what the silence of a peer means. The peer asked for a ping at an interval, the
// beat. It is lost after two beats of silence, and it is doubtful from an eighth of a beat after
// a ping until it sends something: a host that dies leaves connections that seem idle, and a job that
// goes from one of them to the next uses up its runs. Times are of one clock, in nanoseconds.
type Heartbeat struct {
	beat      int64
	heardAt   int64 // when bytes last arrived
	pingAt    int64 // when the next ping is due; counted from the start, so that it does not drift
	pingedAt  int64
	doubtAt   int64 // when the peer becomes doubtful if it has sent nothing since pingedAt
	doubtful  bool
	suspected bool // the peer was silent for two beats when this was last checked
}

// Event is what follows from a peer's silence.
type Event int

// The events of Heartbeat.Check.
const (
	None     Event = iota
	Ping           // a ping is due
	Doubtful       // the peer has not answered the last ping
	Lost           // the peer was silent for two beats
)

// StartHeartbeat returns the heartbeat of a peer that was heard now. Its first check is due after a beat.
func StartHeartbeat(now int64, beat time.Duration) *Heartbeat {
	return &Heartbeat{heardAt: now, beat: int64(beat), pingAt: now + int64(beat), doubtAt: math.MaxInt64}
}

// Hear records that bytes have arrived, or that none were read before. It reports whether the peer was
// doubtful.
func (h *Heartbeat) Hear(now int64) (wasDoubtful bool) {
	wasDoubtful = h.doubtful
	h.heardAt, h.doubtful = now, false
	return wasDoubtful
}

// Check returns what follows from the silence until now, and the time until the next check. read
// says whether the peer's bytes are read as they arrive; while they are not read, the peer is not
// to blame for the silence. A silent peer is lost only a quarter of a beat later, so that bytes
// that have just arrived are read.
func (h *Heartbeat) Check(now int64, read bool) (event Event, wait time.Duration) {
	silenceEnd := h.heardAt + 2*h.beat
	silent := read && now >= silenceEnd
	if silent && h.suspected {
		return Lost, 0
	}
	if h.suspected = silent; silent {
		return None, time.Duration(h.beat / 4)
	}
	switch {
	case now >= h.pingAt:
		event, h.pingedAt, h.doubtAt = Ping, now, now+h.beat/8
		h.pingAt += h.beat * ((now-h.pingAt)/h.beat + 1)
	case now >= h.doubtAt:
		if h.doubtAt = math.MaxInt64; read && h.heardAt < h.pingedAt {
			event, h.doubtful = Doubtful, true
		}
	}
	// The last byte may have arrived between two pings, so the limit of silence may be reached
	// between two pings, too.
	if silenceEnd <= now { // nothing is being read
		silenceEnd = h.pingAt
	}
	return event, time.Duration(min(h.pingAt, silenceEnd, h.doubtAt) - now)
}
