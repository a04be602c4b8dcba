package attack

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

var attackSeed = flag.Uint64("seed", 0, "attack at random with this seed")

// rogue is a peer that misbehaves at random.
type rogue struct {
	*rand.Rand
	net.Conn
}

// roguePayloads make the bytes that a rogue may send: whole frames, beginnings of frames, or garbage.
var roguePayloads = []func(r *rogue) []byte{
	func(r *rogue) []byte { return make([]byte, r.IntN(1<<20)) },
	func(r *rogue) []byte {
		b := make([]byte, r.IntN(64<<10))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	},
	func(r *rogue) []byte { return bytes.Repeat(packFrame(`{"action":"ping"}`), r.IntN(20_000)) },
	func(r *rogue) []byte {
		return bytes.Repeat(packFrame(`{"action":"join","type":"r%d","prefetch":%d}`, r.IntN(50), 1+r.IntN(99)), 1+r.IntN(99))
	},
	func(r *rogue) []byte {
		return packFrame(`{"action":"join","types":["r*","%d"],"cancel":true}`, r.IntN(50))
	},
	func(r *rogue) []byte { // an unfinished frame
		f := packFrame(`{"action":"submit","id":"%d","type":"r1","body":"%s"}`, r.Uint32(), strings.Repeat("u", r.IntN(8<<20)))
		return f[:r.IntN(len(f))]
	},
	func(r *rogue) []byte { // a big body, or a small one in a big frame
		return packFrame(`{"junk":"%s","action":"submit","id":"%d","type":"r%d","body":"%s","retries":%d,"timeout_ms":%d}`,
			strings.Repeat("j", r.IntN(4<<20)), r.Uint32(), r.IntN(50), strings.Repeat("b", r.IntN(1<<20)), r.IntN(3), r.IntN(50))
	},
	func(r *rogue) []byte {
		var b []byte
		for range r.IntN(2000) {
			b = append(b, packFrame(`{"action":"submit","id":"%d","type":"r%d","body":%d,"priority":%d,"keep_ms":%d,"expires_ms":5000,"ack":false}`,
				r.Uint32(), r.IntN(50), r.IntN(100), r.IntN(300), 1+r.IntN(5000))...)
		}
		return b
	},
	func(r *rogue) []byte {
		verb := []string{"respond", "fail", "progress", "release"}[r.IntN(4)]
		return packFrame(`{"action":%q,"id":"%d","body":"%s"}`, verb, r.Uint32(), strings.Repeat("a", r.IntN(1<<20)))
	},
	func(r *rogue) []byte {
		return packFrame(`{"action":"submit","id":"deep","type":"r1","body":%s`, strings.Repeat("[", r.IntN(1<<20)))
	},
}

// misbehave sends and reads at random on the rogue's connection, and closes it.
func (r *rogue) misbehave() {
	defer r.Close()
	for range 1 + r.IntN(8) {
		_ = r.SetDeadline(time.Now().Add(time.Duration(1+r.IntN(300)) * time.Millisecond))
		switch r.IntN(5) {
		case 0:
			_, _ = r.Read(make([]byte, 1+r.IntN(1<<20)))
		case 1:
			if c, ok := r.Conn.(*net.TCPConn); ok && r.IntN(4) == 0 {
				_ = c.SetLinger(0)
			}
		default:
			if _, err := r.Write(roguePayloads[r.IntN(len(roguePayloads))](r)); err != nil && r.IntN(2) == 0 {
				return
			}
		}
	}
}

// TestRoguesHarmNoOther: while rogues attack at random, innocent peers are served. Each job that these
// submit is either refused for lack of room, or reaches their worker and is answered.
func TestRoguesHarmNoOther(t *testing.T) {
	base := *attackSeed
	if base == 0 {
		base = rand.Uint64()
	}
	t.Logf("again with: go test ./broker/server/attack -run TestRoguesHarmNoOther -seed %d", base)
	d := start(t)
	d.checkBounded(func() {
		end := time.Now().Add(scaleTime(6 * time.Second))
		var wg sync.WaitGroup
		for i := range 24 {
			rng := rand.New(rand.NewPCG(base, uint64(i)))
			wg.Go(func() {
				for time.Now().Before(end) {
					c, err := net.DialTimeout("tcp", []string{d.submit, d.worker}[rng.IntN(2)], patience)
					if err != nil {
						return
					}
					(&rogue{rng, c}).misbehave()
				}
			})
		}
		s, w := d.dial(d.submit), d.dial(d.worker)
		w.send(`{"action":"join","type":"innocent"}`)
		w.wantFrame(`{"ok":true}`)
		done, refusals := 0, 0
		maxDelay := time.Duration(0)
		for begin := time.Now(); begin.Before(end); begin = time.Now() {
			s.send(`{"action":"submit","id":"i%d","type":"innocent","body":%d}`, done, done)
			got, err := s.next()
			if err != nil {
				t.Fatalf("an innocent submitter: %v", err)
			}
			if strings.Contains(got, `"overloaded"`) {
				refusals++
				time.Sleep(time.Millisecond)
				continue
			}
			if want := fmt.Sprintf(`{"ok":true,"id":"i%d"}`, done); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
			w.wantFrame(fmt.Sprintf(`{"action":"job","id":"i%d","type":"innocent","body":%d}`, done, done))
			w.send(`{"action":"respond","body":"%d"}`, done)
			w.wantFrame(`{"ok":true}`)
			s.wantFrame(fmt.Sprintf(`{"id":"i%d","body":"%d"}`, done, done))
			done++
			maxDelay = max(maxDelay, time.Since(begin))
		}
		wg.Wait()
		t.Logf("%d innocent jobs done, %d refused, the slowest took %v", done, refusals, maxDelay)
		if done == 0 {
			t.Error("no innocent job was done")
		}
		d.hangUp()
	})
}
