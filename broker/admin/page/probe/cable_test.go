package probe

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// cable is a proxy that forwards to a broker's HTTP address and counts the bytes that come from
// it.
type cable struct {
	addr  string
	bytes atomic.Int64
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := &cable{addr: l.Addr().String()}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			go func() {
				defer far.Close()
				_, _ = io.Copy(far, near)
			}()
			go func() {
				defer near.Close()
				_, _ = io.Copy(io.MultiWriter(near, c), far)
			}()
		}
	}()
	return c
}

// Write counts the bytes.
func (c *cable) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}
