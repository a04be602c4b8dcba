package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

const mib = 1 << 20

// awaitMemory waits until resident memory is at most limit. Under the race detector, whose shadow
// memory is never released, it only logs the value.
func (d *daemon) awaitMemory(t *testing.T, name string, base, peak, limit int64) {
	t.Helper()
	begin := time.Now()
	for {
		rss := d.usage().RSS
		if rss <= limit {
			t.Logf("%s: resident %d MiB before, %d at the peak, %d after %s", name, base/mib, peak/mib, rss/mib, roundedSince(begin))
			return
		}
		if throwaway.Race || time.Since(begin) > 20*time.Second {
			text := fmt.Sprintf("%s: resident %d MiB before, %d at the peak, still %d after %s, limit %d",
				name, base/mib, peak/mib, rss/mib, roundedSince(begin), limit/mib)
			if throwaway.Race {
				t.Log(text)
			} else {
				t.Error(text)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestMemoryIsReturned(t *testing.T) {
	t.Parallel()
	body := quote(strings.Repeat("m", 1000))
	jobs := scaledCount(60_000)
	fill := func(t *testing.T, b *daemon, s submitter, typ string) (peak int64) {
		acks := make(chan error, 1)
		go func() {
			for range jobs {
				if f, err := s.next(patience); err != nil || f.kind() != "ack" {
					acks <- fmt.Errorf("got %s, %v", f, err)
					return
				}
			}
			acks <- nil
		}()
		var batch []byte
		for i := range jobs {
			batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":"m-%d","type":%q,"body":%s}`, i, typ, body))...)
			if len(batch) > 256<<10 {
				s.writeRaw(batch)
				batch = batch[:0]
			}
		}
		s.writeRaw(batch)
		if err := <-acks; err != nil {
			t.Fatal(err)
		}
		return b.usage().RSS
	}
	t.Run("after a backlog was worked off", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		b.checkAlive(t)
		base := b.usage().RSS
		typ := freshName("backlog")
		s := b.submitter(t)
		peak := fill(t, b, s, typ)
		if growth := peak - base; growth < int64(jobs)*1000 {
			t.Errorf("%d jobs of 1,000 bytes and resident memory grew by %d: is the figure right?", jobs, growth)
		}
		var ws []worker
		for range 4 {
			ws = append(ws, b.servingWorker(t, typ))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			runParallel(t, len(ws), func(f *parallelT, i int) {
				for {
					fr, err := ws[i].next(patience)
					if err != nil {
						return // closed below
					}
					if fr.kind() == "job" {
						_ = ws[i].write(packFrame(`{"action":"respond","body":0}`))
					}
				}
			})
		}()
		for range jobs {
			s.want("result")
		}
		for _, w := range ws {
			w.close()
		}
		<-done
		b.awaitMemory(t, "backlog worked off", base, peak, base+(peak-base)/3+16*mib)
		b.checkAlive(t)
	})
	t.Run("after its submitter was gone", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		b.checkAlive(t)
		base := b.usage().RSS
		typ := freshName("backlog")
		s := b.submitter(t)
		peak := fill(t, b, s, typ)
		s.close()
		b.submitWhenFree(t, "m-0", freshName("new"))
		b.awaitMemory(t, "submitter gone", base, peak, base+(peak-base)/3+16*mib)
		b.checkAlive(t)
	})
}

// TestUnfinishedFramesAreBounded: the memory of many unfinished frames is bounded, and released when their
// peers have gone.
func TestUnfinishedFramesAreBounded(t *testing.T) {
	t.Parallel()
	half := make([]byte, 8*mib)
	for _, c := range []struct {
		name  string
		flags []string
		limit int64 // how much memory may grow at the peak; 0 means no limit
	}{
		{"200 MiB", nil, 0},
		{"200 MiB, at most 32 allowed", []string{"--max-inbound=32MiB"}, 128 * mib},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, c.flags...)
			typ := freshName("bystander")
			s, w := b.submitter(t), b.servingWorker(t, typ)
			checkServes(t, s, w, typ)
			base := b.usage().RSS
			peak := base
			var flood []*conn
			cut := 0
			for i := range 25 {
				addr := b.submitAddr
				if i%2 == 1 {
					addr = b.workerAddr
				}
				f := dial(t, addr)
				flood = append(flood, f)
				_ = f.net.SetWriteDeadline(time.Now().Add(scaledTime(3 * time.Second)))
				if _, err := f.net.Write(append(announceFrame(16*mib), half...)); isEnd(err) {
					cut++
				} else if err != nil {
					t.Fatalf("half a frame: %v, want it read or the connection closed", err)
				}
				checkServes(t, s, w, typ)
				peak = max(peak, b.usage().RSS)
			}
			if growth := peak - base; c.limit > 0 && growth > c.limit && !throwaway.Race {
				t.Errorf("resident memory grew by %d MiB, more than %d", growth/mib, c.limit/mib)
			}
			if c.limit > 0 {
				for _, f := range flood {
					if err := f.awaitClose(50 * time.Millisecond); err == nil {
						cut++
					} else if strings.Contains(err.Error(), "got ") { // the connection got an error, and closes after it
						cut++
					}
				}
				if cut == 0 {
					t.Errorf("200 MiB of halves and nobody was cut off")
				}
			}
			for _, f := range flood {
				f.reset()
			}
			checkServes(t, s, w, typ)
			b.awaitMemory(t, "halves gone", base, peak, base+(peak-base)/3+16*mib)
			b.checkAlive(t)
		})
	}
}

// An announced length costs no memory before its bytes arrive.
func TestAnnouncedLengthCostsNoMemory(t *testing.T) {
	t.Parallel()
	b := start(t)
	typ := freshName("bystander")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	checkServes(t, s, w, typ)
	base := b.usage().RSS
	const peers = 200 // 3.2 GiB announced
	for i := range peers {
		addr := b.submitAddr
		if i%2 == 1 {
			addr = b.workerAddr
		}
		dial(t, addr).writeRaw(append(announceFrame(16*mib), '{'))
	}
	for range 20 {
		checkServes(t, s, w, typ)
	}
	growth := b.usage().RSS - base
	t.Logf("%d announced frames: resident memory grew by %d KiB", peers, growth>>10)
	if growth > 64*mib && !throwaway.Race {
		t.Errorf("%d announced frames made resident memory grow by %d MiB", peers, growth/mib)
	}
}

// TestTrickledBigFrameIsParsedOnce: a big frame that arrives in small pieces must not be parsed from the
// start with each piece.
func TestTrickledBigFrameIsParsedOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	typ, otherType := freshName("trickle"), freshName("other")
	s, w := b.submitter(t), b.servingWorker(t, otherType)
	trickler, taker := b.submitter(t), b.servingWorker(t, typ)
	bigFrame := submitOf(16*mib, "trickled", typ)
	begin := time.Now()
	maxDelay := time.Duration(0)
	for i := 0; len(bigFrame) > 0; i++ {
		n := min(len(bigFrame), 8192)
		trickler.writeRaw(bigFrame[:n])
		bigFrame = bigFrame[n:]
		if i%50 == 0 {
			round := time.Now()
			checkServes(t, s, w, otherType)
			maxDelay = max(maxDelay, time.Since(round))
		}
	}
	trickler.wantAck("trickled")
	taker.wantJob("trickled")
	taker.respond(`1`)
	trickler.wantResult("trickled", `1`)
	t.Logf("16 MiB in pieces of 8 KiB: %s, slowest bystander round %s", roundedSince(begin), maxDelay)
	if maxDelay > stallTime {
		t.Errorf("a bystander waited %s", maxDelay)
	}
}
