package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestUnreadCount: the notice of lost lines is not in the count of bytes written, since io.Copy and
// others treat a count beyond the text as an error.
func TestUnreadCount(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	u := newStderrWriter(w, time.Millisecond)
	linesLost := false
	go func() {
		time.Sleep(20 * time.Millisecond) // meanwhile lines are lost
		_, _ = io.Copy(io.Discard, r)
	}()
	for end := time.Now().Add(patience); !linesLost && time.Now().Before(end); time.Sleep(time.Millisecond) {
		linesLost = u.Lost() > 0
		if n, err := u.Write([]byte("a line\n")); n != 7 || err != nil {
			t.Fatal(n, err)
		}
	}
	if !linesLost {
		t.Error("no line was lost")
	}
}

// slowReader counts the lines that reach it, and the lines that were reported as lost.
type slowReader struct{ lines, lostLines atomic.Int64 }

func (s *slowReader) Write(text []byte) (int, error) {
	time.Sleep(100 * time.Microsecond) // meanwhile lines are lost
	for l := range strings.Lines(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(strings.ReplaceAll(l, ",", ""), "gloom: lost %d", &n); err == nil {
			s.lostLines.Add(n)
		} else {
			s.lines.Add(1)
		}
	}
	return len(text), nil
}

// TestUnreadLineCount: every line is either written or counted as lost, exactly once, however many
// jobs write at a time.
func TestUnreadLineCount(t *testing.T) {
	to := &slowReader{}
	u := newStderrWriter(to, 10*time.Microsecond)
	const writers, linesPerWriter = 8, 500
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range linesPerWriter {
				_, _ = u.Write([]byte("a line\n"))
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	ends := 0
	for ; ends == 0 || u.Lost() > 0; ends++ { // until a line with the number of lost lines was written
		_, _ = u.Write([]byte("the end\n"))
		time.Sleep(time.Millisecond)
	}
	if sum := int(to.lines.Load() + to.lostLines.Load()); sum < writers*linesPerWriter || sum > writers*linesPerWriter+ends {
		t.Errorf("%d lines and %d lost ones are %d, not %d", to.lines.Load(), to.lostLines.Load(), sum, writers*linesPerWriter)
	}
}
