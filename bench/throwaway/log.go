package throwaway

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Log keeps what is written to it, by a process or a logger. The zero value is
// empty and may be used by several at once.
type Log struct {
	mu    sync.Mutex
	text  []byte
	waits []wait
}

// wait is for the first line that contains a text and is not before from.
type wait struct {
	text string
	from int
	line chan string
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	left := l.waits[:0]
	for _, w := range l.waits {
		if !w.met(l.text) {
			left = append(left, w)
		}
	}
	l.waits = left
	return len(p), nil
}

// met looks at the lines that are complete.
func (w *wait) met(text []byte) bool {
	for {
		n := bytes.IndexByte(text[w.from:], '\n')
		if n < 0 {
			return false
		}
		line := string(text[w.from : w.from+n])
		w.from += n + 1
		if strings.Contains(line, w.text) {
			w.line <- line
			return true
		}
	}
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Await waits, for a minute at the most, until there is a line that contains the text.
func (l *Log) Await(text string) error {
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-l.await(text):
		return nil
	case <-timer.C:
		return fmt.Errorf("nobody said %q within %s:\n%s", text, startTimeout, l)
	}
}

// await gives the first line that contains the text.
func (l *Log) await(text string) <-chan string {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := wait{text: text, line: make(chan string, 1)}
	if !w.met(l.text) {
		l.waits = append(l.waits, w)
	}
	return w.line
}
