package main

import (
	"context"
	"testing"
	"time"

	"gloom/cmd/internal/launch"
)

// TestCommandThatHasEnded: a command that ended in time counts, even if its end is seen when its
// time is over, too, or nobody waits for it any more.
func TestCommandThatHasEnded(t *testing.T) {
	p, err := launch.Start(launch.Command{Args: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // which event is seen first is random
		if reason := (&command{timeout: time.Nanosecond}).waitOrStop(ctx, p, nil); reason != nil {
			t.Fatal(reason)
		}
	}
}
