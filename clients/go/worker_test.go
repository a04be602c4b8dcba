package gloom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gloom "gloom/clients/go"
)

const joinFrame = `{"action":"join","type":"echo","cancel":true}`

func jobFrame(id, body string) string {
	return fmt.Sprintf(`{"action":"job","id":%q,"type":"echo","body":%s}`, id, body)
}

// startJoinedWorker starts a worker on a fake, and completes the join of its first connection.
func startJoinedWorker(t *testing.T, f *fakeBroker, w *gloom.Worker, opts ...gloom.Option) *peer {
	t.Helper()
	startWorker(t, f, w, opts...)
	broker := f.accept()
	want := joinFrame
	if w.Prefetch > 0 {
		want = fmt.Sprintf(`{"action":"join","type":"echo","prefetch":%d,"cancel":true}`, w.Prefetch)
	}
	broker.expect(want)
	broker.send(`{"ok":true}`)
	return broker
}

// startWorker starts a worker, and stops it at the end of the test.
func startWorker(t *testing.T, f *fakeBroker, w *gloom.Worker, opts ...gloom.Option) {
	t.Helper()
	w.Type = "echo"
	w.Options = append([]gloom.Option{gloom.Addrs(f.addr()), quickBackoff}, opts...)
	runErr := make(chan error, 1)
	go func() { runErr <- w.Start(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		f.ln.Close()
		runCtx, cancelRun := context.WithCancel(ctx)
		cancelRun()
		w.Stop(runCtx)
		<-runErr
		select {
		case <-w.Done():
		case <-ctx.Done():
			t.Error("the worker did not end")
		}
	})
}

// echoHandler is a handler that answers with the body.
func echoHandler(_ context.Context, job *gloom.Job) (any, error) { return job.Body, nil }

func TestWorkerAnswers(t *testing.T) {
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		switch job.ID {
		case "raw":
			return json.RawMessage(`{"verbatim": 1E400}`), nil
		case "bytes":
			return []byte(` [1]`), nil
		case "nil":
			return nil, nil
		case "nil body":
			return json.RawMessage(nil), nil
		}
		return map[string]any{"id": job.ID, "type": job.Type, "body": job.Body}, nil
	}})
	for _, c := range [][2]string{
		{jobFrame("raw", "1"), `{"action":"respond","body":{"verbatim": 1E400}}`},
		{jobFrame("bytes", "1"), `{"action":"respond","body": [1]}`},
		{jobFrame("nil", "1"), `{"action":"respond","body":null}`},
		{jobFrame("nil body", "1"), `{"action":"respond","body":null}`},
		{`{"action":"job","id":"\u00e9\"","type":"t","body":[7]}`, `{"action":"respond","body":{"body":[7],"id":"é\"","type":"t"}}`},
	} {
		broker.send(c[0])
		broker.expect(c[1])
		broker.send(`{"ok":true}`)
	}
}

// TestLongJobWithoutHello: without a hello the client does not know the broker's limit, which may be
// larger than its own default.
func TestLongJobWithoutHello(t *testing.T) {
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		return len(job.Body), nil
	}})
	broker.send(jobFrame("a", `"`+strings.Repeat("x", 17<<20)+`"`))
	broker.expect(fmt.Sprintf(`{"action":"respond","body":%d}`, 17<<20+2))
	broker.send(`{"ok":true}`)
}

func TestHandlerErrorsAreSent(t *testing.T) {
	errs := map[string]error{
		"plain":   errors.New("disk full"),
		"quoted":  errors.New("line 1\n\"line 2\"\xff"),
		"empty":   errors.New(""),
		"fatal":   gloom.Fatal(errors.New("bad input")),
		"wrapped": fmt.Errorf("mail: %w", gloom.Fatal(errors.New("bad input"))),
		"later":   gloom.RetryAfter(errors.New("busy"), 1500*time.Millisecond),
		"soon":    gloom.RetryAfter(errors.New("busy"), 0),
		"not now": fmt.Errorf("mail: %w", gloom.Release(time.Minute)),
		"not I":   gloom.Release(0),
	}
	var n notices
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		switch job.ID {
		case "panic":
			panic("boom")
		case "nil map":
			var m map[string]int
			//lint:ignore SA5000 the panic is the point
			m["x"] = 1
		case "unencodable":
			return make(chan int), nil
		case "broken":
			return json.RawMessage(`{"a":1},"b":2`), nil
		case "large":
			return strings.Repeat("x", 3000), nil
		}
		return nil, errs[job.ID]
	}}, n.option(), gloom.MaxFrame(2000))
	for id, want := range map[string]string{
		"plain":       `{"action":"fail","reason":"disk full"}`,
		"quoted":      `{"action":"fail","reason":"line 1\n\"line 2\"` + "\uFFFD" + `"}`,
		"empty":       `{"action":"fail","reason":"failed by the worker"}`,
		"fatal":       `{"action":"fail","reason":"bad input","retry":false}`,
		"wrapped":     `{"action":"fail","reason":"mail: bad input","retry":false}`,
		"later":       `{"action":"fail","reason":"busy","delay_ms":1500}`,
		"soon":        `{"action":"fail","reason":"busy","delay_ms":0}`,
		"not now":     `{"action":"release","delay_ms":60000}`,
		"not I":       `{"action":"release"}`,
		"panic":       `{"action":"fail","reason":"panic: boom"}`,
		"nil map":     `{"action":"fail","reason":"panic: assignment to entry in nil map"}`,
		"unencodable": `{"action":"fail","reason":"encode answer: json: unsupported type: chan int","retry":false}`,
		"broken":      `{"action":"fail","reason":"answer: not one JSON value: not json at byte 7: ,\"b\":2","retry":false}`,
		"large":       `{"action":"fail","reason":"answer makes a frame of 3030 bytes, at most 2000 are allowed","retry":false}`,
	} {
		broker.send(jobFrame(id, "1"))
		broker.expect(want)
		broker.send(`{"ok":true}`)
	}
	notice, ok := n.find(gloom.EventPanic)
	var p *gloom.PanicError
	if !ok || !errors.As(notice.Err, &p) || !strings.Contains(string(p.Stack), "worker_test.go") {
		t.Errorf("panic notice: %v", notice.Err)
	}
	if gloom.Fatal(nil) != nil || gloom.RetryAfter(nil, time.Second) != nil {
		t.Error("Fatal or RetryAfter made an error of nil")
	}
}

// An error that is a nil pointer may panic in Error or Unwrap.
func TestErrorThatPanicsFailsItsRunOnly(t *testing.T) {
	errs := map[string]error{"a": (*os.PathError)(nil), "b": (*net.OpError)(nil)}
	var n notices
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		return nil, errs[job.ID]
	}}, n.option())
	for id := range errs {
		broker.send(jobFrame(id, "1"))
		broker.expect(`{"action":"fail","reason":"panic: runtime error: invalid memory address or nil pointer dereference"}`)
		broker.send(`{"ok":true}`)
	}
}

// Without Notify, the standard logger reports a panic and its stack.
func TestPanicIsLogged(t *testing.T) {
	var logText strings.Builder
	log.SetOutput(&logText)
	defer log.SetOutput(os.Stderr)
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(context.Context, *gloom.Job) (any, error) { panic("boom") }})
	broker.send(jobFrame("a", "1"))
	broker.expect(`{"action":"fail","reason":"panic: boom"}`) // sent after the log
	for _, want := range []string{`handler panicked on job "a": boom`, "goroutine ", "worker_test.go"} {
		if !strings.Contains(logText.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, logText.String())
		}
	}
}

func TestLongReasonIsCut(t *testing.T) {
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(context.Context, *gloom.Job) (any, error) {
		return nil, errors.New(strings.Repeat("é", 100_000))
	}})
	broker.send(jobFrame("a", "1"))
	if got := broker.read(); len(got) > 5000 || !strings.HasSuffix(got, `é…"}`) {
		t.Errorf("%d bytes", len(got))
	}
}

func TestCancelNoticeEndsContext(t *testing.T) {
	running := make(chan string, 1)
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		running <- job.ID
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}})
	broker.send(jobFrame("a", "1"))
	receive(t, running, "the job")
	broker.send(`{"action":"cancel","id":"other"}`, `{"action":"cancel","id":"a"}`)
	broker.expect(`{"action":"fail","reason":"cancelled"}`)
	// A cancel notice that was sent before the answer arrived has no effect.
	broker.send(`{"action":"cancel","id":"a"}`, `{"ok":true}`, jobFrame("b", "1"))
	if id := receive(t, running, "the next job"); id != "b" {
		t.Errorf("job %s", id)
	}
}

func TestLostConnectionEndsRunContext(t *testing.T) {
	f := newFakeBroker(t)
	running, cause := make(chan struct{}), make(chan error, 1)
	broker := startJoinedWorker(t, f, &gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		close(running)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, nil
	}})
	broker.send(jobFrame("a", "1"))
	receive(t, running, "the job")
	broker.close()
	wantError(t, receive(t, cause, "the end of the context"), gloom.ErrLost)
	secondConn := f.accept()
	secondConn.expect(joinFrame)
	secondConn.send(`{"ok":true}`)
	secondConn.nc.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if payload, err := readFrame(secondConn.nc); err == nil {
		t.Errorf("the answer %s was sent on a new connection, not on that of its job", payload)
	}
}

func TestProgressIsSent(t *testing.T) {
	var job *gloom.Job
	done := make(chan struct{})
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(_ context.Context, j *gloom.Job) (any, error) {
		if j.ID != "a" {
			return 2, nil
		}
		defer close(done)
		job = j
		if err := j.Progress(map[string]int{"percent": 50}); err != nil {
			t.Error(err)
		}
		if err := j.Progress([]byte("nonsense")); err == nil {
			t.Error("Progress accepted a body that is not JSON")
		}
		if err := j.Progress(nil); err != nil {
			t.Error(err)
		}
		return 1, nil
	}})
	broker.send(jobFrame("a", "1"))
	broker.expect(`{"action":"progress","body":{"percent":50}}`, `{"action":"progress","body":null}`, `{"action":"respond","body":1}`)
	broker.send(`{"ok":true}`, errorFrame("unknown_id", "a"), `{"ok":true}`)
	<-done
	if err := job.Progress(1); err == nil {
		t.Error("Progress succeeded after the answer")
	}
	if err := (&gloom.Job{}).Progress(1); err == nil {
		t.Error("Progress succeeded on a job that did not come from a broker")
	}
	broker.send(jobFrame("b", "1")) // still in step
	broker.expect(`{"action":"respond","body":2}`)
}

func TestUnansweredProgressIsLimited(t *testing.T) {
	sentReports := make(chan int, 1)
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(ctx context.Context, j *gloom.Job) (any, error) {
		n := 0
		for j.Progress(n) == nil {
			n++
		}
		sentReports <- n
		return nil, context.Cause(ctx)
	}})
	broker.send(jobFrame("a", "1"))
	for n := range 64 {
		broker.expect(fmt.Sprintf(`{"action":"progress","body":%d}`, n))
	}
	broker.send(`{"action":"cancel","id":"a"}`)
	if n := receive(t, sentReports, "the end of the reports"); n != 64 {
		t.Errorf("%d reports without an answer", n)
	}
	broker.expect(`{"action":"fail","reason":"cancelled"}`)
}

// A job that arrives before the ok of leave must be answered as usual.
func TestJobBeforeOkOfLeaveIsAnswered(t *testing.T) {
	f := newFakeBroker(t)
	w := &gloom.Worker{Handler: echoHandler, Concurrency: 3}
	first := startJoinedWorker(t, f, w)
	for _, broker := range []*peer{first, f.accept(), f.accept()} {
		if broker != first {
			broker.expect(joinFrame)
			broker.send(`{"ok":true}`)
		}
		broker.send(jobFrame("a", "1"))
		broker.expect(`{"action":"respond","body":1}`)
	}
}

func TestConcurrencyBoundsPrefetchedRuns(t *testing.T) {
	f := newFakeBroker(t)
	var running, maxRunning atomic.Int32
	release := make(chan struct{})
	w := &gloom.Worker{Concurrency: 2, Prefetch: 4, Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		if n := running.Add(1); n > maxRunning.Load() {
			maxRunning.Store(n)
		}
		defer running.Add(-1)
		<-release
		if job.ID == "b" {
			return nil, gloom.Fatal(errors.New("no"))
		}
		return 1, job.Progress(0)
	}}
	broker := startJoinedWorker(t, f, w)
	broker.send(jobFrame("a", "1"), jobFrame("b", "1"), jobFrame("c", "1"), jobFrame("d", "1"), `{"action":"cancel","id":"d"}`)
	eventually(t, "two run", func() bool { return running.Load() == 2 })
	close(release)
	want := map[string]bool{
		`{"action":"progress","id":"a","body":0}`:                true,
		`{"action":"progress","id":"c","body":0}`:                true,
		`{"action":"respond","id":"a","body":1}`:                 true,
		`{"action":"respond","id":"c","body":1}`:                 true,
		`{"action":"fail","id":"b","reason":"no","retry":false}`: true,
		`{"action":"fail","id":"d","reason":"cancelled"}`:        true,
	}
	for len(want) > 0 {
		got := broker.read()
		if !want[got] {
			t.Fatalf("unexpected %s", got)
		}
		delete(want, got)
		broker.send(`{"ok":true}`)
	}
	if maxRunning.Load() != 2 {
		t.Errorf("%d jobs ran at once, want 2", maxRunning.Load())
	}
}

func TestWorkerJoinsWithSeveralTypes(t *testing.T) {
	f := newFakeBroker(t)
	w := &gloom.Worker{Types: []string{"mail-*", "sms"}, Except: []string{`mail-"x"`}, Headers: true, Prefetch: 2,
		Options: []gloom.Option{gloom.Addrs(f.addr())},
		Handler: func(_ context.Context, job *gloom.Job) (any, error) {
			return map[string]string{"type": job.Type, "trace": job.Headers.Get("traceparent")}, nil
		}}
	runErr := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { runErr <- w.Run(ctx) }()
	broker := f.accept()
	broker.expect(`{"action":"join","types":["mail-*","sms"],"except":["mail-\"x\""],"prefetch":2,"cancel":true,"headers":true}`)
	broker.send(`{"ok":true}`, `{"action":"job","id":"a","type":"mail-in","headers":{"traceparent":"00-ab"},"body":1}`)
	broker.expect(`{"action":"respond","id":"a","body":{"trace":"00-ab","type":"mail-in"}}`)
	broker.send(`{"ok":true}`, `{"action":"job","id":"b","type":"sms","body":1}`)
	broker.expect(`{"action":"respond","id":"b","body":{"trace":"","type":"sms"}}`)
	cancel()
	broker.expect(`{"action":"leave"}`)
	broker.send(`{"ok":true}`, `{"ok":true}`)
	if err := receive(t, runErr, "Run"); err != nil {
		t.Fatal(err)
	}
}

func TestHeadersAreSetAndRead(t *testing.T) {
	var noHeaders gloom.Headers
	if noHeaders.Get("k") != "" || len(noHeaders.Keys()) != 0 {
		t.Error("no headers have something")
	}
	noHeaders.Set("k", `é"`)
	if got := string(noHeaders); got != `{"k":"é\""}` {
		t.Errorf("headers are %s", got)
	}
	h := gloom.Headers(`{"n": 1.50, "traceparent":"00-\u0061b"}`)
	if got := h.Get("traceparent") + h.Get("n") + h.Get("absent"); got != "00-ab" {
		t.Errorf("got %q", got)
	}
	h.Set("tracestate", "x=1")
	if got := string(h); got != `{"n":1.50,"traceparent":"00-\u0061b","tracestate":"x=1"}` {
		t.Errorf("headers are %s", got)
	}
	if got := strings.Join(h.Keys(), " "); got != "n traceparent tracestate" {
		t.Errorf("keys are %s", got)
	}
	broken := gloom.Headers(`[1]`)
	if broken.Get("k") != "" || len(broken.Keys()) != 0 {
		t.Error("an array has keys")
	}
}

func TestRefusedAnswerIsReplaced(t *testing.T) {
	f := newFakeBroker(t)
	broker := startJoinedWorker(t, f, &gloom.Worker{Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		if job.ID == "b" {
			return nil, gloom.RetryAfter(errors.New("x"), 2*365*24*time.Hour)
		}
		return 1, nil
	}})
	broker.send(jobFrame("a", "1"))
	broker.expect(`{"action":"respond","body":1}`)
	broker.send(errorFrame("overloaded", "a"))
	broker.expect(`{"action":"fail","reason":"answer refused: overloaded: because","retry":false}`)
	broker.send(`{"ok":true}`, jobFrame("b", "1"))
	broker.read()
	broker.send(errorFrame("invalid_value", "b"))
	broker.expect(`{"action":"fail","reason":"answer refused: invalid_value: because"}`)
	broker.send(`{"ok":true}`, jobFrame("c", "1"))
	broker.expect(`{"action":"respond","body":1}`)
	// After a second refusal the client closes the connection, so that the job returns to
	// the broker.
	broker.send(errorFrame("invalid_type", "c"))
	broker.read()
	broker.send(errorFrame("invalid_type", "c"))
	broker.expectClose()
	f.accept().expect(joinFrame)
}

func TestProtocolBreachesEndConnection(t *testing.T) {
	for name, frames := range map[string][]string{
		"two jobs at once":  {jobFrame("a", "1"), jobFrame("b", "1")},
		"ok for nothing":    {`{"ok":true}`},
		"no JSON":           {"nonsense"},
		"error for nothing": {errorFrame("invalid_type", "a")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeBroker(t)
			broker := startJoinedWorker(t, f, &gloom.Worker{Handler: func(ctx context.Context, _ *gloom.Job) (any, error) {
				<-ctx.Done()
				return nil, nil
			}})
			broker.send(frames...)
			broker.expectClose()
			f.accept().expect(joinFrame)
		})
	}
}

func TestGoexitOfHandlerEndsConnection(t *testing.T) {
	f := newFakeBroker(t)
	broker := startJoinedWorker(t, f, &gloom.Worker{Handler: func(context.Context, *gloom.Job) (any, error) {
		runtime.Goexit()
		return nil, nil
	}})
	broker.send(jobFrame("a", "1"))
	broker.expectClose() // so that another worker gets the job
	f.accept().expect(joinFrame)
}

func TestWorkerJoinsAllBrokers(t *testing.T) {
	one, two := newFakeBroker(t), newFakeBroker(t)
	startWorker(t, one, &gloom.Worker{Handler: echoHandler}, gloom.Addrs(one.addr(), two.addr()))
	defer two.ln.Close()
	for _, broker := range []*peer{one.accept(), two.accept()} {
		broker.expect(joinFrame)
		broker.send(`{"ok":true}`, jobFrame("a", "1"))
		broker.expect(`{"action":"respond","body":1}`)
	}
}

func TestPermanentRefusalEndsWorker(t *testing.T) {
	for _, code := range []string{"forbidden", "invalid_value", "unauthorized"} {
		f := newFakeBroker(t)
		w := &gloom.Worker{Type: "echo", Handler: echoHandler, Concurrency: 2,
			Options: []gloom.Option{gloom.Addrs(f.addr()), quickBackoff, gloom.Token("t")}}
		runErr := make(chan error, 1)
		go func() { runErr <- w.Run(context.Background()) }()
		for range 2 {
			broker := f.accept()
			broker.expect(`{"action":"hello","token":"t"}`+"\n", joinFrame)
			broker.send(`{"ok":true}`, fmt.Sprintf(`{"error":%q,"reason":"why"}`, code))
			broker.expectClose()
		}
		wantError(t, receive(t, runErr, "Run"), gloom.Code(code))
	}
}

func TestTemporaryRefusalIsRetried(t *testing.T) {
	f := newFakeBroker(t)
	startWorker(t, f, &gloom.Worker{Handler: echoHandler})
	for range 3 {
		broker := f.accept()
		broker.expect(joinFrame)
		broker.send(`{"error":"overloaded","reason":"connections"}`)
		broker.expectClose()
	}
}

func TestUnansweredJoinTimesOut(t *testing.T) {
	f := newFakeBroker(t)
	startWorker(t, f, &gloom.Worker{Handler: echoHandler}, gloom.DialTimeout(20*time.Millisecond))
	for range 2 {
		broker := f.accept()
		broker.expect(joinFrame)
		broker.expectClose()
	}
}

func TestWorkerLeavesSilentBroker(t *testing.T) {
	f := newFakeBroker(t)
	startWorker(t, f, &gloom.Worker{Handler: echoHandler}, gloom.Heartbeat(100*time.Millisecond))
	broker := f.accept()
	broker.expect(`{"action":"hello","heartbeat_ms":100}`+"\n", joinFrame)
	broker.send(`{"ok":true,"server":"s","limits":{}}`, `{"ok":true}`, `{"action":"ping"}`)
	broker.expect(`{"action":"pong"}`)
	broker.expectClose() // because no more bytes arrive
}

func TestBadWorkersAreRefused(t *testing.T) {
	for message, w := range map[string]*gloom.Worker{
		"type is empty":        {Handler: echoHandler},
		"no handler":           {Type: "t"},
		"UTF-8":                {Type: "\xff", Handler: echoHandler},
		"prefetch 2":           {Type: "t", Handler: echoHandler, Concurrency: 3, Prefetch: 2},
		"must not be negative": {Type: "t", Handler: echoHandler, Concurrency: -1},
		"no broker address":    {Type: "t", Handler: echoHandler, Options: []gloom.Option{gloom.Addrs()}},
		"both a type and":      {Type: "t", Types: []string{"u"}, Handler: echoHandler},
		"except without":       {Type: "t", Except: []string{"u"}, Handler: echoHandler},
	} {
		err := w.Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("error is %v, want one that says %q", err, message)
		}
		if err := w.Stop(context.Background()); err != nil {
			t.Errorf("stop of a worker that never ran: %v", err)
		}
	}
}

func TestSecondJobWithIDEndsConnection(t *testing.T) {
	f := newFakeBroker(t)
	broker := startJoinedWorker(t, f, &gloom.Worker{Prefetch: 4, Handler: func(ctx context.Context, _ *gloom.Job) (any, error) {
		<-ctx.Done()
		return nil, nil
	}})
	broker.send(jobFrame("a", "1"), jobFrame("a", "1"))
	broker.expectClose()
}

func TestAnswersNeedNoRoom(t *testing.T) {
	f := newFakeBroker(t)
	const jobs = 32
	body := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	broker := startJoinedWorker(t, f, &gloom.Worker{Prefetch: jobs, Concurrency: jobs, Handler: func(context.Context, *gloom.Job) (any, error) {
		return body, nil
	}}, gloom.TrustBodies())
	for n := range jobs {
		broker.send(jobFrame(fmt.Sprint(n), "1"))
	}
	for range jobs {
		if got := broker.read(); len(got) < len(body) {
			t.Fatalf("sent %.100s", got)
		}
		broker.send(`{"ok":true}`)
	}
}

// A join after a leave would undo it, so a worker that is stopped while it connects does
// not join.
