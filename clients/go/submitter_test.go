package gloom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	gloom "gloom/clients/go"
	"gloom/wire"
)

func TestSubmitGetsAckAndResult(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	p := submit(t, s, gloom.Job{ID: "a", Type: "echo", Body: json.RawMessage(`{"x": 1E400}`), Priority: -5})
	broker.expect(`{"action":"submit","id":"a","type":"echo","priority":-5,"backoff_ms":1000,"body":{"x": 1E400}}`)
	select {
	case <-p.Acked():
		t.Fatal("acked before the ack")
	case <-p.Done():
		t.Fatal("done before the result")
	default:
	}
	broker.send(okReply("a"))
	if err := p.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
		t.Fatal("done with the ack")
	default:
	}
	broker.send(resultFrame("a", `[ 1,2 ]`))
	wantResult(t, p, `[ 1,2 ]`)
	receive(t, p.Done(), "done")
	receive(t, p.Acked(), "acked")
	if n := s.Outstanding(); n != 0 {
		t.Errorf("%d jobs outstanding", n)
	}
}

func TestSubmitOptionsAreSent(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	for _, c := range []struct {
		job  gloom.Job
		want string
	}{
		{gloom.Job{ID: "a"}, `{"action":"submit","id":"a","backoff_ms":1000,"body":null}`},
		{gloom.Job{ID: "n", Groups: []string{}, Headers: gloom.Headers{}}, `{"action":"submit","id":"n","backoff_ms":1000,"body":null}`},
		{gloom.Job{ID: "b", Type: "t", Body: []byte(" 1 ")}, `{"action":"submit","id":"b","type":"t","backoff_ms":1000,"body": 1 }`},
		{gloom.Job{ID: "c", Delay: time.Second, Timeout: time.Minute, Backoff: 1, Expires: 1500 * time.Microsecond, Retries: 7},
			`{"action":"submit","id":"c","delay_ms":1000,"timeout_ms":60000,"retries":7,"backoff_ms":1,"expires_ms":2,"body":null}`},
		{gloom.Job{ID: "d", Retries: gloom.NoRetries}, `{"action":"submit","id":"d","retries":0,"body":null}`},
		{gloom.Job{ID: "i", Backoff: gloom.NoBackoff}, `{"action":"submit","id":"i","body":null}`},
		{gloom.Job{ID: "j", Backoff: time.Hour, Retries: gloom.NoRetries}, `{"action":"submit","id":"j","retries":0,"backoff_ms":3600000,"body":null}`},
		{gloom.Job{ID: "e", Detach: true}, `{"action":"submit","id":"e","backoff_ms":1000,"detach":true,"body":null}`},
		{gloom.Job{ID: "f", NoAck: true}, `{"action":"submit","id":"f","backoff_ms":1000,"ack":false,"body":null}`},
		{gloom.Job{ID: "g", OnProgress: func(json.RawMessage) {}}, `{"action":"submit","id":"g","backoff_ms":1000,"progress":true,"body":null}`},
		{gloom.Job{ID: "h", Groups: []string{"tenant-42", "a\"b"}, Age: time.Hour, Keep: time.Minute, Headers: gloom.Headers(`{"k": [1]}`)},
			`{"action":"submit","id":"h","backoff_ms":1000,"age_ms":3600000,"keep_ms":60000,"groups":["tenant-42","a\"b"],"headers":{"k": [1]},"body":null}`},
		{gloom.Job{ID: "é\"\n", Type: "漢"}, `{"action":"submit","id":"é\"\n","type":"漢","backoff_ms":1000,"body":null}`},
	} {
		submit(t, s, c.job)
		broker.expect(c.want)
	}
}

func TestGeneratedIDsAreUnique(t *testing.T) {
	f := newFakeBroker(t)
	seen := map[string]bool{}
	for range 2 {
		s, broker := dial(t, f)
		for range 100 {
			p := submit(t, s, gloom.Job{Type: "t"})
			if !regexp.MustCompile(`^[a-z0-9]{10}-[0-9a-z]{1,3}$`).MatchString(p.ID()) || seen[p.ID()] {
				t.Fatalf("id %q", p.ID())
			}
			seen[p.ID()] = true
			broker.expect(`{"action":"submit","id":"` + p.ID() + `","type":"t","backoff_ms":1000,"body":null}`)
		}
	}
}

func TestResultsMayComeInAnyOrder(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	a, b, c := submit(t, s, gloom.Job{ID: "a"}), submit(t, s, gloom.Job{ID: "b"}), submit(t, s, gloom.Job{ID: "c"})
	broker.send(okReply("a"), okReply("b"), resultFrame("b", "2"), okReply("c"), resultFrame("c", "3"), resultFrame("a", "1"))
	wantResult(t, c, "3")
	wantResult(t, a, "1")
	wantResult(t, b, "2")
}

func TestIDsAreComparedByValue(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	p := submit(t, s, gloom.Job{ID: "é/\t"})
	broker.send(`{"id":"\u00e9\/\u0009","ok":true}`, `{"body":1,"id":"\u00E9/\t"}`)
	wantResult(t, p, "1")
}

func TestFramesMayBeCutAnywhere(t *testing.T) {
	f := newFakeBroker(t)
	stream := encodeFrames(okReply("a"), `{"id":"a","progress":0.5}`, resultFrame("a", `"x"`))
	for cut := range len(stream) {
		s, broker := dial(t, f)
		p := submit(t, s, gloom.Job{ID: "a"})
		broker.read()
		broker.nc.Write(stream[:cut])
		broker.nc.Write(stream[cut:])
		wantResult(t, p, `"x"`)
		s.Close()
	}
}

func TestLargeResultArrives(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	for _, size := range []int{1 << 10, 8<<10 - 20, 3 << 20, 100} {
		p := submit(t, s, gloom.Job{ID: "a"})
		body := `"` + strings.Repeat("x", size) + `"`
		broker.send(okReply("a"), resultFrame("a", body))
		wantResult(t, p, body)
	}
}

func TestDoReturnsResult(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	go func() {
		broker.read()
		broker.send(okReply("a"), resultFrame("a", `{"n":7}`))
	}()
	r, err := s.Do(waitContext(t), gloom.Job{ID: "a", Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ N int }
	if err := r.Decode(&v); err != nil || v.N != 7 {
		t.Fatalf("%+v, %v", v, err)
	}
}

func TestDoCancelsItsJob(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error)
	go func() {
		_, err := s.Do(ctx, gloom.Job{ID: "a"})
		done <- err
	}()
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	broker.send(okReply("a"))
	why := errors.New("lunch")
	cancel(why)
	wantError(t, receive(t, done, "Do"), why)
	broker.expect(`{"action":"cancel","id":"a"}`)
	if s.Outstanding() != 1 {
		t.Error("the job is outstanding until the broker has cancelled it")
	}
	broker.send(okReply("a"))
	eventually(t, "its place in the window is free", func() bool { return s.Outstanding() == 0 })
}

func TestResultEndsWithContext(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	p := submit(t, s, gloom.Job{ID: "a"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := p.Result(ctx)
	wantError(t, err, context.Canceled)
	wantError(t, p.Ack(ctx), context.Canceled)
	broker.send(okReply("a"), resultFrame("a", "1"))
	wantResult(t, p, "1")
	if _, err := p.Result(ctx); err != nil {
		t.Errorf("a result that is there counts: %v", err)
	}
}

func TestSubmitFuncCallsBack(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	type outcome struct {
		id  string
		err error
	}
	got := make(chan outcome, 3)
	for _, id := range []string{"a", "b", "c"} {
		err := s.SubmitFunc(waitContext(t), gloom.Job{ID: id}, func(r gloom.Result, err error) { got <- outcome{r.ID, err} })
		if err != nil {
			t.Fatal(err)
		}
	}
	broker.send(okReply("a"), errorFrame("id_exists", "b"), okReply("c"), resultFrame("c", "1"), errorFrame("job_failed", "a"))
	wantError(t, receive(t, got, "b").err, gloom.ErrIDExists)
	if c := receive(t, got, "c"); c.id != "c" || c.err != nil {
		t.Errorf("c: %+v", c)
	}
	wantError(t, receive(t, got, "a").err, gloom.ErrJobFailed)
}

func TestCallbackMaySubmit(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t), gloom.Window(1))
	next := make(chan error, 1)
	err := s.SubmitFunc(waitContext(t), gloom.Job{ID: "a"}, func(gloom.Result, error) {
		next <- s.TrySubmitFunc(gloom.Job{ID: "b"}, func(gloom.Result, error) {})
	})
	if err != nil {
		t.Fatal(err)
	}
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	broker.send(okReply("a"), resultFrame("a", "1"))
	if err := receive(t, next, "callback"); err != nil {
		t.Fatal(err)
	}
	broker.expect(`{"action":"submit","id":"b","backoff_ms":1000,"body":null}`)
}

func TestProgressComesInOrder(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	got := make(chan string, 8)
	p := submit(t, s, gloom.Job{ID: "a", OnProgress: func(b json.RawMessage) { got <- string(b) }})
	broker.send(okReply("a"), `{"id":"a","progress":1}`, `{"id":"a","progress":{"of": 2}}`, `{"id":"z","progress":0}`, resultFrame("a", "9"))
	wantResult(t, p, "9")
	if a, b := <-got, <-got; a != "1" || b != `{"of": 2}` || len(got) != 0 {
		t.Errorf("progress %s, %s and %d more", a, b, len(got))
	}
}

func TestWindowBlocks(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t), gloom.Window(2))
	submit(t, s, gloom.Job{ID: "a"})
	submit(t, s, gloom.Job{ID: "b"})
	_, err := s.TrySubmit(gloom.Job{ID: "c"})
	wantError(t, err, gloom.ErrWindowFull)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = s.Submit(ctx, gloom.Job{ID: "c"})
	wantError(t, err, context.DeadlineExceeded)

	done := make(chan error)
	go func() {
		_, err := s.Submit(context.Background(), gloom.Job{ID: "c"})
		done <- err
	}()
	broker.send(okReply("a"), resultFrame("a", "1"))
	if err := receive(t, done, "the third submit"); err != nil {
		t.Fatal(err)
	}
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`, `{"action":"submit","id":"b","backoff_ms":1000,"body":null}`,
		`{"action":"submit","id":"c","backoff_ms":1000,"body":null}`)
	if n := s.Outstanding(); n != 2 {
		t.Errorf("%d outstanding, want 2", n)
	}
}

func TestInvalidSubmitIsRefused(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t), gloom.MaxFrame(2000))
	for _, c := range []struct {
		job     gloom.Job
		code    gloom.Code
		message string
	}{
		{gloom.Job{Body: []byte(`{`)}, gloom.ErrInvalidJSON, "body"},
		{gloom.Job{Body: []byte(`1 2`)}, gloom.ErrInvalidJSON, "body"},
		{gloom.Job{Body: []byte(`1,"priority":9`)}, gloom.ErrInvalidJSON, "not one JSON value"},
		{gloom.Job{Body: []byte(`1,"body":1`)}, gloom.ErrInvalidJSON, "not one JSON value"},
		{gloom.Job{Body: []byte(`1}`)}, gloom.ErrInvalidJSON, "body"},
		{gloom.Job{Body: []byte("\"\xff\"")}, gloom.ErrInvalidJSON, "body"},
		{gloom.Job{Body: []byte(" ")}, gloom.ErrInvalidJSON, "body"},
		{gloom.Job{Body: []byte(strings.Repeat("[", wire.MaxDepth) + strings.Repeat("]", wire.MaxDepth))}, gloom.ErrInvalidJSON, "body"},
		{gloom.Job{Headers: gloom.Headers(`{`)}, gloom.ErrInvalidJSON, "headers: not one JSON value"},
		{gloom.Job{Headers: gloom.Headers(`{},"priority":9`)}, gloom.ErrInvalidJSON, "headers: not one JSON value"},
		{gloom.Job{Groups: []string{"ok", "a\xff"}}, gloom.ErrInvalidType, "group"},
		{gloom.Job{ID: "a\xff"}, gloom.ErrInvalidType, "UTF-8"},
		{gloom.Job{ID: strings.Repeat("a", 1025)}, gloom.ErrInvalidType, "1024"},
		{gloom.Job{Type: strings.Repeat("é", 513)}, gloom.ErrInvalidType, "1026"},
		{gloom.Job{Retries: -2}, gloom.ErrInvalidValue, "-2"},
		{gloom.Job{Body: []byte(`"` + strings.Repeat("x", 2000) + `"`)}, gloom.ErrSizeError, "2000"},
	} {
		_, err := s.Submit(waitContext(t), c.job)
		if err == nil {
			t.Fatalf("%s did not refuse a job", c.code)
		}
		if wantError(t, err, c.code); !strings.Contains(err.Error(), c.message) {
			t.Errorf("%v does not say %q", err, c.message)
		}
	}
	if n := s.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
	submit(t, s, gloom.Job{ID: "next"})
	broker.expect(`{"action":"submit","id":"next","backoff_ms":1000,"body":null}`)
}

func TestManyGoroutinesMaySubmit(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f, gloom.Window(50))
	go echoJobs(broker.nc)
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			for n := range 200 {
				body := fmt.Sprintf(`[%d,%d]`, g, n)
				r, err := s.Do(waitContext(t), gloom.Job{Type: "echo", Body: []byte(body), NoAck: n%3 == 0})
				if err != nil || string(r.Body) != body {
					t.Errorf("%s gave %s, %v", body, r.Body, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := s.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
}

// TestOutstandingWhileDrainBegins: a job counts while Drain takes the rest of the window.
func TestOutstandingWhileDrainBegins(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t), gloom.Window(1<<20))
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	done := make(chan error, 1)
	go func() { done <- s.Drain(waitContext(t)) }()
	eventually(t, "a job is refused", func() bool {
		_, err := s.TrySubmit(gloom.Job{ID: "a"})
		return errors.Is(err, gloom.ErrClosed)
	})
	for range 1_000_000 {
		if n := s.Outstanding(); n < 1 || n > 2 { // Drain has a place for a moment before it counts it
			t.Fatalf("%d outstanding", n)
		}
	}
	broker.send(okReply("a"), resultFrame("a", "1"))
	if err := receive(t, done, "drain"); err != nil {
		t.Fatal(err)
	}
	wantResult(t, p, "1")
}

func TestDrainWaitsForJobs(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	p := submit(t, s, gloom.Job{ID: "a"})
	done := make(chan error)
	for range 2 { // the second call must not wait for what the first has taken
		go func() { done <- s.Drain(waitContext(t)) }()
	}
	eventually(t, "a job is refused", func() bool {
		_, err := s.TrySubmit(gloom.Job{ID: "a"})
		return errors.Is(err, gloom.ErrClosed)
	})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	broker.send(okReply("a"), resultFrame("a", "1"))
	for range 2 {
		if err := receive(t, done, "drain"); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Outstanding(); n != 0 {
		t.Errorf("%d outstanding after all have ended", n)
	}
	wantResult(t, p, "1")
	broker.expectClose()
}

func TestDrainEndsWithContext(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.read()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	wantError(t, s.Drain(ctx), context.DeadlineExceeded)
	wantError(t, resultError(t, p), gloom.ErrClosed)
	broker.expectClose()
}

func TestCloseEndsPendingJobs(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	broker.send(okReply("a"))
	p.Ack(waitContext(t))
	for range 3 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	err := resultError(t, p)
	wantError(t, err, gloom.ErrClosed)
	var lost *gloom.LostError
	if !errors.As(err, &lost) || !lost.Acked {
		t.Errorf("%v", err)
	}
	broker.expectClose()
	_, err = s.Submit(waitContext(t), gloom.Job{})
	wantError(t, err, gloom.ErrClosed)
	wantError(t, s.Cancel(waitContext(t), "x"), gloom.ErrClosed)
	wantError(t, s.Ping(waitContext(t)), gloom.ErrClosed)
}

// TestRequestsWithoutWaiting: many changes and cancels are sent before the first
// reply, and each gets its own reply.
func TestRequestsWithoutWaiting(t *testing.T) {
	b := startBroker(t)
	s := b.newSubmitter()
	replies := make(chan error, 200)
	for n := range 100 {
		id := fmt.Sprint(n)
		if err := s.SubmitFunc(waitContext(t), gloom.Job{ID: id, Type: "later"}, func(_ gloom.Result, err error) { replies <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 100 {
		err := s.ChangeFunc(waitContext(t), fmt.Sprint(2*n), gloom.Change{Groups: []string{"g"}}, func(err error) { replies <- err })
		if err != nil {
			t.Fatal(err)
		}
	}
	count := map[string]int{}
	for range 100 {
		count[fmt.Sprint(errors.Is(receive(t, replies, "a reply"), gloom.ErrUnknownID))]++
	}
	if count["true"] != 50 || count["false"] != 50 {
		t.Errorf("unknown ids: %v", count)
	}
	for n := range 100 {
		if err := s.CancelFunc(waitContext(t), fmt.Sprint(n), func(err error) { replies <- err }); err != nil {
			t.Fatal(err)
		}
	}
	count = map[string]int{}
	for range 200 {
		switch err := receive(t, replies, "an end or a reply"); {
		case err == nil:
			count["cancelled"]++
		case errors.Is(err, gloom.ErrCancelled):
			count["ended"]++
		}
	}
	if count["cancelled"] != 100 || count["ended"] != 100 {
		t.Error(count)
	}
}
