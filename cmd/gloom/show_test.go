package main

import (
	"errors"
	"strings"
	"testing"

	gloom "gloom/clients/go"
)

// TestAnatomy: a job that went with its connection is told as lost, also where
// attaching to it was refused.
func TestAnatomy(t *testing.T) {
	gone := &gloom.RefusedError{Code: gloom.ErrUnknownID, ID: "a", Reason: "no kept job has this id"}
	for _, c := range []struct {
		err        error
		code, says string
	}{
		{gone, "unknown_id", gone.Reason},
		{&gloom.LostError{ID: "a", Cause: errors.New("reset")}, "connection_lost", "before the job was taken"},
		{&gloom.LostError{ID: "a", Acked: true, Cause: gone}, "connection_lost", "while the job was queued or running, and what became of it cannot be had: " + gone.Reason},
	} {
		code, reason, id := anatomy(c.err)
		if code != c.code || !strings.Contains(reason, c.says) || id != "a" {
			t.Errorf("%v: %q, %q, %q; want %q with %q", c.err, code, reason, id, c.code, c.says)
		}
	}
}
