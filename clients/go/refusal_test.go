package gloom_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	gloom "gloom/clients/go"
)

// endName names how a job or a cancel ended: the kind of error and its code.
func endName(err error) string {
	var (
		refusal     *gloom.RefusedError
		job         *gloom.JobError
		lost        *gloom.LostError
		protocolErr *gloom.ProtocolError
	)
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &protocolErr):
		return "protocol error"
	case errors.As(err, &lost):
		text := "lost, not sent"
		if lost.Sent {
			text = "lost, sent"
		}
		if lost.Acked {
			text = "lost, acked"
		}
		if errors.As(err, &refusal) {
			text += ", " + string(refusal.Code)
		}
		return text
	case errors.As(err, &refusal):
		return "refused " + string(refusal.Code)
	case errors.As(err, &job):
		return "ended " + string(job.Code)
	}
	return err.Error()
}

// Each case makes the requests in ask, in order; then the broker sends the frames in replies. want
// lists the outcomes. In ask, a is a job, a? a job with NoAck, a! a detached job, a!? a job that is both (a
// ping follows it), -a a cancel, ~a a change and ^a an attach.
func TestErrorAttribution(t *testing.T) {
	for _, c := range []struct {
		name    string
		ask     string
		replies []string
		want    string
	}{
		{"refused in place of the ack", "a",
			[]string{errorFrame("id_exists", "a")}, "a refused id_exists"},
		{"refused with a code of a later broker", "a",
			[]string{errorFrame("on_strike", "a")}, "a refused on_strike"},
		{"ended by a code of a later broker", "a",
			[]string{okReply("a"), errorFrame("on_strike", "a")}, "a ended on_strike"},
		{"refused while another is pending", "a b c",
			[]string{okReply("a"), errorFrame("overloaded", "b"), okReply("c"), errorFrame("job_failed", "a"), resultFrame("c", "1")},
			"a ended job_failed; b refused overloaded; c ok"},
		{"every end", "a b c d",
			[]string{okReply("a"), okReply("b"), okReply("c"), okReply("d"), errorFrame("expired", "b"), errorFrame("cancelled", "a"),
				errorFrame("draining", "d"), errorFrame("job_failed", "c")},
			"a ended cancelled; b ended expired; c ended job_failed; d ended draining"},
		{"draining in place of the ack", "a b",
			[]string{okReply("a"), errorFrame("draining", "b"), resultFrame("a", "1")}, "a ok; b refused draining"},
		{"draining of an earlier job while an ack is due", "a b",
			[]string{okReply("a"), errorFrame("draining", "a"), okReply("b"), resultFrame("b", "1")}, "a ended draining; b ok"},
		{"a nameless refusal is the next reply", "a b",
			[]string{`{"error":"invalid_type","reason":"why"}`, okReply("b"), resultFrame("b", "1")}, "a refused invalid_type; b ok"},
		{"id_exists after the ack, as the original may", "a b",
			[]string{okReply("a"), errorFrame("id_exists", "a"), okReply("b"), resultFrame("b", "1")}, "a ended id_exists; b ok"},

		{"a quiet job is answered", "a?", []string{resultFrame("a", "1")}, "a ok"},
		{"a quiet job is refused", "a?", []string{errorFrame("overloaded", "a")}, "a refused overloaded"},
		{"a quiet job fails", "a?", []string{errorFrame("job_failed", "a")}, "a ended job_failed"},
		{"a quiet job meets a drain", "a?", []string{errorFrame("draining", "a")}, "a ended draining"},
		{"a quiet job fails after a later ack", "a? b",
			[]string{okReply("b"), errorFrame("on_strike", "a"), resultFrame("b", "1")}, "a ended on_strike; b ok"},
		{"quiet jobs refused among others", "a? b c? d",
			[]string{errorFrame("forbidden", "a"), okReply("b"), errorFrame("forbidden", "c"), okReply("d"), resultFrame("d", "1"), resultFrame("b", "1")},
			"a refused forbidden; b ok; c refused forbidden; d ok"},
		{"a later quiet job refused first", "a? b? c",
			[]string{errorFrame("invalid_value", "b"), okReply("c"), resultFrame("c", "1"), resultFrame("a", "1")},
			"a ok; b refused invalid_value; c ok"},

		{"cancelled by us", "a -a", []string{okReply("a"), okReply("a")}, "a ended cancelled; -a ok"},
		{"cancelled too late", "a -a",
			[]string{okReply("a"), resultFrame("a", "1"), errorFrame("unknown_id", "a")}, "a ok; -a refused unknown_id"},
		{"cancelled just as it failed", "a -a",
			[]string{okReply("a"), errorFrame("job_failed", "a"), errorFrame("unknown_id", "a")}, "a ended job_failed; -a refused unknown_id"},
		{"cancelled just as the broker went", "a -a",
			[]string{okReply("a"), errorFrame("draining", "a"), errorFrame("unknown_id", "a")}, "a ended draining; -a refused unknown_id"},
		{"a quiet job cancelled", "a? -a", []string{okReply("a")}, "a ended cancelled; -a ok"},
		{"a quiet job refused before its cancel", "a? -a",
			[]string{errorFrame("forbidden", "a"), errorFrame("unknown_id", "a")}, "a refused forbidden; -a refused unknown_id"},
		{"a cancel forbidden", "a -a b",
			[]string{okReply("a"), errorFrame("forbidden", "a"), okReply("b"), resultFrame("a", "1"), resultFrame("b", "1")},
			"a ok; -a refused forbidden; b ok"},
		{"ended with a code that is not known", "a b", []string{okReply("a"), okReply("b"), errorFrame("retired", "a"), resultFrame("b", "1")},
			"a ended retired; b ok"},
		{"taken over", "a b", []string{okReply("a"), okReply("b"), errorFrame("taken_over", "a"), resultFrame("b", "1")},
			"a ended taken_over; b ok"},
		{"taken over while we cancel", "a -a", []string{okReply("a"), errorFrame("taken_over", "a"), errorFrame("unknown_id", "a")},
			"a ended taken_over; -a refused unknown_id"},
		{"changed", "a ~a", []string{okReply("a"), okReply("a"), resultFrame("a", "1")}, "a ok; ~a ok"},
		{"changed too late", "a ~a", []string{okReply("a"), errorFrame("invalid_state", "a"), resultFrame("a", "1")},
			"a ok; ~a refused invalid_state"},
		{"changed just as it expired", "a ~a", []string{okReply("a"), errorFrame("expired", "a"), errorFrame("unknown_id", "a")},
			"a ended expired; ~a refused unknown_id"},
		{"a quiet job refused before its change", "a? ~a",
			[]string{errorFrame("overloaded", "a"), errorFrame("unknown_id", "a")}, "a refused overloaded; ~a refused unknown_id"},
		{"attached", "^a b", []string{`{"ok":true,"id":"a","state":"ended"}`, resultFrame("a", "1"), okReply("b"), resultFrame("b", "2")},
			"a ok; b ok"},
		{"attached to a failure", "^a", []string{`{"ok":true,"id":"a","state":"running"}`, errorFrame("job_failed", "a")},
			"a ended job_failed"},
		{"nothing to attach to", "^a", []string{errorFrame("unknown_id", "a")}, "a refused unknown_id"},
		{"too large to attach to", "^a b", []string{errorFrame("overloaded", "a"), okReply("b"), resultFrame("b", "2")},
			"a refused overloaded; b ok"},

		{"somebody's detached job cancelled", "a -x", []string{okReply("a"), okReply("x"), resultFrame("a", "1")}, "a ok; -x ok"},
		{"nobody's job cancelled", "-x a", []string{errorFrame("unknown_id", "x"), okReply("a"), resultFrame("a", "1")}, "-x refused unknown_id; a ok"},

		{"detached", "a! b", []string{okReply("a"), errorFrame("draining", "b")}, "a ok; b refused draining"},
		{"a detached id again, and the old one cancelled", "a! -x",
			[]string{okReply("a"), okReply("x")}, "a ok; -x ok"},
		{"detached and refused", "a!", []string{errorFrame("overloaded", "a")}, "a refused overloaded"},
		{"quiet and detached", "a!? b", []string{`{"ok":true}`, okReply("b"), resultFrame("b", "1")}, "a ok; b ok"},
		{"quiet and detached, refused", "a!? b", []string{errorFrame("overloaded", "a"), `{"ok":true}`, okReply("b"), resultFrame("b", "1")},
			"a refused overloaded; b ok"},
		{"an ok with an id for a ping", "a!?", []string{okReply("a")}, "a protocol error"},

		{"unauthorized", "a b", []string{okReply("a"), `{"error":"unauthorized","reason":"why"}`}, "a lost, acked, unauthorized; b lost, sent, unauthorized"},
		{"a connection too many", "a", []string{`{"error":"overloaded","reason":"connections"}`}, "a lost, sent, overloaded"},
		{"a frame too large for the broker", "a b c",
			[]string{okReply("a"), `{"error":"size_error","reason":"why"}`, "close"},
			"a lost, acked, size_error; b refused size_error; c lost, sent, size_error"},
		{"ok for another id", "a b", []string{okReply("b")}, "a protocol error; b protocol error"},
		{"ok for nothing", "a", []string{okReply("a"), okReply("a")}, "a protocol error"},
		{"a refusal out of order", "a b", []string{errorFrame("overloaded", "b")}, "a protocol error; b protocol error"},
		{"no JSON", "a", []string{"{"}, "a protocol error"},
		{"an empty frame", "a", []string{""}, "a protocol error"},
		{"frames of a later broker", "a",
			[]string{`{"news":1}`, okReply("a"), `{"action":"dance"}`, resultFrame("a", "1")}, "a ok"},
		{"word of unknown jobs", "a",
			[]string{okReply("a"), resultFrame("x", "1"), errorFrame("job_failed", "x"), resultFrame("a", "1")}, "a ok"},
		{"a result before its ack", "a b",
			[]string{resultFrame("a", "1"), okReply("a"), okReply("b"), resultFrame("b", "1")}, "a ok; b ok"},
	} {
		t.Run(c.name, func(t *testing.T) { runOrder(t, c.ask, c.replies, c.want) })
	}
}

func runOrder(t *testing.T, ask string, replies []string, want string) {
	s, broker := dial(t, newFakeBroker(t))
	type waiter func() string
	var waiters []waiter
	for _, step := range strings.Fields(ask) {
		id := strings.Trim(step, "?!-~^")
		switch step[0] {
		case '-', '~':
			done := make(chan error, 1)
			go func() {
				if step[0] == '-' {
					done <- s.Cancel(waitContext(t), id)
				} else {
					done <- s.Change(waitContext(t), id, gloom.Change{Priority: new(int64(1))})
				}
			}()
			waiters = append(waiters, func() string { return step + " " + endName(receive(t, done, step)) })
		default:
			var p *gloom.Pending
			if step[0] == '^' {
				var err error
				if p, err = s.Attach(waitContext(t), id, nil); err != nil {
					t.Fatal(err)
				}
			} else {
				p = submit(t, s, gloom.Job{ID: id, Detach: strings.Contains(step, "!"), NoAck: strings.HasSuffix(step, "?")})
			}
			waiters = append(waiters, func() string {
				_, err := p.Result(waitContext(t))
				return id + " " + endName(err)
			})
		}
		broker.read() // so that requests go out in this order
		if strings.HasSuffix(step, "!?") {
			broker.expect(`{"action":"ping"}`)
		}
	}
	for _, payload := range replies {
		if payload == "close" {
			broker.close()
		} else {
			broker.send(payload)
		}
	}
	var got []string
	for _, wait := range waiters {
		got = append(got, wait())
	}
	if got := strings.Join(got, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDuplicateIDIsRefused(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	a := submit(t, s, gloom.Job{ID: "a"})
	_, err := s.Submit(waitContext(t), gloom.Job{ID: "a"})
	if got := endName(err); got != "refused id_exists" {
		t.Fatal(got)
	}
	broker.send(okReply("a"), resultFrame("a", "1"))
	wantResult(t, a, "1")
	duplicate := submit(t, s, gloom.Job{ID: "a"})
	broker.send(okReply("a"), resultFrame("a", "2"))
	wantResult(t, duplicate, "2")
}

// TestJobEndsOnce: a broker that replies to a job once more after its end changes nothing.
func TestJobEndsOnce(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	a := submit(t, s, gloom.Job{ID: "a"})
	d := submit(t, s, gloom.Job{ID: "d", Detach: true, NoAck: true})
	broker.read()
	broker.read()
	broker.send(resultFrame("a", "1"), okReply("a"), resultFrame("d", "1"))
	wantResult(t, a, "1")
	wantResult(t, d, "")
	b := submit(t, s, gloom.Job{ID: "b"})
	broker.send(`{"ok":true}`, okReply("b"), resultFrame("b", "1")) // the first is for the ping that confirms d
	wantResult(t, b, "1")
}

func TestIDOfDetachedJobIsReusable(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	detachedJob := submit(t, s, gloom.Job{ID: "a", Detach: true})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"detach":true,"body":null}`)
	broker.send(okReply("a"))
	if r, err := detachedJob.Result(waitContext(t)); err != nil || r.Body != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	// The detached job is cancelled, and its id is used again at once.
	cancelled := make(chan error, 1)
	go func() { cancelled <- s.Cancel(waitContext(t), "a") }()
	broker.expect(`{"action":"cancel","id":"a"}`)
	successor := submit(t, s, gloom.Job{ID: "a"})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	broker.send(okReply("a"), okReply("a"), resultFrame("a", "1"))
	if err := receive(t, cancelled, "cancel"); err != nil {
		t.Fatal(err)
	}
	wantResult(t, successor, "1")
}

func TestAckReportsRefusal(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.send(errorFrame("forbidden", "a"))
	wantError(t, p.Ack(waitContext(t)), gloom.ErrForbidden)
	receive(t, p.Acked(), "acked, for it has ended")
}

func TestLaterResultAcceptsNoAckJob(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	a, b := submit(t, s, gloom.Job{ID: "a", NoAck: true}), submit(t, s, gloom.Job{ID: "b", NoAck: true})
	broker.send(resultFrame("b", "1"))
	wantResult(t, b, "1")
	if err := a.Ack(waitContext(t)); err != nil { // a refusal would have arrived first
		t.Fatal(err)
	}
	select {
	case <-a.Done():
		t.Fatal("a has not ended")
	default:
	}
}

func TestDetachedNoAckJobsShareConfirmation(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t), gloom.Window(64))
	const jobs = 500
	done := make(chan error, jobs)
	go func() {
		for range jobs {
			err := s.SubmitFunc(context.Background(), gloom.Job{Detach: true, NoAck: true},
				func(_ gloom.Result, err error) { done <- err })
			if err != nil {
				done <- err
			}
		}
	}()
	submits, pings := 0, 0
	for submits < jobs {
		if payload := broker.read(); strings.Contains(payload, "ping") {
			pings++
			broker.send(`{"ok":true}`)
		} else {
			submits++
		}
	}
	broker.expect(`{"action":"ping"}`)
	broker.send(`{"ok":true}`)
	for range jobs {
		if err := receive(t, done, "a confirmation"); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d jobs took %d pings", jobs, pings+1)
}

func TestErrorTextsSayWhatHappened(t *testing.T) {
	for want, err := range map[string]error{
		`gloom: refused: overloaded: queue is full (id "a")`:         &gloom.RefusedError{Code: gloom.ErrOverloaded, Reason: "queue is full", ID: "a"},
		`gloom: refused: unauthorized`:                               &gloom.RefusedError{Code: gloom.ErrUnauthorized},
		`gloom: job ended: job_failed: disk full (id "a")`:           &gloom.JobError{Code: gloom.ErrJobFailed, Reason: "disk full", ID: "a"},
		`gloom: connection to x:1 lost with job "a" acked: EOF`:      &gloom.LostError{Addr: "x:1", ID: "a", Acked: true, Sent: true, Cause: errors.New("EOF")},
		`gloom: connection to x:1 lost with job "a" sent, not acked`: &gloom.LostError{Addr: "x:1", ID: "a", Sent: true},
		`gloom: connection to x:1 lost with job "a" not sent`:        &gloom.LostError{Addr: "x:1", ID: "a"},
		`gloom: broker violated the protocol: why`:                   &gloom.ProtocolError{Reason: "why"},
		`gloom: handler panicked on job "a": boom`:                   &gloom.PanicError{ID: "a", Value: "boom"},
		`gloom: connection to x:1 lost`:                              &gloom.LostError{Addr: "x:1"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
