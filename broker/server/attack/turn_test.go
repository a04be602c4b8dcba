package attack

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFloodDoesNotDelayOthers: whatever a peer floods the broker with, the pings of other peers are
// answered. Only the full attack, which has the machine to itself, checks how soon.
func TestFloodDoesNotDelayOthers(t *testing.T) {
	floods := []struct {
		name  string
		bytes []byte
	}{
		{"empty frames", make([]byte, 256<<10)},
		{"garbage", bytes.Repeat(packFrame(`{"a`), 32<<10)},
		{"refused frames", bytes.Repeat(packFrame(`{"action":"submit","id":"x","priority":"high","type":"t","body":1}`), 4<<10)},
		{"big garbage", packFrame(`{"action":"submit","id":"x","type":"t","body":[%s}`, strings.Repeat(`[1,"",{}],`, 90<<10))},
	}
	for _, secure := range []bool{false, true} {
		for _, c := range []struct {
			peers int
			limit time.Duration
		}{{1, 2 * time.Millisecond}, {32, 20 * time.Millisecond}} {
			for i, f := range floods {
				if !*runFull && i > 0 && (secure || c.peers == 1) {
					continue
				}
				t.Run(fmt.Sprintf("%s from %d peers, TLS %t", f.name, c.peers, secure), func(t *testing.T) {
					var flags []string
					if secure {
						flags = writeCertificate(t)
					}
					d := start(t, flags...)
					d.hasTLS = secure
					for range c.peers {
						p := d.dial(d.submit)
						go func() {
							for err := error(nil); err == nil; {
								_, err = p.Write(f.bytes)
							}
						}()
						go func() { // read everything, so that the broker does not slow the peer down
							buf := make([]byte, 1<<20)
							for err := error(nil); err == nil; {
								_, err = p.Read(buf)
							}
						}()
					}
					if p50 := d.medianPing(scaleTime(time.Second)); *runFull && p50 > c.limit {
						t.Errorf("half of the pings took more than %v, at most %v may pass", p50, c.limit)
					}
				})
			}
		}
	}
}

// medianPing returns the median time of an innocent peer's pings.
func (d *daemon) medianPing(span time.Duration) time.Duration {
	p := d.dial(d.submit)
	var times []time.Duration
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(time.Millisecond) {
		begin := time.Now()
		p.send(`{"action":"ping"}`)
		p.wantFrame(`{"ok":true}`)
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	d.t.Logf("%d pings: p50 %v, p99 %v", len(times), times[len(times)/2], times[len(times)*99/100])
	return times[len(times)/2]
}
