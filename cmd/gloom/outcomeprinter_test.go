package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	gloom "gloom/clients/go"
)

// TestErrorParts: a job that was lost with its connection is reported as lost, even if an attach to
// the job was refused.
func TestErrorParts(t *testing.T) {
	refusal := &gloom.RefusedError{Code: gloom.ErrUnknownID, ID: "a", Reason: "no kept job has this id"}
	for _, c := range []struct {
		err        error
		code, want string
	}{
		{refusal, "unknown_id", refusal.Reason},
		{&gloom.LostError{ID: "a", Cause: errors.New("reset")}, "connection_lost", "before the broker accepted"},
		{&gloom.LostError{ID: "a", Acked: true, Cause: refusal}, "connection_lost", "while the job was queued or running, and its outcome cannot be read: " + refusal.Reason},
	} {
		code, reason, id := errorParts(c.err)
		if code != c.code || !strings.Contains(reason, c.want) || id != "a" {
			t.Errorf("%v: %q, %q, %q; want %q with %q", c.err, code, reason, id, c.code, c.want)
		}
	}
}

// TestStoppedInOrder: when a stream is stopped, answers that wait for earlier answers are printed,
// because they would be lost; only lines that will run again are left out.
func TestStoppedInOrder(t *testing.T) {
	for _, resume := range []bool{false, true} {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		s := &submitCommand{tool: &tool{stdout: out, stderr: out}, ordered: true, number: true, quiet: true, resume: resume}
		st := &stream{submitCommand: s, printer: newOutcomePrinter(s, nil), unprinted: make(chan struct{}, 9), outcomes: make(chan lineResult, 9), retry: make(chan line, 9), room: make(chan struct{}, 1)}
		for _, seq := range []int{4, 0, 2, 3} {
			st.unprinted <- struct{}{}
			st.outcomes <- lineResult{line: line{index: seq, number: seq + 1}, Result: gloom.Result{Body: []byte(strconv.Itoa(seq))}}
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		n, err := st.print(ctx)
		_ = st.printer.flush()
		printed, _ := os.ReadFile(out.Name())
		want := "1\t0\n3\t2\n4\t3\n5\t4\n"
		if resume {
			want = "1\t0\n"
		}
		if err != nil || string(printed) != want || n.answered != strings.Count(want, "\n") {
			t.Errorf("resume %t: printed %q of %d answers, %v; want %q", resume, printed, n.answered, err, want)
		}
	}
}
