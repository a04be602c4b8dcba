package gloom_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	gloom "gloom/clients/go"
)

// patience bounds every wait of a test.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	// The event loops of the in-process server leave goroutines in their pool.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// fakeBroker is a broker that sends only the bytes that a test writes.
type fakeBroker struct {
	t  testing.TB
	ln net.Listener
}

func newFakeBroker(t testing.TB) *fakeBroker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeBroker{t, ln}
	t.Cleanup(func() { ln.Close() })
	return f
}

func newUnixFakeBroker(t testing.TB) *fakeBroker {
	t.Helper()
	dir, err := os.MkdirTemp("", "gloom")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close(); os.RemoveAll(dir) })
	return &fakeBroker{t, ln}
}

func (f *fakeBroker) addr() string {
	if f.ln.Addr().Network() == "unix" {
		return "unix:" + f.ln.Addr().String()
	}
	return f.ln.Addr().String()
}

func (f *fakeBroker) accept() *peer {
	f.t.Helper()
	f.ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(patience))
	nc, err := f.ln.Accept()
	if err != nil {
		f.t.Fatalf("nobody connected: %v", err)
	}
	return newPeer(f.t, nc)
}

// peer is the broker's end of a connection.
type peer struct {
	t  testing.TB
	nc net.Conn
}

func newPeer(t testing.TB, nc net.Conn) *peer {
	nc.SetDeadline(time.Now().Add(2 * patience))
	t.Cleanup(func() { nc.Close() })
	return &peer{t, nc}
}

// expect reads frames, which must be exactly these.
func (p *peer) expect(payloads ...string) {
	p.t.Helper()
	for _, want := range payloads {
		if got := p.read(); got != want {
			p.t.Fatalf("the client sent %s\nnot %s", got, want)
		}
	}
}

func (p *peer) read() string {
	p.t.Helper()
	payload, err := readFrame(p.nc)
	if err != nil {
		p.t.Fatalf("the client sent no frame: %v", err)
	}
	return string(payload)
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r, payload)
	return payload, err
}

// send writes frames in one call.
func (p *peer) send(payloads ...string) {
	p.t.Helper()
	if _, err := p.nc.Write(encodeFrames(payloads...)); err != nil {
		p.t.Fatalf("send to the client: %v", err)
	}
}

func encodeFrames(payloads ...string) (b []byte) {
	for _, s := range payloads {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

// expectClose demands that the client closes the connection and sends nothing before.
func (p *peer) expectClose() {
	p.t.Helper()
	payload, err := readFrame(p.nc)
	var timeout net.Error
	if err == nil {
		p.t.Fatalf("the client sent %s, not the end", payload)
	}
	if errors.As(err, &timeout) && timeout.Timeout() {
		p.t.Fatal("the client did not close the connection")
	}
}

func (p *peer) close() { p.nc.Close() }

func (p *peer) reset() {
	p.nc.(*net.TCPConn).SetLinger(0)
	p.nc.Close()
}

// waitContext returns a context for one wait.
func waitContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls a condition.
func eventually(t testing.TB, event string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", event)
		}
	}
}

func receive[T any](t testing.TB, from <-chan T, event string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("never came: %s", event)
		panic("unreachable")
	}
}

// dial connects a submitter to a fake.
func dial(t testing.TB, f *fakeBroker, opts ...gloom.Option) (*gloom.Submitter, *peer) {
	t.Helper()
	s, err := gloom.Dial(waitContext(t), append([]gloom.Option{gloom.Addrs(f.addr()), quickBackoff}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, f.accept()
}

// quickBackoff shortens the waits before reconnects.
var quickBackoff = gloom.Backoff(time.Millisecond, 5*time.Millisecond)

func submit(t testing.TB, s *gloom.Submitter, job gloom.Job) *gloom.Pending {
	t.Helper()
	p, err := s.Submit(waitContext(t), job)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantResult(t testing.TB, p *gloom.Pending, body string) {
	t.Helper()
	r, err := p.Result(waitContext(t))
	if err != nil {
		t.Fatalf("job %q: %v", p.ID(), err)
	}
	if string(r.Body) != body || r.ID != p.ID() {
		t.Fatalf("job %q: result %s for %q, want %s", p.ID(), r.Body, r.ID, body)
	}
}

// wantError demands an error that matches target, and returns it.
func wantError(t testing.TB, err, target error) error {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, want one that matches %v", err, target)
	}
	return err
}

func resultError(t testing.TB, p *gloom.Pending) error {
	t.Helper()
	_, err := p.Result(waitContext(t))
	if err == nil {
		t.Fatalf("job %q has a result, want an error", p.ID())
	}
	return err
}

func okReply(id string) string        { return fmt.Sprintf(`{"ok":true,"id":%q}`, id) }
func resultFrame(id, b string) string { return fmt.Sprintf(`{"id":%q,"body":%s}`, id, b) }
func errorFrame(code, id string) string {
	return fmt.Sprintf(`{"error":%q,"reason":"because","id":%q}`, code, id)
}

// notices collects what Notify reports.
type notices struct {
	mu   sync.Mutex
	list []gloom.Notice
}

func (n *notices) option() gloom.Option {
	return gloom.Notify(func(notice gloom.Notice) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.list = append(n.list, notice)
	})
}

func (n *notices) find(e gloom.Event) (gloom.Notice, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, notice := range n.list {
		if notice.Event == e {
			return notice, true
		}
	}
	return gloom.Notice{}, false
}
