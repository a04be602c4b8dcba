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
	againPatience   = time.Millisecond // for the first line after lines were lost
)

// outlet writes lines to a file whose writes may hang: nobody reads the pipe or the terminal, or the
// file server is dead. It loses lines then: the daemon must not stand still because of its log.
// Nothing tells in advance whether a write will hang, so a goroutine of the outlet writes.
type outlet struct {
	to       io.Writer
	patience time.Duration
	lost     atomic.Int64 // lines since the last one that was written

	mu      sync.Mutex
	lines   chan outLine // to the goroutine, which starts with the first line
	written chan error   // from the goroutine: one error or nil for each line
	timer   *time.Timer
	hanging bool  // a line is still being written
	said    int64 // the value of lost when that line began
}

type outLine struct {
	to   io.Writer
	text []byte
}

// start starts the goroutine, which never ends; o.mu is held.
func (o *outlet) start() {
	o.lines, o.written, o.timer = make(chan outLine, 1), make(chan error, 1), time.NewTimer(o.patience)
	go func() {
		for l := range o.lines {
			_, err := l.to.Write(l.text)
			o.written <- err
		}
	}()
}

// Write implements io.Writer. A lost line is not an error.
func (o *outlet) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lines == nil {
		o.start()
	}
	if o.hanging {
		select {
		case err := <-o.written:
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
	o.timer.Reset(wait)
	defer o.timer.Stop()
	o.lines <- outLine{o.to, bytes.Clone(line)} // does not block: the goroutine waits for it
	select {
	case err := <-o.written:
		o.ended(err)
		return len(line), err
	case <-o.timer.C:
		o.hanging = true
		return len(line), nil
	}
}

// ended is called when a write has returned; o.mu is held.
func (o *outlet) ended(err error) {
	o.hanging = false
	if err == nil {
		o.lost.Add(-o.said) // the line says how many were lost
	}
}

// complaints gets the errors of writes, as of a full disk.
var complaints = &outlet{to: os.Stderr, patience: consolePatience}

func init() {
	zerolog.ErrorHandler = func(err error) { fmt.Fprintf(complaints, "cannot write the log: %v\n", err) }
}
