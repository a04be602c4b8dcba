package relay

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

type wire struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, addr string) wire {
	t.Helper()
	network := "tcp"
	if addr[0] == '/' {
		network = "unix"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(45 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return wire{t, c}
}

func (w wire) send(payload string) {
	w.t.Helper()
	if _, err := w.Write(frame(payload)); err != nil {
		w.t.Fatal(err)
	}
}

func (w wire) want(payload string) {
	w.t.Helper()
	var n uint32
	if err := binary.Read(w, binary.BigEndian, &n); err != nil {
		w.t.Fatalf("waiting for %.40q: %v", payload, err)
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(w, got); err != nil {
		w.t.Fatal(err)
	}
	if string(got) != payload {
		w.t.Fatalf("got %.60q, want %.60q", got, payload)
	}
}

// eachMode runs a test on both loops, over TCP and unix sockets.
func eachMode(t *testing.T, fn func(t *testing.T, r *Relay)) {
	for _, direct := range []bool{false, true} {
		for _, local := range []bool{false, true} {
			t.Run(fmt.Sprintf("bare=%v,unix=%v", direct, local), func(t *testing.T) {
				submit, work := "127.0.0.1:0", "127.0.0.1:0"
				if local {
					dir := t.TempDir()
					submit, work = "unix:"+dir+"/s", "unix:"+dir+"/w"
				}
				r, err := Start(submit, work, direct)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}()
				fn(t, r)
			})
		}
	}
}

// Frames go from submitter to worker and back unchanged, oldest first, each to the
// right peer.
func TestFramesArePassedOn(t *testing.T) { eachMode(t, passedOn) }

func passedOn(t *testing.T, r *Relay) {
	a, b := dial(t, r.SubmitAddr()), dial(t, r.SubmitAddr())
	largeBody := strings.Repeat("x", 3<<20)
	a.send("job 1")
	a.want(SubmitAck)
	b.send("job 2 " + largeBody)
	b.want(SubmitAck)
	a.send("job 3")
	a.want(SubmitAck)

	w := dial(t, r.WorkerAddr())
	w.send("join")
	w.want(WorkerAck)
	w.want("job 1")
	w.send("answer 1")
	w.want(WorkerAck)
	w.want("job 2 " + largeBody)
	a.want("answer 1")
	w.send("answer 2 " + largeBody)
	w.want(WorkerAck)
	w.want("job 3")
	b.want("answer 2 " + largeBody)
	b.Close() // and a's jobs are not lost
	w.send("answer 3")
	w.want(WorkerAck)
	a.want("answer 3")

	a.send("job 4") // an idle worker gets it at once
	a.want(SubmitAck)
	w.want("job 4")
}

// The relay sends a submitter's answers and acks in one write per loop round: many jobs, few
// segments. The test checks that none is missing.
func TestManyFramesAtOnce(t *testing.T) { eachMode(t, manyConns) }

func manyConns(t *testing.T, r *Relay) {
	s, w := dial(t, r.SubmitAddr()), dial(t, r.WorkerAddr())
	w.send("join")
	w.want(WorkerAck)
	const jobs = 500
	var received []byte
	for range jobs {
		received = append(received, frame("job")...)
	}
	if _, err := s.Write(received); err != nil {
		t.Fatal(err)
	}
	go func() {
		for range jobs {
			if _, err := io.ReadFull(w, make([]byte, len(frame("job")))); err != nil {
				return
			}
			if _, err := w.Write(frame("done")); err != nil {
				return
			}
			if _, err := io.ReadFull(w, make([]byte, len(workerAck))); err != nil {
				return
			}
		}
	}()
	acks, answers := 0, 0
	for acks+answers < 2*jobs {
		var n uint32
		if err := binary.Read(s, binary.BigEndian, &n); err != nil {
			t.Fatalf("after %d acks and %d answers: %v", acks, answers, err)
		}
		p := make([]byte, n)
		if _, err := io.ReadFull(s, p); err != nil {
			t.Fatal(err)
		}
		if string(p) == SubmitAck {
			acks++
		} else {
			answers++
		}
	}
	if acks != jobs || answers != jobs {
		t.Errorf("%d acks and %d answers, want %d each", acks, answers, jobs)
	}
}
