package throwaway

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Log keeps what a process or a logger writes to it. The zero value is empty and may be
// used by several goroutines at once.
type Log struct {
	mu        sync.Mutex
	text      []byte
	lineWaits []lineWait
}

// lineWait describes a line for which a caller waits: the first line that contains text and begins
// at from or later.
type lineWait struct {
	text string
	from int
	line chan string
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	left := l.lineWaits[:0]
	for _, w := range l.lineWaits {
		if !w.matches(l.text) {
			left = append(left, w)
		}
	}
	l.lineWaits = left
	return len(p), nil
}

// matches reports whether a complete line matches, and sends that line to the waiter.
func (w *lineWait) matches(text []byte) bool {
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

// Await waits, for at most a minute, until there is a line that contains the text.
func (l *Log) Await(text string) error {
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-l.await(text):
		return nil
	case <-timer.C:
		return fmt.Errorf("nothing logged %q within %s:\n%s", text, startTimeout, l)
	}
}

// await returns a channel that receives the first line that contains the text.
func (l *Log) await(text string) <-chan string {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := lineWait{text: text, line: make(chan string, 1)}
	if !w.matches(l.text) {
		l.lineWaits = append(l.lineWaits, w)
	}
	return w.line
}
