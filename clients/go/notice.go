package gloom

import "time"

// Event is what a Notice is about, in plain words.
type Event string

const (
	// EventConnected: a connection has been established, hello included.
	EventConnected Event = "connected"
	// EventJoined: a worker's socket has joined its type.
	EventJoined Event = "joined"
	// EventLost: a connection was lost. Err says why, and Wait how long it is until the next
	// attempt.
	EventLost Event = "lost"
	// EventFailed: an attempt to connect or join failed; Err and Wait are as above.
	EventFailed Event = "failed"
	// EventGivenUp: a broker refuses the worker permanently. This socket makes no further
	// attempts.
	EventGivenUp Event = "given up"
	// EventPanic: a handler panicked; Err is a *PanicError.
	EventPanic Event = "panic"
)

func (e Event) String() string { return string(e) }

// Notice reports something that no caller waits for.
type Notice struct {
	Event Event
	Addr  string        // the broker
	Err   error         // nil for EventConnected and EventJoined
	Wait  time.Duration // until the next attempt
}
