package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/goccy/go-json"
	"github.com/rs/zerolog"

	"gloom/broker/settings"
)

// patience bounds every wait for something that must happen.
const patience = 45 * time.Second

// startServer starts a broker on free ports; set changes its options first.
func startServer(t *testing.T, set func(o *settings.Options)) *Server {
	t.Helper()
	s, err := Start(testOptions(set), zerolog.New(zerolog.NewTestWriter(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// testOptions returns the defaults, with free ports.
func testOptions(set func(o *settings.Options)) settings.Options {
	o := settings.Default()
	o.SubmitAddr, o.WorkerAddr, o.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
	if set != nil {
		set(&o)
	}
	return o
}

// peer is the test's end of a connection to the broker.
type peer struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, a net.Addr) *peer {
	t.Helper()
	nc, err := net.Dial(a.Network(), a.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &peer{t, nc}
}

// shrinkBuffers makes p's receive buffer small, so that little of what p does not read fits into the
// system's buffers.
func (p *peer) shrinkBuffers() *peer {
	p.t.Helper()
	if c, ok := p.Conn.(interface{ SetReadBuffer(int) error }); ok {
		if err := c.SetReadBuffer(64 << 10); err != nil {
			p.t.Fatal(err)
		}
	}
	return p
}

func frame(format string, args ...any) []byte {
	p := fmt.Appendf(nil, format, args...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	_ = p.SetWriteDeadline(time.Now().Add(patience))
	if _, err := p.Write(frame(format, args...)); err != nil {
		p.t.Fatal(err)
	}
}

// next reads one frame.
func (p *peer) next() (map[string]any, error) {
	_ = p.SetReadDeadline(time.Now().Add(patience))
	var head [4]byte
	if _, err := io.ReadFull(p, head[:]); err != nil {
		return nil, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(p, payload); err != nil {
		return nil, err
	}
	var m map[string]any
	return m, json.Unmarshal(payload, &m)
}

// wantFrame reads one frame, in which key must have this value.
func (p *peer) wantFrame(key string, value any) map[string]any {
	p.t.Helper()
	m, err := p.next()
	if err != nil {
		p.t.Fatalf("no frame with %s %v: %v", key, value, err)
	}
	if m[key] != value {
		p.t.Fatalf("got %.300v, want %s %v", m, key, value)
	}
	return m
}

// eventually polls a condition until it is true, which must happen in time.
func eventually(t *testing.T, name string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, name)
		}
	}
}
