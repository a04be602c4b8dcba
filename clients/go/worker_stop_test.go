package gloom_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	gloom "gloom/clients/go"
)

func TestStopFinishesRuns(t *testing.T) {
	f := newFakeBroker(t)
	running, release := make(chan struct{}), make(chan struct{})
	w := &gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		close(running)
		<-release
		return "done", ctx.Err()
	}}
	broker := startJoinedWorker(t, f, w)
	broker.send(jobFrame("a", "1"))
	receive(t, running, "the job")
	stopErrs := make(chan error, 2)
	for range 2 {
		go func() { stopErrs <- w.Stop(waitContext(t)) }()
	}
	broker.expect(`{"action":"leave"}`)
	broker.send(`{"ok":true}`)
	close(release)
	broker.expect(`{"action":"respond","body":"done"}`)
	select {
	case err := <-stopErrs:
		t.Fatalf("stopped before the broker has the answer: %v", err)
	default:
	}
	broker.send(`{"ok":true}`)
	broker.expectClose()
	for range 2 {
		if err := receive(t, stopErrs, "Stop"); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Err(); err != nil {
		t.Error(err)
	}
}

func TestJobDuringLeaveIsAnswered(t *testing.T) {
	f := newFakeBroker(t)
	w := &gloom.Worker{Handler: echoHandler}
	broker := startJoinedWorker(t, f, w)
	stopErr := make(chan error, 1)
	go func() { stopErr <- w.Stop(waitContext(t)) }()
	broker.expect(`{"action":"leave"}`)
	broker.send(jobFrame("a", "1"), `{"ok":true}`)
	broker.expect(`{"action":"respond","body":1}`)
	broker.send(`{"ok":true}`)
	broker.expectClose()
	if err := receive(t, stopErr, "Stop"); err != nil {
		t.Fatal(err)
	}
}

// Jobs that wait for a handler when the worker stops are released, or handled if the
// broker does not know release.
func TestStopReleasesWaitingJobs(t *testing.T) {
	for reply, knowsRelease := range map[string]bool{`{"ok":true}`: true, `{"error":"unknown_action","reason":"what?"}`: false} {
		f := newFakeBroker(t)
		running, finish := make(chan string, 3), make(chan struct{})
		w := &gloom.Worker{Concurrency: 1, Prefetch: 3, Handler: func(_ context.Context, job *gloom.Job) (any, error) {
			running <- job.ID
			<-finish
			return 1, nil
		}}
		broker := startJoinedWorker(t, f, w)
		broker.send(jobFrame("a", "1"), jobFrame("b", "1"))
		receive(t, running, "the job")
		stopErr := make(chan error, 1)
		go func() { stopErr <- w.Stop(waitContext(t)) }()
		broker.expect(`{"action":"leave"}`, `{"action":"release","id":"b"}`)
		broker.send(jobFrame("c", "1"), `{"ok":true}`, reply) // c was sent before the leave arrived
		broker.expect(`{"action":"release","id":"c"}`)
		broker.send(reply)
		close(finish)
		broker.expect(`{"action":"respond","id":"a","body":1}`)
		broker.send(`{"ok":true}`)
		if !knowsRelease {
			for _, id := range []string{"b", "c"} {
				broker.expect(fmt.Sprintf(`{"action":"respond","id":%q,"body":1}`, id))
				broker.send(`{"ok":true}`)
			}
		}
		broker.expectClose()
		if err := receive(t, stopErr, "Stop"); err != nil {
			t.Fatal(err)
		}
		if starts := 1 + len(running); starts != map[bool]int{true: 1, false: 3}[knowsRelease] {
			t.Errorf("%d jobs began", starts)
		}
	}
}

func TestStopEndsAfterTimeout(t *testing.T) {
	f := newFakeBroker(t)
	running := make(chan struct{})
	cause := make(chan error, 1)
	w := &gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		close(running)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, nil
	}}
	broker := startJoinedWorker(t, f, w)
	broker.send(jobFrame("a", "1"))
	receive(t, running, "the job")
	ctx, cancel := context.WithCancel(context.Background())
	runErr := make(chan error, 1)
	go func() { runErr <- w.Stop(ctx) }()
	broker.expect(`{"action":"leave"}`)
	cancel()
	wantError(t, receive(t, runErr, "Stop"), context.Canceled)
	wantError(t, receive(t, cause, "the end of the context"), gloom.ErrClosed)
	broker.expectClose() // and no answer from a handler whose context has ended
	receive(t, w.Done(), "the end of the worker")
}

func TestRunEndsWithContext(t *testing.T) {
	f := newFakeBroker(t)
	type key struct{}
	value := make(chan any, 1)
	w := &gloom.Worker{Type: "echo", Options: []gloom.Option{gloom.Addrs(f.addr())},
		Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
			value <- ctx.Value(key{})
			return nil, nil
		}}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "carried"))
	runErr := make(chan error, 1)
	go func() { runErr <- w.Run(ctx) }()
	broker := f.accept()
	broker.expect(joinFrame)
	broker.send(`{"ok":true}`, jobFrame("a", "1"))
	if v := receive(t, value, "the job"); v != "carried" {
		t.Errorf("the context carries %v", v)
	}
	broker.read()
	cancel()
	broker.expect(`{"action":"leave"}`)
	broker.send(`{"ok":true}`, `{"ok":true}`)
	if err := receive(t, runErr, "Run"); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(ctx); err == nil {
		t.Error("a second Run succeeded")
	}
}

func TestStartEndsWithContext(t *testing.T) {
	f := newFakeBroker(t)
	w := &gloom.Worker{Type: "echo", Handler: echoHandler, Options: []gloom.Option{gloom.Addrs(f.addr())}}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	wantError(t, w.Start(ctx), context.DeadlineExceeded)
	receive(t, w.Done(), "the end of the worker")
}

func TestUnknownLeaveClosesConnection(t *testing.T) {
	f := newFakeBroker(t)
	w := &gloom.Worker{Handler: echoHandler}
	broker := startJoinedWorker(t, f, w)
	go w.Stop(waitContext(t))
	broker.expect(`{"action":"leave"}`)
	broker.send(`{"error":"unknown_action","reason":"no leave"}`)
	broker.expectClose()
}

func TestJobAfterLeaveIsGivenBack(t *testing.T) {
	f := newFakeBroker(t)
	release := make(chan struct{})
	w := &gloom.Worker{Handler: func(context.Context, *gloom.Job) (any, error) { <-release; return nil, nil }}
	broker := startJoinedWorker(t, f, w)
	broker.send(jobFrame("a", "1"))
	stopErr := make(chan error, 1)
	go func() { stopErr <- w.Stop(waitContext(t)) }()
	broker.expect(`{"action":"leave"}`)
	broker.send(`{"ok":true}`, jobFrame("b", "1")) // this breaks the protocol; the close releases b
	broker.expectClose()
	close(release)
	if err := receive(t, stopErr, "Stop"); err != nil {
		t.Fatal(err)
	}
}

func TestStopEndsConnecting(t *testing.T) {
	ours, theirs := net.Pipe()
	dialling := make(chan struct{})
	w := &gloom.Worker{Type: "echo", Handler: echoHandler, Options: []gloom.Option{gloom.Dialer(
		func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(dialling)
			<-ctx.Done() // stopped, but still connected
			return ours, nil
		})}}
	runErr := make(chan error, 1)
	go func() { runErr <- w.Run(context.Background()) }()
	receive(t, dialling, "the attempt")
	if err := w.Stop(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	newPeer(t, theirs).expectClose()
	if err := receive(t, runErr, "Run"); err != nil {
		t.Fatal(err)
	}
}
