// Package journal keeps accepted lines on this host's disk until a store has
// them. It knows nothing of stores.
package journal

import (
	"errors"
	"time"

	"gloom/cmd/serverlessd/job"
)

// Errors of Append.
var (
	ErrFull   = errors.New("the journal is full")
	ErrFailed = errors.New("the journal could not be written")
	ErrClosed = errors.New("the journal is closed")
)

// ErrLocked is returned by Open where another daemon has the directory.
var ErrLocked = errors.New("another daemon has this directory")

// Batch is lines of one type, accepted together.
type Batch struct {
	Jobtype string
	Lines   [][]byte  // none empty, without the newline
	Due     time.Time // zero: at once
}

// Entry is a line that was read.
type Entry struct {
	ID       job.ID
	Jobtype  string
	Payload  []byte // without the newline; the entry's
	Accepted time.Time
	Due      time.Time // zero: at once
}

// Range is a piece of a journal: of one segment, whose name is unique in the
// world.
type Range struct {
	Segment  string
	From, To int64
}
