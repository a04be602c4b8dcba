package gloom

import "time"

// Event says in plain words what a Notice is about.
type Event string

const (
	EventConnected Event = "connected" // a connection has been established, hello included
	EventJoined    Event = "joined"    // a worker's socket has joined its type
	EventLost      Event = "lost"      // a connection was lost; Err says why, Wait how long it is until the next attempt
	EventFailed    Event = "failed"    // an attempt to connect or join failed; Err and Wait are as above
	EventGivenUp   Event = "given up"  // a broker refuses the worker permanently; this socket makes no further attempts
	EventPanic     Event = "panic"     // a handler panicked; Err is a *PanicError
)

func (e Event) String() string { return string(e) }

// Notice reports something that no caller waits for.
type Notice struct {
	Event    Event
	Addr     string        // the broker's address
	Err      error         // nil for EventConnected and EventJoined
	Wait     time.Duration // the time until the next attempt
	MaxFrame int           // for a submitter's EventConnected: the largest frame, in bytes, that this broker accepts
}
