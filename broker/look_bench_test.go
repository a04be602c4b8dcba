package broker_test

import (
	"fmt"
	"testing"
	"time"

	"gloom/broker"
)

// BenchmarkGroups looks at very many groups. It reports the time of the longest piece, for which
// the lock is held, and the time of all pieces together.
func BenchmarkGroups(b *testing.B) {
	const groups = 300_000
	core := broker.New(broker.Config{})
	sub := core.AddSubmitter()
	for i := range groups {
		core.Submit(0, sub, &broker.Submission{
			ID: fmt.Append(nil, i), Type: []byte("t"), Body: []byte("1"), NoAck: true,
			Groups: [][]byte{fmt.Append(nil, "group-", i)},
		})
	}
	for _, c := range []struct {
		name string
		look broker.GroupLook
		of   []byte
	}{
		{"all", broker.GroupLook{Limit: 100}, nil},
		{"shut", broker.GroupLook{Limit: 3, OnlyShut: true}, nil},
		{"type", broker.GroupLook{Limit: 100, Types: [][]byte{[]byte("t")}}, []byte("t")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var longestHold, lockedTime time.Duration
			for range b.N {
				l := c.look
				for more := true; more; {
					begin := time.Now()
					more = core.LookGroups(&l)
					holdTime := time.Since(begin)
					longestHold, lockedTime = max(longestHold, holdTime), lockedTime+holdTime
				}
				l.Infos(c.of)
			}
			b.ReportMetric(float64(longestHold.Microseconds()), "longest-µs")
			b.ReportMetric(float64(lockedTime.Microseconds())/float64(b.N), "locked-µs/op")
		})
	}
}
