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

func keptJob(id string) gloom.Job { return gloom.Job{ID: id, Keep: time.Minute} }

const keptSubmitFormat = `{"action":"submit","id":%q,"backoff_ms":1000,"keep_ms":60000,"body":null}`

func attachFrame(id string) string { return fmt.Sprintf(`{"action":"attach","id":%q}`, id) }

func attachedReply(id, state string) string {
	return fmt.Sprintf(`{"ok":true,"id":%q,"state":%q}`, id, state)
}

func TestKeptJobsAreResumed(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f)
	news := make(chan string, 1)
	watched := keptJob("b")
	watched.OnProgress = func(b json.RawMessage) { news <- string(b) }
	unackedJob := keptJob("d")
	unackedJob.NoAck = true
	a, b, c, d := submit(t, s, keptJob("a")), submit(t, s, watched), submit(t, s, gloom.Job{ID: "c"}), submit(t, s, unackedJob)
	for range 4 {
		broker.read()
	}
	broker.send(okReply("a"))
	if err := a.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // cut again and again
		broker.reset()
		broker = f.accept()
		broker.expect(attachFrame("a"), `{"action":"attach","id":"b","progress":true}`, attachFrame("d"))
	}
	if got := endName(resultError(t, c)); got != "lost, sent" {
		t.Errorf("the one that is not kept: %s", got)
	}
	next := submit(t, s, gloom.Job{ID: "e"})
	broker.expect(`{"action":"submit","id":"e","backoff_ms":1000,"body":null}`)
	broker.send(attachedReply("a", "ended"), resultFrame("a", "1"), attachedReply("b", "running"), attachedReply("d", "queued"), okReply("e"),
		`{"id":"b","progress":5}`, errorFrame("job_failed", "b"), resultFrame("d", "4"), resultFrame("e", "5"))
	wantResult(t, a, "1")
	if got := receive(t, news, "progress"); got != "5" {
		t.Errorf("progress %s", got)
	}
	wantError(t, resultError(t, b), gloom.ErrJobFailed)
	wantResult(t, d, "4")
	wantResult(t, next, "5")
	if n := s.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
}

func TestUnsentKeptJobsAreSubmittedLater(t *testing.T) {
	f := newFakeBroker(t)
	s, first, broker := newCloggedSubmitter(t, f)
	second := submit(t, s, keptJob("second"))
	broker.close()
	if got := endName(resultError(t, first)); got != "lost, sent" {
		t.Errorf("first: %s", got)
	}
	broker = f.accept()
	broker.expect(fmt.Sprintf(keptSubmitFormat, "second"))
	broker.send(okReply("second"), resultFrame("second", "2"))
	wantResult(t, second, "2")
}

// An unsent job is not sent to a broker that accepts only smaller jobs.
func TestTooLargeUnsentJobIsNotSent(t *testing.T) {
	f := newFakeBroker(t)
	ours, theirs := net.Pipe()
	var dials atomic.Int32
	s, err := gloom.NewSubmitter(gloom.Addrs(f.addr()), quickBackoff, gloom.ClientName("x"), gloom.Dialer(
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
	large := keptJob("large")
	large.Body = []byte(`"` + strings.Repeat("x", 1000) + `"`)
	p, smallJob := submit(t, s, large), submit(t, s, keptJob("small"))
	broker.close()
	broker = f.accept()
	broker.read()
	broker.send(limit(1000))
	var refusal *gloom.RefusedError
	if err := resultError(t, p); !errors.As(err, &refusal) || refusal.Code != gloom.ErrSizeError || refusal.ID != "large" {
		t.Errorf("error is %v", err)
	}
	broker.expect(fmt.Sprintf(keptSubmitFormat, "small"))
	broker.send(okReply("small"), resultFrame("small", "1"))
	wantResult(t, smallJob, "1")
	if n := s.Outstanding(); n != 0 {
		t.Errorf("%d outstanding", n)
	}
}

// A broker that no longer knows a job may have run it: it is run again only on request.
func TestKeptJobLostByBroker(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f)
	ackedJob, sentJob, repeatableJob := submit(t, s, keptJob("acked")), submit(t, s, keptJob("sent")), keptJob("again")
	repeatableJob.AtLeastOnce = true
	p := submit(t, s, repeatableJob)
	for range 3 {
		broker.read()
	}
	broker.send(okReply("acked"))
	if err := ackedJob.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	broker.close()
	broker = f.accept()
	broker.expect(attachFrame("acked"), attachFrame("sent"), attachFrame("again"))
	broker.send(errorFrame("unknown_id", "acked"), errorFrame("unknown_id", "sent"), errorFrame("unknown_id", "again"))
	for p, want := range map[*gloom.Pending]string{ackedJob: "lost, acked, unknown_id", sentJob: "lost, sent, unknown_id"} {
		if got := endName(resultError(t, p)); got != want {
			t.Errorf("job %s: %s, want %s", p.ID(), got, want)
		}
	}
	broker.expect(fmt.Sprintf(keptSubmitFormat, "again"))
	broker.close() // that may be lost, too
	broker = f.accept()
	broker.expect(attachFrame("again"))
	broker.send(errorFrame("unknown_id", "again"))
	broker.expect(fmt.Sprintf(keptSubmitFormat, "again"))
	// The submit of a lost connection may arrive late.
	broker.send(errorFrame("id_exists", "again"))
	broker.expect(attachFrame("again"))
	broker.send(attachedReply("again", "ended"), resultFrame("again", "3"))
	wantResult(t, p, "3")
}

// The client does not go on asking a broker that neither has a job nor accepts it.
func TestRefusedKeptJobEnds(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f)
	job := keptJob("a")
	job.AtLeastOnce = true
	p := submit(t, s, job)
	broker.read()
	broker.close()
	broker = f.accept()
	broker.expect(attachFrame("a"))
	broker.send(errorFrame("unknown_id", "a"))
	broker.expect(fmt.Sprintf(keptSubmitFormat, "a"))
	broker.send(errorFrame("id_exists", "a"))
	broker.expect(attachFrame("a"))
	broker.send(errorFrame("unknown_id", "a"))
	if got := endName(resultError(t, p)); got != "lost, sent, unknown_id" {
		t.Error(got)
	}
}

// A job does not wait for a broker that refuses the token.
func TestKeptJobEndsWithRefusedToken(t *testing.T) {
	f := newFakeBroker(t)
	s, err := gloom.NewSubmitter(gloom.Addrs(f.addr()), gloom.Token("x"), quickBackoff)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	submitted := make(chan *gloom.Pending, 1)
	go func() { submitted <- submit(t, s, keptJob("a")) }()
	broker := f.accept()
	broker.read()
	broker.send(`{"ok":true}`)
	broker.read()
	broker.send(okReply("a"))
	p := <-submitted
	if err := p.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	broker.close()
	broker = f.accept()
	broker.read()
	broker.send(`{"error":"unauthorized","reason":"unknown token"}`)
	broker.close()
	if got := endName(resultError(t, p)); got != "lost, acked, unauthorized" {
		t.Error(got)
	}
}

// Two clients that attach to one job in turn would fight forever.
func TestTakenOverJobEnds(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f)
	a, b := submit(t, s, keptJob("a")), submit(t, s, keptJob("b"))
	broker.read()
	broker.read()
	broker.send(okReply("a"), okReply("b"), errorFrame("taken_over", "a"))
	err := resultError(t, a)
	var jobErr *gloom.JobError
	if wantError(t, err, gloom.ErrTakenOver); !errors.As(err, &jobErr) {
		t.Errorf("error is %v", err)
	}
	broker.close()
	broker = f.accept()
	broker.expect(attachFrame("b"))
	broker.send(attachedReply("b", "ended"), resultFrame("b", "1"))
	wantResult(t, b, "1")
}

func TestKeptJobsStayWithTheirBroker(t *testing.T) {
	one, two := newFakeBroker(t), newFakeBroker(t)
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(one.addr(), two.addr()), quickBackoff)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	broker := one.accept()
	a := submit(t, s, keptJob("a"))
	broker.read()
	broker.send(okReply("a"))
	if err := a.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	broker.close()
	broker = one.accept() // the same one is tried first
	broker.expect(attachFrame("a"))
	broker.send(attachedReply("a", "running"))
	one.ln.Close()
	broker.close()
	broker = two.accept() // the other broker, which never had the job
	if got := endName(resultError(t, a)); got != "lost, acked" {
		t.Error(got)
	}
	submit(t, s, gloom.Job{ID: "b"})
	broker.expect(`{"action":"submit","id":"b","backoff_ms":1000,"body":null}`)
}

func TestDoAbandonsKeptJob(t *testing.T) {
	f := newFakeBroker(t)
	var n notices
	s, broker := dial(t, f, n.option())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := s.Do(ctx, keptJob("a"))
		done <- err
	}()
	broker.read()
	broker.send(okReply("a"))
	broker.close()
	eventually(t, "the connection is lost", func() bool { _, lost := n.find(gloom.EventLost); return lost })
	cancel()
	wantError(t, receive(t, done, "Do"), context.Canceled)
	broker = f.accept()
	broker.expect(attachFrame("a"), `{"action":"cancel","id":"a"}`)
	broker.send(attachedReply("a", "running"), okReply("a"))
	eventually(t, "its place in the window is free", func() bool { return s.Outstanding() == 0 })
}

func TestCancelledKeptJobIsNotSubmittedAgain(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f)
	job := keptJob("a")
	job.AtLeastOnce = true
	p := submit(t, s, job)
	broker.read()
	broker.close()
	broker = f.accept()
	broker.expect(attachFrame("a"))
	cancelled := make(chan error, 1)
	if err := s.CancelFunc(waitContext(t), "a", func(err error) { cancelled <- err }); err != nil {
		t.Fatal(err)
	}
	broker.expect(`{"action":"cancel","id":"a"}`)
	broker.send(errorFrame("unknown_id", "a"), errorFrame("unknown_id", "a"))
	wantError(t, receive(t, cancelled, "reply"), gloom.ErrUnknownID)
	if got := endName(resultError(t, p)); got != "lost, sent, unknown_id" {
		t.Error(got)
	}
}

func TestCloseEndsKeptJobs(t *testing.T) {
	f := newFakeBroker(t)
	var n notices
	s, broker := dial(t, f, n.option(), gloom.Backoff(time.Hour, time.Hour))
	a := submit(t, s, keptJob("a"))
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
	a = submit(t, s, keptJob("a"))
	broker.read()
	s.Close()
	wantError(t, resultError(t, a), gloom.ErrClosed)
}

func TestAttachFollowsJob(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f)
	a, err := s.Attach(waitContext(t), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	broker.expect(attachFrame("a"))
	broker.send(attachedReply("a", "queued"))
	if err := a.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	_, err = s.Attach(waitContext(t), "a", nil)
	wantError(t, err, gloom.ErrIDExists)
	broker.close() // a job that a client attached to is kept
	broker = f.accept()
	broker.expect(attachFrame("a"))
	broker.send(attachedReply("a", "ended"), resultFrame("a", "1"))
	wantResult(t, a, "1")
	resultTexts := make(chan string, 1)
	tell := func(r gloom.Result, err error) { resultTexts <- fmt.Sprint(r.ID, " ", string(r.Body), " ", err) }
	if err := s.AttachFunc(waitContext(t), "b", nil, tell); err != nil {
		t.Fatal(err)
	}
	broker.expect(attachFrame("b"))
	broker.send(attachedReply("b", "ended"), resultFrame("b", "2"))
	if got := receive(t, resultTexts, "told"); got != "b 2 <nil>" {
		t.Errorf("told %s", got)
	}
	_, err = s.Attach(waitContext(t), "", nil)
	wantError(t, err, gloom.ErrInvalidType)
}

func TestChangeSendsOnlySetFields(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	for want, c := range map[string]gloom.Change{
		`{"action":"change","id":"a"}`:                                                     {},
		`{"action":"change","id":"a","priority":0}`:                                        {Priority: new(int64(0))},
		`{"action":"change","id":"a","groups":[]}`:                                         {Groups: []string{}},
		`{"action":"change","id":"a","delay_ms":0}`:                                        {Delay: new(time.Duration(0))},
		`{"action":"change","id":"a","priority":-9,"groups":["b","é\""],"delay_ms":60000}`: {Priority: new(int64(-9)), Groups: []string{"b", `é"`}, Delay: new(time.Minute)},
	} {
		done := make(chan error, 1)
		go func() { done <- s.Change(waitContext(t), "a", c) }()
		broker.expect(want)
		broker.send(okReply("a"))
		if err := receive(t, done, "change"); err != nil {
			t.Error(err)
		}
	}
	wantError(t, s.Change(waitContext(t), "a", gloom.Change{Groups: []string{"\xff"}}), gloom.ErrInvalidType)
	wantError(t, s.Change(waitContext(t), "", gloom.Change{}), gloom.ErrInvalidType)
	wantError(t, s.Change(waitContext(t), "a", gloom.Change{Delay: new(-time.Hour)}), gloom.ErrInvalidValue)
}

// TestLeavingSubmitterIgnoresPings: a submitter that has shut down its side of the connection does not answer a
// ping: the write would fail and end the connection before the rest of the broker's frames is read.
func TestLeavingSubmitterIgnoresPings(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f)
	a, b := submit(t, s, keptJob("a")), submit(t, s, keptJob("b"))
	broker.read()
	broker.read()
	broker.send(okReply("a"), okReply("b"))
	if err := b.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	leaveDone := make(chan struct{})
	go func() {
		s.Leave(waitContext(t))
		close(leaveDone)
	}()
	if _, err := readFrame(broker.nc); err != io.EOF {
		t.Fatalf("%v, not the end", err)
	}
	broker.send(`{"action":"ping"}`, resultFrame("a", "1"))
	wantResult(t, a, "1")
	select {
	case <-leaveDone:
		t.Error("left before the broker had ended")
	case <-time.After(time.Second): // more than the time that is left after a failed write
	}
	broker.send(resultFrame("b", "2"))
	broker.close()
	wantResult(t, b, "2")
	receive(t, leaveDone, "return")
}
