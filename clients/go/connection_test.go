package gloom_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gloom "gloom/clients/go"
)

func TestLostConnectionEndsJobs(t *testing.T) {
	for name, cut := range map[string]func(*peer){"closed": (*peer).close, "reset": (*peer).reset} {
		t.Run(name, func(t *testing.T) {
			s, broker := dial(t, newFakeBroker(t))
			a, b := submit(t, s, gloom.Job{ID: "a"}), submit(t, s, gloom.Job{ID: "b"})
			broker.read()
			broker.read()
			broker.send(okReply("a"))
			if err := a.Ack(waitContext(t)); err != nil {
				t.Fatal(err)
			}
			cut(broker)
			for p, want := range map[*gloom.Pending]string{a: "lost, acked", b: "lost, sent"} {
				err := resultError(t, p)
				wantError(t, err, gloom.ErrLost)
				if got := endName(err); got != want {
					t.Errorf("job %s: %s, want %s", p.ID(), got, want)
				}
			}
			if n := s.Outstanding(); n != 0 {
				t.Errorf("%d outstanding", n)
			}
		})
	}
}

func TestLossEndsWaitingCalls(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t))
	done := make(chan error, 2)
	go func() { done <- s.Ping(waitContext(t)) }()
	broker.expect(`{"action":"ping"}`)
	go func() { done <- s.Cancel(waitContext(t), "x") }()
	broker.expect(`{"action":"cancel","id":"x"}`)
	broker.close()
	for range 2 {
		wantError(t, receive(t, done, "a call"), gloom.ErrLost)
	}
}

// newCloggedSubmitter returns a submitter whose writer is blocked in writing job "first": the
// broker reads no further, so that later jobs stay in the client. The next connection is to the
// fake.
func newCloggedSubmitter(t *testing.T, f *fakeBroker) (s *gloom.Submitter, first *gloom.Pending, broker *peer) {
	t.Helper()
	ours, theirs := net.Pipe()
	var dials atomic.Int32
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(f.addr()), quickBackoff, gloom.Dialer(
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
	t.Cleanup(func() { s.Close() })
	first = submit(t, s, gloom.Job{ID: "first"})
	if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return s, first, newPeer(t, theirs)
}

func TestErrorSaysWhetherJobWasSent(t *testing.T) {
	s, first, broker := newCloggedSubmitter(t, newFakeBroker(t))
	second := submit(t, s, gloom.Job{ID: "second"})
	broker.close()
	if got := endName(resultError(t, first)); got != "lost, sent" {
		t.Errorf("first: %s", got)
	}
	if got := endName(resultError(t, second)); got != "lost, not sent" {
		t.Errorf("second: %s", got)
	}
}

func TestSubmitterReconnectsAfterLoss(t *testing.T) {
	f := newFakeBroker(t)
	var n notices
	s, broker := dial(t, f, n.option())
	broker.close()
	for range 5 {
		broker = f.accept()
		p := submit(t, s, gloom.Job{ID: "a"}) // waits for the new connection
		broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
		broker.send(okReply("a"), resultFrame("a", "1"))
		wantResult(t, p, "1")
		broker.close()
	}
	if lost, ok := n.find(gloom.EventLost); !ok || lost.Addr != f.addr() || lost.Err == nil {
		t.Errorf("notice %+v", lost)
	}
	if _, ok := n.find(gloom.EventConnected); !ok {
		t.Error("no notice of a connection")
	}
}

func TestLostJobIsNotSubmittedAgain(t *testing.T) {
	f := newFakeBroker(t)
	s, broker := dial(t, f)
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.read()
	broker.close()
	resultError(t, p)
	broker = f.accept()
	submit(t, s, gloom.Job{ID: "b"})
	broker.expect(`{"action":"submit","id":"b","backoff_ms":1000,"body":null}`)
}

func TestSubmitWaitsForConnection(t *testing.T) {
	f := newFakeBroker(t)
	addr := f.addr()
	f.ln.Close()
	var n notices
	s, err := gloom.NewSubmitter(gloom.Addrs(addr), quickBackoff, n.option())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.TrySubmit(gloom.Job{})
	wantError(t, err, gloom.ErrNotConnected)
	eventually(t, "an attempt has failed", func() bool {
		notice, ok := n.find(gloom.EventFailed)
		return ok && notice.Err != nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = s.Submit(ctx, gloom.Job{})
	if wantError(t, err, context.DeadlineExceeded); !strings.Contains(err.Error(), addr) {
		t.Errorf("%v does not name %s", err, addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f = &fakeBroker{t, ln}
	defer ln.Close()
	submit(t, s, gloom.Job{ID: "a"})
	f.accept().expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
}

func TestFailoverToSecondAddress(t *testing.T) {
	one, two := newFakeBroker(t), newFakeBroker(t)
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(one.addr(), two.addr()), quickBackoff)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	broker := one.accept()
	one.ln.Close()
	broker.close()
	broker = two.accept()
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	broker.send(okReply("a"), resultFrame("a", "1"))
	wantResult(t, p, "1")
}

func TestDialTriesEachAddress(t *testing.T) {
	closedBroker, openBroker := newFakeBroker(t), newFakeBroker(t)
	closedBroker.ln.Close()
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(closedBroker.addr(), openBroker.addr()))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	openBroker.ln.Close()
	_, err = gloom.Dial(waitContext(t), gloom.Addrs(closedBroker.addr(), openBroker.addr()))
	if err == nil || !strings.Contains(err.Error(), closedBroker.addr()) || !strings.Contains(err.Error(), openBroker.addr()) {
		t.Errorf("error is %v", err)
	}
}

func TestDrainingBrokerIsLeft(t *testing.T) {
	one, two := newFakeBroker(t), newFakeBroker(t)
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(one.addr(), two.addr()), quickBackoff)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	oldConn := one.accept()
	a := submit(t, s, gloom.Job{ID: "a"})
	b := submit(t, s, gloom.Job{ID: "b"})
	oldConn.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`, `{"action":"submit","id":"b","backoff_ms":1000,"body":null}`)
	oldConn.send(okReply("a"), errorFrame("draining", "b"))
	wantError(t, resultError(t, b), gloom.ErrDraining)

	newConn := two.accept()
	// While the old broker still has a job, both connections are in use.
	done := make(chan error, 1)
	eventually(t, "jobs go to the new broker", func() bool {
		p := submit(t, s, gloom.Job{NoAck: true})
		newConn.nc.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		payload, err := readFrame(newConn.nc)
		newConn.nc.SetReadDeadline(time.Now().Add(patience))
		return err == nil && strings.Contains(string(payload), p.ID())
	})
	go func() { done <- a.Cancel(waitContext(t)) }()
	for !strings.Contains(oldConn.read(), "cancel") { // jobs sent before the move come first
	}
	oldConn.send(errorFrame("unknown_id", "a"))
	wantError(t, receive(t, done, "cancel"), gloom.ErrUnknownID)
	oldConn.send(resultFrame("a", "1"))
	wantResult(t, a, "1")
}

func TestRetiredConnectionGetsNoJobs(t *testing.T) {
	one, two := newFakeBroker(t), newFakeBroker(t)
	var n notices
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(one.addr(), two.addr()), quickBackoff, n.option())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	oldConn := one.accept()
	a := submit(t, s, gloom.Job{ID: "a"})
	b := submit(t, s, gloom.Job{ID: "b"})
	oldConn.read()
	oldConn.read()
	oldConn.send(okReply("a"), errorFrame("draining", "b"))
	wantError(t, resultError(t, b), gloom.ErrDraining)
	two.accept()
	eventually(t, "the old connection is retired", func() bool {
		p, err := s.TrySubmit(gloom.Job{ID: "a"}) // refused while it goes to the old broker
		return err == nil && p != nil
	})
	oldConn.send(resultFrame("a", "1"))
	wantResult(t, a, "1")
	oldConn.expectClose()
}

// The length that a frame announces is not allocated before its bytes arrive.
func TestAnnouncedLengthIsNotAllocated(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t), gloom.MaxFrame(1<<30))
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.read()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	broker.nc.Write([]byte{0x3f, 0, 0, 0, '{'}) // announces 1 GiB
	broker.close()
	if got := endName(resultError(t, p)); got != "lost, sent" { // otherwise the length would have been refused
		t.Error(got)
	}
	runtime.ReadMemStats(&after)
	if growth := after.TotalAlloc - before.TotalAlloc; growth > 1<<20 {
		t.Errorf("%d bytes were allocated for 5 that came", growth)
	}
}

func TestTooLargeFrameIsRefused(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t), gloom.MaxFrame(1024))
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.nc.Write([]byte{0xff, 0xff, 0xff, 0xff})
	if got := endName(resultError(t, p)); got != "protocol error" {
		t.Error(got)
	}
}

// TestDrainingBrokerWithoutAnother: if no other broker can be reached, a submitter stays connected
// to a broker that drains and refuses its jobs, and reconnects to it.
func TestDrainingBrokerWithoutAnother(t *testing.T) {
	one, two := newFakeBroker(t), newFakeBroker(t)
	two.ln.Close()
	var n notices
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(one.addr(), two.addr()), quickBackoff, n.option())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	broker := one.accept()
	for _, id := range []string{"a", "b"} { // the first connection stays in use
		p := submit(t, s, gloom.Job{ID: id})
		broker.read()
		broker.send(errorFrame("draining", id))
		wantError(t, resultError(t, p), gloom.ErrDraining)
		eventually(t, "the other was tried", func() bool {
			notice, ok := n.find(gloom.EventFailed)
			return ok && strings.Contains(notice.Err.Error(), two.addr())
		})
	}
	broker.close()
	broker = one.accept()
	p := submit(t, s, gloom.Job{ID: "c"})
	broker.expect(`{"action":"submit","id":"c","backoff_ms":1000,"body":null}`)
	broker.send(okReply("c"), resultFrame("c", "1"))
	wantResult(t, p, "1")
}

func TestWaitingJobMayChangeBroker(t *testing.T) {
	f := newFakeBroker(t)
	s, _, broker := newCloggedSubmitter(t, f)
	big := gloom.Job{Body: []byte(`"` + strings.Repeat("x", 2<<20) + `"`)}
	submit(t, s, big)
	_, err := s.TrySubmit(big)
	wantError(t, err, gloom.ErrWindowFull)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = s.Submit(ctx, big)
	wantError(t, err, context.DeadlineExceeded)

	done := make(chan error, 1)
	go func() {
		_, err := s.Submit(context.Background(), gloom.Job{ID: "late", Body: []byte("1")})
		done <- err
	}()
	eventually(t, "the job waits", func() bool { return s.Outstanding() == 3 })
	broker.close()
	broker = f.accept()
	broker.expect(`{"action":"submit","id":"late","backoff_ms":1000,"body":1}`)
	if err := receive(t, done, "the submit"); err != nil {
		t.Fatal(err)
	}
}

func TestTrustBodiesSkipsCheck(t *testing.T) {
	s, broker := dial(t, newFakeBroker(t), gloom.TrustBodies())
	submit(t, s, gloom.Job{ID: "a", Body: []byte(`1,"priority":5`)})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":1,"priority":5}`)
}
