package gloom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gloom "gloom/clients/go"
)

func keep(id string) gloom.Job { return gloom.Job{ID: id, Keep: time.Minute} }

const keptSubmit = `{"action":"submit","id":%q,"backoff_ms":1000,"keep_ms":60000,"body":null}`

func attachTo(id string) string { return fmt.Sprintf(`{"action":"attach","id":%q}`, id) }

func attached(id, state string) string {
	return fmt.Sprintf(`{"ok":true,"id":%q,"state":%q}`, id, state)
}

func TestKeptJobsReconnect(t *testing.T) {
	f := newFake(t)
	s, broker := dial(t, f)
	news := make(chan string, 1)
	watched := keep("b")
	watched.OnProgress = func(b json.RawMessage) { news <- string(b) }
	quiet := keep("d")
	quiet.NoAck = true
	a, b, c, d := submit(t, s, keep("a")), submit(t, s, watched), submit(t, s, gloom.Job{ID: "c"}), submit(t, s, quiet)
	for range 4 {
		broker.read()
	}
	broker.send(okFor("a"))
	if err := a.Ack(within(t)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // cut again and again
		broker.reset()
		broker = f.accept()
		broker.expect(attachTo("a"), `{"action":"attach","id":"b","progress":true}`, attachTo("d"))
	}
	if got := outcome(resultError(t, c)); got != "lost, sent" {
		t.Errorf("the one that is not kept: %s", got)
	}
	next := submit(t, s, gloom.Job{ID: "e"})
	broker.expect(`{"action":"submit","id":"e","backoff_ms":1000,"body":null}`)
	broker.send(attached("a", "ended"), resultFor("a", "1"), attached("b", "running"), attached("d", "queued"), okFor("e"),
		`{"id":"b","progress":5}`, errorFor("job_failed", "b"), resultFor("d", "4"), resultFor("e", "5"))
	wantResult(t, a, "1")
	if got := received(t, news, "progress"); got != "5" {
		t.Errorf("progress %s", got)
	}
	wantError(t, resultError(t, b), gloom.ErrJobFailed)
	wantResult(t, d, "4")
	wantResult(t, next, "5")
	if n := s.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
}

func TestUnsentKeptJobs(t *testing.T) {
	f := newFake(t)
	s, first, broker := newCloggedSubmitter(t, f)
	second := submit(t, s, keep("second"))
	broker.close()
	if got := outcome(resultError(t, first)); got != "lost, sent" {
		t.Errorf("first: %s", got)
	}
	broker = f.accept()
	broker.expect(fmt.Sprintf(keptSubmit, "second"))
	broker.send(okFor("second"), resultFor("second", "2"))
	wantResult(t, second, "2")
}

// An unsent job is not sent to a broker that accepts only smaller jobs.
func TestUnsentKeptJobTooLarge(t *testing.T) {
	f := newFake(t)
	ours, theirs := net.Pipe()
	var dials atomic.Int32
	s, err := gloom.NewSubmitter(gloom.Addrs(f.addr()), quick, gloom.ClientName("x"), gloom.Dialer(
		func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				return ours, nil
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limit := func(bytes int) string {
		return fmt.Sprintf(`{"ok":true,"server":"s","limits":{"max_frame":%d}}`, bytes)
	}
	broker := newPeer(t, theirs)
	broker.read()
	broker.send(limit(4096))
	submit(t, s, gloom.Job{ID: "first"})
	if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil { // the writer has begun to send it
		t.Fatal(err)
	}
	large := keep("large")
	large.Body = []byte(`"` + strings.Repeat("x", 1000) + `"`)
	p, small := submit(t, s, large), submit(t, s, keep("small"))
	broker.close()
	broker = f.accept()
	broker.read()
	broker.send(limit(1000))
	var refused *gloom.RefusedError
	if err := resultError(t, p); !errors.As(err, &refused) || refused.Code != gloom.ErrSizeError || refused.ID != "large" {
		t.Errorf("error is %v", err)
	}
	broker.expect(fmt.Sprintf(keptSubmit, "small"))
	broker.send(okFor("small"), resultFor("small", "1"))
	wantResult(t, small, "1")
	if n := s.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
}

// A broker that no longer knows a job may have run it: it is run again only on request.
func TestKeptJobLostByBroker(t *testing.T) {
	f := newFake(t)
	s, broker := dial(t, f)
	acked, sent, again := submit(t, s, keep("acked")), submit(t, s, keep("sent")), keep("again")
	again.AtLeastOnce = true
	p := submit(t, s, again)
	for range 3 {
		broker.read()
	}
	broker.send(okFor("acked"))
	if err := acked.Ack(within(t)); err != nil {
		t.Fatal(err)
	}
	broker.close()
	broker = f.accept()
	broker.expect(attachTo("acked"), attachTo("sent"), attachTo("again"))
	broker.send(errorFor("unknown_id", "acked"), errorFor("unknown_id", "sent"), errorFor("unknown_id", "again"))
	for p, want := range map[*gloom.Pending]string{acked: "lost, acked, unknown_id", sent: "lost, sent, unknown_id"} {
		if got := outcome(resultError(t, p)); got != want {
			t.Errorf("job %s: %s, want %s", p.ID(), got, want)
		}
	}
	broker.expect(fmt.Sprintf(keptSubmit, "again"))
	broker.close() // that may be lost, too
	broker = f.accept()
	broker.expect(attachTo("again"))
	broker.send(errorFor("unknown_id", "again"))
	broker.expect(fmt.Sprintf(keptSubmit, "again"))
	// The submit of a lost connection may arrive late.
	broker.send(errorFor("id_exists", "again"))
	broker.expect(attachTo("again"))
	broker.send(attached("again", "ended"), resultFor("again", "3"))
	wantResult(t, p, "3")
}

// The client does not go on asking a broker that neither has a job nor accepts it.
func TestKeptJobRefused(t *testing.T) {
	f := newFake(t)
	s, broker := dial(t, f)
	again := keep("a")
	again.AtLeastOnce = true
	p := submit(t, s, again)
	broker.read()
	broker.close()
	broker = f.accept()
	broker.expect(attachTo("a"))
	broker.send(errorFor("unknown_id", "a"))
	broker.expect(fmt.Sprintf(keptSubmit, "a"))
	broker.send(errorFor("id_exists", "a"))
	broker.expect(attachTo("a"))
	broker.send(errorFor("unknown_id", "a"))
	if got := outcome(resultError(t, p)); got != "lost, sent, unknown_id" {
		t.Error(got)
	}
}

// Two clients that attach to one job in turn would fight for ever.
func TestTakenOver(t *testing.T) {
	f := newFake(t)
	s, broker := dial(t, f)
	a, b := submit(t, s, keep("a")), submit(t, s, keep("b"))
	broker.read()
	broker.read()
	broker.send(okFor("a"), okFor("b"), errorFor("taken_over", "a"))
	err := resultError(t, a)
	var ended *gloom.JobError
	if wantError(t, err, gloom.ErrTakenOver); !errors.As(err, &ended) {
		t.Errorf("error is %v", err)
	}
	broker.close()
	broker = f.accept()
	broker.expect(attachTo("b"))
	broker.send(attached("b", "ended"), resultFor("b", "1"))
	wantResult(t, b, "1")
}

func TestKeptJobsSameBroker(t *testing.T) {
	one, two := newFake(t), newFake(t)
	s, err := gloom.Dial(within(t), gloom.Addrs(one.addr(), two.addr()), quick)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	broker := one.accept()
	a := submit(t, s, keep("a"))
	broker.read()
	broker.send(okFor("a"))
	if err := a.Ack(within(t)); err != nil {
		t.Fatal(err)
	}
	broker.close()
	broker = one.accept() // the same one is tried first
	broker.expect(attachTo("a"))
	broker.send(attached("a", "running"))
	one.ln.Close()
	broker.close()
	broker = two.accept() // the other broker, which never had the job
	if got := outcome(resultError(t, a)); got != "lost, acked" {
		t.Error(got)
	}
	submit(t, s, gloom.Job{ID: "b"})
	broker.expect(`{"action":"submit","id":"b","backoff_ms":1000,"body":null}`)
}

func TestDoAbandonsKeptJob(t *testing.T) {
	f := newFake(t)
	var n notices
	s, broker := dial(t, f, n.option())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := s.Do(ctx, keep("a"))
		done <- err
	}()
	broker.read()
	broker.send(okFor("a"))
	broker.close()
	eventually(t, "the connection is lost", func() bool { _, lost := n.find(gloom.EventLost); return lost })
	cancel()
	wantError(t, received(t, done, "Do"), context.Canceled)
	broker = f.accept()
	broker.expect(attachTo("a"), `{"action":"cancel","id":"a"}`)
	broker.send(attached("a", "running"), okFor("a"))
	eventually(t, "its place in the window is free", func() bool { return s.Outstanding() == 0 })
}

func TestCloseWithKeptJobs(t *testing.T) {
	f := newFake(t)
	var n notices
	s, broker := dial(t, f, n.option(), gloom.Backoff(time.Hour, time.Hour))
	a := submit(t, s, keep("a"))
	broker.read()
	broker.close()
	eventually(t, "the connection is lost", func() bool { _, lost := n.find(gloom.EventLost); return lost })
	select {
	case <-a.Done():
		t.Fatal("a has ended while it may be fetched")
	default:
	}
	s.Close()
	wantError(t, resultError(t, a), gloom.ErrClosed)

	s, broker = dial(t, f) // with a connection, the result is the same
	a = submit(t, s, keep("a"))
	broker.read()
	s.Close()
	wantError(t, resultError(t, a), gloom.ErrClosed)
}

func TestAttachFollowsJob(t *testing.T) {
	f := newFake(t)
	s, broker := dial(t, f)
	a, err := s.Attach(within(t), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	broker.expect(attachTo("a"))
	broker.send(attached("a", "queued"))
	if err := a.Ack(within(t)); err != nil {
		t.Fatal(err)
	}
	_, err = s.Attach(within(t), "a", nil)
	wantError(t, err, gloom.ErrIDExists)
	broker.close() // a job that a client attached to is kept
	broker = f.accept()
	broker.expect(attachTo("a"))
	broker.send(attached("a", "ended"), resultFor("a", "1"))
	wantResult(t, a, "1")
	told := make(chan string, 1)
	tell := func(r gloom.Result, err error) { told <- fmt.Sprint(r.ID, " ", string(r.Body), " ", err) }
	if err := s.AttachFunc(within(t), "b", nil, tell); err != nil {
		t.Fatal(err)
	}
	broker.expect(attachTo("b"))
	broker.send(attached("b", "ended"), resultFor("b", "2"))
	if got := received(t, told, "told"); got != "b 2 <nil>" {
		t.Errorf("told %s", got)
	}
	_, err = s.Attach(within(t), "", nil)
	wantError(t, err, gloom.ErrInvalidType)
}

func TestChangeSendsOnlySetFields(t *testing.T) {
	s, broker := dial(t, newFake(t))
	for want, c := range map[string]gloom.Change{
		`{"action":"change","id":"a"}`:                                                     {},
		`{"action":"change","id":"a","priority":0}`:                                        {Priority: new(int64(0))},
		`{"action":"change","id":"a","groups":[]}`:                                         {Groups: []string{}},
		`{"action":"change","id":"a","delay_ms":0}`:                                        {Delay: new(time.Duration(0))},
		`{"action":"change","id":"a","priority":-9,"groups":["b","é\""],"delay_ms":60000}`: {Priority: new(int64(-9)), Groups: []string{"b", `é"`}, Delay: new(time.Minute)},
	} {
		done := make(chan error, 1)
		go func() { done <- s.Change(within(t), "a", c) }()
		broker.expect(want)
		broker.send(okFor("a"))
		if err := received(t, done, "change"); err != nil {
			t.Error(err)
		}
	}
	wantError(t, s.Change(within(t), "a", gloom.Change{Groups: []string{"\xff"}}), gloom.ErrInvalidType)
	wantError(t, s.Change(within(t), "", gloom.Change{}), gloom.ErrInvalidType)
	wantError(t, s.Change(within(t), "a", gloom.Change{Delay: new(-time.Hour)}), gloom.ErrInvalidValue)
}

// TestPingWhileLeaving: a submitter that has shut down its side of the connection does not answer a
// ping: the write would fail and end the connection before the rest of the broker's frames is read.
func TestPingWhileLeaving(t *testing.T) {
	f := newFake(t)
	s, broker := dial(t, f)
	a, b := submit(t, s, keep("a")), submit(t, s, keep("b"))
	broker.read()
	broker.read()
	broker.send(okFor("a"), okFor("b"))
	if err := b.Ack(within(t)); err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	go func() {
		s.Leave(within(t))
		close(left)
	}()
	if _, err := readFrame(broker.nc); err != io.EOF {
		t.Fatalf("%v, not the end", err)
	}
	broker.send(`{"action":"ping"}`, resultFor("a", "1"))
	wantResult(t, a, "1")
	select {
	case <-left:
		t.Error("left before the broker had ended")
	case <-time.After(time.Second): // more than the time that is left after a failed write
	}
	broker.send(resultFor("b", "2"))
	broker.close()
	wantResult(t, b, "2")
	received(t, left, "return")
}
