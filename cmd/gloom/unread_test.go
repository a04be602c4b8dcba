package main

import (
	"io"
	"testing"
	"time"

	"gloom/cmd/internal/cli"
)

// TestUnreadCount: what is said of lost lines does not count as written for the caller, since a
// count beyond the text is an error to io.Copy and others.
func TestUnreadCount(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	u := unread{cli.NewOutlet(w, time.Millisecond)}
	told := false
	go func() {
		time.Sleep(20 * time.Millisecond) // meanwhile lines are lost
		_, _ = io.Copy(io.Discard, r)
	}()
	for end := time.Now().Add(patience); !told && time.Now().Before(end); time.Sleep(time.Millisecond) {
		told = u.Lost() > 0
		if n, err := u.Write([]byte("a line\n")); n != 7 || err != nil {
			t.Fatal(n, err)
		}
	}
	if !told {
		t.Error("no line was lost")
	}
}
