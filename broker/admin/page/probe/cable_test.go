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
			nearEnd, err := l.Accept()
			if err != nil {
				return
			}
			farEnd, err := net.Dial("tcp", to)
			if err != nil {
				_ = nearEnd.Close()
				continue
			}
			go func() {
				defer farEnd.Close()
				_, _ = io.Copy(farEnd, nearEnd)
			}()
			go func() {
				defer nearEnd.Close()
				_, _ = io.Copy(io.MultiWriter(nearEnd, c), farEnd)
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
