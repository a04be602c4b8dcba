package gloom

import "time"

// Event is what a Notice is about.
type Event uint8

const (
	// EventConnected: a connection stands, hello included.
	EventConnected Event = iota + 1
	// EventJoined: a worker's socket has joined its type.
	EventJoined
	// EventLost: a connection was lost. Err says why, Wait when the next attempt is.
	EventLost
	// EventFailed: an attempt to connect or join failed; Err and Wait as above.
	EventFailed
	// EventGivenUp: a broker refuses the worker for good. This socket makes no further
	// attempt.
	EventGivenUp
	// EventPanic: a handler panicked; Err is a *PanicError.
	EventPanic
)

var eventNames = [...]string{"none", "connected", "joined", "lost", "failed", "given up", "panic"}

func (e Event) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return eventNames[0]
}

// Notice reports something that no caller waits for.
type Notice struct {
	Event Event
	Addr  string        // the broker
	Err   error         // nil for EventConnected and EventJoined
	Wait  time.Duration // until the next attempt
}
