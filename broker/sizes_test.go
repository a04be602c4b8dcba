package broker_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"gloom/broker"
)

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestTypesAndHoldingsAreSmall: no limit on bytes covers the memory of types and holdings besides
// their jobs, so it must be small: a broker may have 100,000 types, and as many submitters as
// connections.
func TestTypesAndHoldingsAreSmall(t *testing.T) {
	n := 2000
	if broker.InvariantsEnabled {
		n = 1500
	}
	for _, c := range []struct {
		name  string
		limit int64
		do    func(b *broker.Broker)
	}{
		{"a type with one job", 3000, func(b *broker.Broker) {
			p := b.AddSubmitter()
			for i := range n {
				b.Submit(0, p, &broker.Submission{ID: fmt.Append(nil, "i", i), Type: fmt.Append(nil, "t", i), Body: []byte("1")})
			}
		}},
		{"a submitter with an older job behind a younger one", 3000, func(b *broker.Broker) {
			for i := range n {
				p := b.AddSubmitter()
				b.Submit(0, p, &broker.Submission{ID: fmt.Append(nil, "a", i), Type: []byte("t"), Body: []byte("1"), Delay: time.Second})
				b.Submit(0, p, &broker.Submission{ID: fmt.Append(nil, "b", i), Type: []byte("t"), Body: []byte("1")})
			}
			for now := int64(2 * time.Second); b.NextTick() <= now; {
				b.Tick(now)
			}
		}},
	} {
		b := broker.New(broker.Config{MaxTypes: 2 * n})
		before := heapBytes()
		c.do(b)
		if bytesEach := (heapBytes() - before) / int64(n); bytesEach > c.limit {
			t.Errorf("%s takes %d bytes, want at most %d", c.name, bytesEach, c.limit)
		}
		runtime.KeepAlive(b)
	}
}
