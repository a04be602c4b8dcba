package daemon

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// How long a line waits for a reader that has just stopped reading, or for a file. Later lines
// wait for nobody until that line is written.
const (
	consolePatience = 100 * time.Millisecond
	filePatience    = time.Second
	againPatience   = time.Millisecond // of the first line after lost ones
)

// outlet writes lines to a file whose writes may hang: nobody reads the pipe or the terminal, or the
// file server is dead. It loses lines then: the daemon must not stand still because of its log.
// Whether a write will hang cannot be asked before, so each has its own goroutine.
type outlet struct {
	to       io.Writer
	patience time.Duration
	lost     atomic.Int64 // lines since the last one that was written

	mu      sync.Mutex
	hanging chan error // of the line that is still being written; nil if there is none
	said    int64      // lost, when that line began
}

// Write implements io.Writer. A lost line is not an error.
func (o *outlet) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hanging != nil {
		select {
		case err := <-o.hanging:
			o.ended(err)
		default:
			o.lost.Add(1)
			return len(line), nil
		}
	}
	wait := o.patience
	if o.said = o.lost.Load(); o.said > 0 {
		wait = min(wait, againPatience)
	}
	written := make(chan error, 1)
	go func(to io.Writer, line []byte) {
		_, err := to.Write(line)
		written <- err
	}(o.to, bytes.Clone(line))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-written:
		o.ended(err)
		return len(line), err
	case <-timer.C:
		o.hanging = written
		return len(line), nil
	}
}

// ended is called when a write has returned; o.mu is held.
func (o *outlet) ended(err error) {
	o.hanging = nil
	if err == nil {
		o.lost.Add(-o.said) // the line has told them
	}
}

// complaints gets the errors of writes, as of a full disk.
var complaints = &outlet{to: os.Stderr, patience: consolePatience}

func init() {
	zerolog.ErrorHandler = func(err error) { fmt.Fprintf(complaints, "cannot write the log: %v\n", err) }
}
