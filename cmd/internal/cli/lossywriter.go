package cli

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// resumeTimeout bounds how long the first line after lost ones may take, even if the writer's
// timeout is longer.
const resumeTimeout = time.Millisecond

// LossyWriter writes lines to a file whose writes may hang: nobody reads the pipe or the terminal,
// or the file server is dead. It loses lines then: the program must not stand still because of its
// log. Nothing tells in advance whether a write will hang, so a goroutine of the writer writes.
type LossyWriter struct {
	w       io.Writer
	timeout time.Duration
	lost    atomic.Int64 // lines since the last one that was written

	// LossNotice returns what is written before the first line after lost ones. It is set before the
	// first Write, and may be nil.
	LossNotice func(lost int64) string

	mu       sync.Mutex
	lines    chan []byte // to the goroutine, which starts with the first line
	results  chan error  // from the goroutine: one error or nil for each line
	timer    *time.Timer
	hanging  bool  // a line is still being written
	reported int64 // the value of lost when that line began
}

// NewLossyWriter returns a LossyWriter that writes to another writer. A line may take as long as
// timeout; later lines then wait for nobody until that line is written.
func NewLossyWriter(to io.Writer, timeout time.Duration) *LossyWriter {
	return &LossyWriter{w: to, timeout: timeout}
}

// Lost returns how many lines were lost since the last one that was written. Other lines may be
// lost or written before the caller's next one: only LossNotice gets the exact number.
func (o *LossyWriter) Lost() int64 { return o.lost.Load() }

// start starts the goroutine, which never ends; o.mu is held.
func (o *LossyWriter) start() {
	o.lines, o.results, o.timer = make(chan []byte, 1), make(chan error, 1), time.NewTimer(o.timeout)
	go func() {
		for l := range o.lines {
			_, err := o.w.Write(l)
			o.results <- err
		}
	}()
}

// Write implements io.Writer. A lost line is not an error.
func (o *LossyWriter) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lines == nil {
		o.start()
	}
	if o.hanging {
		select {
		case err := <-o.results:
			o.writeEnded(err)
		default:
			o.lost.Add(1)
			return len(line), nil
		}
	}
	wait, text := o.timeout, bytes.Clone(line)
	if o.reported = o.lost.Load(); o.reported > 0 {
		wait = min(wait, resumeTimeout)
		if o.LossNotice != nil {
			text = append([]byte(o.LossNotice(o.reported)), text...)
		}
	}
	o.timer.Reset(wait)
	defer o.timer.Stop()
	o.lines <- text // does not block: the goroutine waits for it
	select {
	case err := <-o.results:
		o.writeEnded(err)
		return len(line), err
	case <-o.timer.C:
		o.hanging = true
		return len(line), nil
	}
}

// writeEnded is called when a write has returned; o.mu is held.
func (o *LossyWriter) writeEnded(err error) {
	o.hanging = false
	if err == nil {
		o.lost.Add(-o.reported) // the line says how many were lost
	}
}
