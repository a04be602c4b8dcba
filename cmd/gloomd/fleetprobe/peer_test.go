package fleetprobe

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// frame is a frame from a broker.
type frame struct {
	raw    []byte
	Action string          `json:"action"`
	OK     bool            `json:"ok"`
	ID     string          `json:"id"`
	Type   string          `json:"type"`
	State  string          `json:"state"`
	Error  string          `json:"error"`
	Reason string          `json:"reason"`
	Body   json.RawMessage `json:"body"`
	News   json.RawMessage `json:"progress"`
	Header json.RawMessage `json:"headers"`
}

func (f frame) String() string {
	if len(f.raw) > 300 {
		return fmt.Sprintf("%s… (%d bytes)", f.raw[:300], len(f.raw))
	}
	return string(f.raw)
}

// isResult reports whether the frame ends a job with an answer.
func (f frame) isResult() bool { return f.Action == "" && f.Body != nil && f.Error == "" }

// peer is a connection that sends and receives frames.
type peer struct {
	t       testing.TB
	at      *broker
	conn    net.Conn
	in      chan frame // closed when the connection has ended
	writeMu sync.Mutex
	name    string
}

// connect opens a connection to a broker's port, closed when the test ends.
func connect(t testing.TB, b *broker, port string) *peer {
	t.Helper()
	c, err := b.dial(port)
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(c)
	p.t, p.name = t, b.name+":"+port
	t.Cleanup(p.close)
	return p
}

func newPeer(c net.Conn) *peer {
	p := &peer{conn: c, in: make(chan frame, 100_000)}
	go p.read()
	return p
}

func newSubmitter(t testing.TB, b *broker) *peer { t.Helper(); return connect(t, b, "9998") }

// newWorker joins with more keys, such as `"type":"x","prefetch":5`.
func newWorker(t testing.TB, b *broker, join string) *peer {
	t.Helper()
	p := connect(t, b, "9999")
	p.wantOK(`{"action":"join",` + join + `}`)
	return p
}

func (p *peer) close() { p.conn.Close() }

func (p *peer) read() {
	defer close(p.in)
	r := bufio.NewReaderSize(p.conn, 1<<16)
	for {
		var n [4]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return
		}
		f := frame{raw: make([]byte, binary.BigEndian.Uint32(n[:]))}
		if _, err := io.ReadFull(r, f.raw); err != nil {
			return
		}
		if err := json.Unmarshal(f.raw, &f); err != nil {
			f.Error, f.Reason = "not a frame", err.Error()
		}
		p.in <- f
	}
}

func (p *peer) write(text string) error {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	_, err := p.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	if err := p.write(format); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// next returns the next frame.
func (p *peer) next() frame {
	p.t.Helper()
	select {
	case f, ok := <-p.in:
		if !ok {
			p.t.Fatalf("%s closed the connection", p.name)
		}
		return f
	case <-time.After(patience):
		p.t.Fatalf("%s sent nothing within %s", p.name, patience)
	}
	panic("not reached")
}

// wantOK sends a frame; the next frame must be its ok.
func (p *peer) wantOK(format string, args ...any) frame {
	p.t.Helper()
	p.send(format, args...)
	f := p.next()
	if !f.OK {
		p.t.Fatalf("%s: to %.200s: %s, want ok", p.name, format, f)
	}
	return f
}

// wantRefusal sends a frame, and fails the test unless the reply is this error.
func (p *peer) wantRefusal(code, format string, args ...any) {
	p.t.Helper()
	p.send(format, args...)
	if f := p.next(); f.Error != code || f.Reason == "" {
		p.t.Fatalf("%s: to %.200s: %s, want %s with a reason", p.name, format, f, code)
	}
}

// nextJob returns the next frame, which must be a job.
func (p *peer) nextJob() frame {
	p.t.Helper()
	f := p.next()
	if f.Action != "job" {
		p.t.Fatalf("%s: %s, want a job", p.name, f)
	}
	return f
}

// wantEnd returns the next frame, which must be the end of a job: a result if code is empty,
// otherwise an error with this code.
func (p *peer) wantEnd(id, code string) frame {
	p.t.Helper()
	f := p.next()
	if f.ID != id || f.Error != code || f.isResult() != (code == "") {
		p.t.Fatalf("%s: %s, want the end of %s by %q", p.name, f, id, code)
	}
	return f
}

// wantQuiet checks that no frame arrives for a while.
func (p *peer) wantQuiet(d time.Duration) {
	p.t.Helper()
	select {
	case f, ok := <-p.in:
		p.t.Fatalf("%s: %s (open: %t), want nothing", p.name, f, ok)
	case <-time.After(d):
	}
}

// awaitClose waits for the end of the connection.
func (p *peer) awaitClose() {
	p.t.Helper()
	for {
		select {
		case _, ok := <-p.in:
			if !ok {
				return
			}
		case <-time.After(patience):
			p.t.Fatalf("%s keeps the connection", p.name)
		}
	}
}

// quote returns the text as JSON.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}
