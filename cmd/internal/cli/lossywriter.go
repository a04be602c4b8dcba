package cli

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// resumeTimeout limits the time that the first line after lost lines may take, even if the writer's
// timeout is longer.
const resumeTimeout = time.Millisecond

// LossyWriter writes lines to a file whose writes may hang: nobody reads the pipe or the terminal,
// or the file server is dead. While one hangs, further lines are dropped, so that logging never
// blocks the program. Whether a write will hang cannot be known, so a goroutine of the writer writes.
type LossyWriter struct {
	out       io.Writer
	timeout   time.Duration
	lostLines atomic.Int64 // lines since the last one that was written

	// LossNotice returns the text to write before the first line that follows lost lines. It is set
	// before the first Write, and may be nil.
	LossNotice func(lostLines int64) string

	mu              sync.Mutex
	lines           chan []byte // to the goroutine, which starts with the first line
	results         chan error  // from the goroutine: one error or nil for each line
	timer           *time.Timer
	isHanging       bool  // a line is still being written
	lostAtLineStart int64 // the value of lostLines when that line began
}

// NewLossyWriter returns a LossyWriter that writes to another writer. A line may take as long as
// timeout; after that time, other lines are dropped at once until that line is written.
func NewLossyWriter(to io.Writer, timeout time.Duration) *LossyWriter {
	return &LossyWriter{out: to, timeout: timeout}
}

// Lost returns how many lines were lost since the last line that was written. The number may change
// before the caller writes a line: only LossNotice gets the exact number.
func (l *LossyWriter) Lost() int64 { return l.lostLines.Load() }

// start starts the goroutine that writes, which never ends; l.mu is held.
func (l *LossyWriter) start() {
	l.lines, l.results, l.timer = make(chan []byte, 1), make(chan error, 1), time.NewTimer(l.timeout)
	go func() {
		for line := range l.lines {
			_, err := l.out.Write(line)
			l.results <- err
		}
	}()
}

// Write implements io.Writer. A lost line is not an error.
func (l *LossyWriter) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.start()
	}
	if l.isHanging {
		select {
		case err := <-l.results:
			l.writeEnded(err)
		default:
			l.lostLines.Add(1)
			return len(line), nil
		}
	}
	wait, text := l.timeout, bytes.Clone(line)
	if l.lostAtLineStart = l.lostLines.Load(); l.lostAtLineStart > 0 {
		wait = min(wait, resumeTimeout)
		if l.LossNotice != nil {
			text = append([]byte(l.LossNotice(l.lostAtLineStart)), text...)
		}
	}
	l.timer.Reset(wait)
	defer l.timer.Stop()
	l.lines <- text // does not block: the goroutine has no line now
	select {
	case err := <-l.results:
		l.writeEnded(err)
		return len(line), err
	case <-l.timer.C:
		l.isHanging = true
		return len(line), nil
	}
}

// writeEnded is called when a write has returned; l.mu is held.
func (l *LossyWriter) writeEnded(err error) {
	l.isHanging = false
	if err == nil {
		l.lostLines.Add(-l.lostAtLineStart) // the line says how many were lost
	}
}
