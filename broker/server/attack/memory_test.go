package attack

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// countToExceed returns how many things of this size together exceed maxMemory or, in the full
// attack, ten times as many.
func countToExceed(size int) int {
	n := maxMemory/size + 1
	if *runFull {
		n *= 10
	}
	return n
}

// scaleTime returns d or, in the full attack, eight times d.
func scaleTime(d time.Duration) time.Duration {
	if *runFull {
		d *= 8
	}
	return d
}

// TestHoardersDoNotExceedMemory: whatever peers hoard, the broker's memory stays within its bound
// and shrinks afterwards, and innocent peers are served.
func TestHoardersDoNotExceedMemory(t *testing.T) {
	padding := strings.Repeat("j", 14*mib)
	body := strings.Repeat("b", 130<<10)
	for _, a := range []struct {
		name string
		do   func(d *daemon)
	}{
		{"frames around jobs", func(d *daemon) {
			p := d.dial(d.submit)
			for i := range countToExceed(len(padding)) {
				p.send(`{"junk":"%s","action":"submit","id":"p%d","type":"pinned","body":"%s"}`, padding, i, body)
				p.wantFrame(`{`)
			}
		}},
		{"frames around dead letters", func(d *daemon) {
			p, w := d.dial(d.submit), d.dial(d.worker)
			w.send(`{"action":"join","type":"pinned"}`)
			w.wantFrame(`{"ok":true}`)
			for i := range countToExceed(len(padding)) {
				p.send(`{"junk":"%s","action":"submit","id":"d%d","type":"pinned","body":"%s"}`, padding, i, body)
				p.wantFrame(`{"ok":true`)
				w.wantFrame(`{"action":"job"`)
				w.send(`{"action":"fail","retry":false}`)
				w.wantFrame(`{"ok":true}`)
				p.wantFrame(`{"error":"job_failed"`)
			}
		}},
		{"frames around answers", func(d *daemon) {
			p, w := d.dial(d.submit), d.dial(d.worker)
			w.send(`{"action":"join","type":"pinned"}`)
			w.wantFrame(`{"ok":true}`)
			for i := range countToExceed(len(padding)) {
				if !p.trySend(packFrame(`{"action":"submit","id":"a%d","type":"pinned","body":1,"ack":false}`, i)) {
					break
				}
				// Once the submitter has been closed, no job arrives.
				if got, err := w.nextWithin(3 * time.Second); err != nil || !strings.HasPrefix(got, `{"action":"job"`) {
					break
				}
				w.send(`{"junk":"%s","action":"respond","body":"%s"}`, padding, body)
				w.wantFrame(`{"ok":true}`)
			}
		}},
		{"errors not read", func(d *daemon) { d.sendAndNeverRead(make([]byte, 1*mib)) }},
		{"answers not read", func(d *daemon) {
			d.sendAndNeverRead(bytes.Repeat(packFrame(`{"action":"ping"}`), 20000))
		}},
		{"errors not read, again and again", func(d *daemon) {
			var wg sync.WaitGroup
			end := time.Now().Add(scaleTime(3 * time.Second))
			zeros := make([]byte, 1*mib)
			for range 32 {
				wg.Go(func() {
					for time.Now().Before(end) {
						c, err := d.tryDial(d.submit)
						if err != nil {
							return
						}
						_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
						for err == nil {
							_, err = c.Write(zeros)
						}
						_ = c.Close()
					}
				})
			}
			wg.Wait()
		}},
		{"answers read but for their last byte", func(d *daemon) {
			w := d.dial(d.worker)
			w.send(`{"action":"join","type":"big"}`)
			w.wantFrame(`{"ok":true}`)
			for i := range countToExceed(len(padding)) {
				p := d.dial(d.submit)
				p.send(`{"action":"submit","id":"b%d","type":"big","body":1}`, i)
				p.wantFrame(`{"ok":true`)
				if _, err := w.next(); err != nil {
					d.t.Fatal(err)
				}
				w.send(`{"action":"respond","body":"%s"}`, padding)
				w.wantFrame(`{"ok":true}`)
				_ = p.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
				buf := make([]byte, 64<<10)
				for n := 0; n < 8*mib; {
					k, err := p.Read(buf)
					n += k
					if err != nil {
						break
					}
				}
			}
		}},
		{"unfinished frames", func(d *daemon) {
			frame := packFrame(`{"action":"submit","id":"u","type":"t","body":"%s"}`, padding)
			for range countToExceed(len(padding)) {
				d.dial(d.submit).trySend(frame[:len(frame)-1])
			}
		}},
		{"many small unfinished frames", func(d *daemon) {
			frame := packFrame(`{"action":"submit","id":"u","type":"t","body":"%s"}`, padding[:100<<10])
			for range countToExceed(100 << 10) {
				d.dial(d.submit).trySend(frame[:len(frame)-1])
			}
		}},
		{"jobs that time out at workers who do not read", func(d *daemon) {
			p := d.dial(d.submit)
			for i := range countToExceed(8 * mib) {
				w := d.dial(d.worker)
				w.send(`{"action":"join","type":"late"}`)
				p.send(`{"action":"submit","id":"l%d","type":"late","body":"%s","timeout_ms":1,"retries":0}`, i, padding[:8*mib])
				p.wantFrame(`{`)
				if _, err := p.next(); err != nil {
					d.t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			d.checkBounded(func() { a.do(d); d.hangUp() })
		})
	}
}

// sendAndNeverRead lets many peers send the same bytes again and again for some time and read
// nothing.
func (d *daemon) sendAndNeverRead(frames []byte) {
	var wg sync.WaitGroup
	end := time.Now().Add(scaleTime(3 * time.Second))
	for range 40 {
		p := d.dial(d.submit)
		wg.Go(func() {
			for time.Now().Before(end) && p.trySend(frames) {
			}
		})
	}
	wg.Wait()
}

// TestOtherClientsUnharmed: peers that hoard unfinished frames are closed, but a worker whose answer
// arrives in two pieces is not.
func TestOtherClientsUnharmed(t *testing.T) {
	d := start(t)
	s, w := d.dial(d.submit), d.dial(d.worker)
	w.send(`{"action":"join","type":"t"}`)
	w.wantFrame(`{"ok":true}`)
	s.send(`{"action":"submit","id":"i","type":"t","body":1}`)
	s.wantFrame(`{"ok":true`)
	w.wantFrame(`{"action":"job"`)
	answer := packFrame(`{"action":"respond","body":"%s"}`, strings.Repeat("i", 2*mib))
	if !w.trySend(answer[:mib]) {
		t.Fatal("the first half was not taken")
	}
	frame := packFrame(`{"action":"submit","id":"u","type":"t","body":"%s"}`, strings.Repeat("u", 8*mib))
	for range 10 {
		d.dial(d.submit).trySend(frame[:len(frame)-1])
	}
	if !w.trySend(answer[mib:]) {
		t.Fatal("the second half was not taken")
	}
	w.wantFrame(`{"ok":true}`)
	s.wantFrame(`{"id":"i","body":"iii`)
}

// TestIdleTLSKeepsLittleMemory: a TLS connection keeps little memory after a large frame. There are so many
// connections that the 16 MiB by which the collector may lag do not matter.
func TestIdleTLSKeepsLittleMemory(t *testing.T) {
	d := start(t, append(writeCertificate(t), "--max-memory=1GiB")...) // TLS may take an eighth of that
	d.hasTLS = true
	const n = 1000
	var peers []*peer
	for range n {
		p := d.dial(d.submit)
		p.send(`{"action":"ping"}`)
		p.wantFrame(`{"ok":true}`)
		peers = append(peers, p)
	}
	before := d.residentBytes()
	for i, p := range peers {
		p.send(`{"action":"submit","id":"t%d","type":"t","body":%s}`, i, fmt.Sprintf("%q", strings.Repeat("t", 200<<10)))
		p.wantFrame(`{"ok":true`)
		p.send(`{"action":"cancel","id":"t%d"}`, i)
		p.wantFrame(`{"ok":true`)
	}
	end := time.Now().Add(4 * patience) // the Go runtime returns memory only when it is idle
	for d.residentBytes() > before+n*32<<10 {
		if time.Now().After(end) {
			t.Fatalf("%d TLS connections that sent one large frame each take %d KiB more, each", n, (d.residentBytes()-before)/n>>10)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d KiB for each, idle", d.residentBytes()/n>>10)
}
