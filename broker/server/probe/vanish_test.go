package probe

import (
	"fmt"
	"testing"
	"time"
)

// submitterEnds are the ways in which a submitter can end its connection.
var submitterEnds = []struct {
	name string
	end  func(c *conn)
}{
	{"FIN", (*conn).close},
	{"RST", (*conn).reset},
	{"half-close", (*conn).halfClose},
	{"FIN in mid-frame", func(c *conn) { c.writeRaw(packFrame(`{"action":"submit","id":"x","body":1}`)[:20]); c.close() }},
	{"RST in mid-header", func(c *conn) { c.writeRaw([]byte{0}); c.reset() }},
	{"size_error", func(c *conn) { c.writeRaw(announceFrame(0x7fffffff)) }},
}

func TestJobsOfLostSubmitterEnd(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, d := range submitterEnds {
		t.Run("queued jobs cleared: "+d.name, func(t *testing.T) {
			t.Parallel()
			typ := freshName("gone")
			s, other := b.submitter(t), b.submitter(t)
			var ids []string
			for range 20 {
				ids = append(ids, s.submitFresh(typ, `0`))
			}
			d.end(s.conn)
			for _, id := range ids {
				b.submitWhenFree(t, id, freshName("new")).close()
			}
			keptIDs := other.submitFresh(typ, `"kept"`)
			w := b.servingWorker(t, typ)
			w.wantJob(keptIDs)
			w.respond(`1`)
			other.wantResult(keptIDs, `1`)
			w.wantQuiet()
		})
		t.Run("running job finishes: "+d.name, func(t *testing.T) {
			t.Parallel()
			typ := freshName("gone")
			s, w := b.submitter(t), b.servingWorker(t, typ)
			runningID := s.submitFresh(typ, `0`)
			w.wantJob(runningID)
			queuedID := s.submitFresh(typ, `0`)
			d.end(s.conn)
			b.submitWhenFree(t, queuedID, freshName("new")) // now the broker knows of the loss
			other := b.submitter(t)
			other.sendSubmit(runningID, typ, `0`, "")
			other.wantErrorFor("id_exists", runningID) // the worker still holds it
			w.wantQuiet()
			w.respond(`"for nobody"`)
			other.submit(runningID, typ, `"mine"`) // the id is free at once
			if id, body := w.nextJob(); id != runningID || body != `"mine"` {
				t.Fatalf("job %q %s", id, body)
			}
			w.respond(`"for other"`)
			other.wantResult(runningID, `"for other"`)
			other.wantQuiet()
		})
		t.Run("then its worker is lost: "+d.name, func(t *testing.T) {
			t.Parallel()
			typ := freshName("gone")
			s, w, successor := b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
			runningID := s.submitFresh(typ, `0`)
			w.wantJob(runningID)
			queuedID := s.submitFresh(freshName("elsewhere"), `0`)
			d.end(s.conn)
			b.submitWhenFree(t, queuedID, freshName("new"))
			w.close()
			// the job is dropped and not retried: its id becomes free, and the other worker
			// gets no frame
			b.submitWhenFree(t, runningID, freshName("new"))
			successor.wantQuiet()
		})
	}
	t.Run("the worker after an orphan is as good as new", func(t *testing.T) {
		typ := freshName("gone")
		w := b.servingWorker(t, typ)
		for range 20 {
			s := b.submitter(t)
			w.wantJob(s.submitFresh(typ, `0`))
			s.close()
			w.respond(`1`)
		}
		checkServes(t, b.submitter(t), w, typ)
		w.join(freshName("other"))
		w.wantQuiet()
	})
	t.Run("an orphan's worker may rejoin", func(t *testing.T) {
		one, two := freshName("gone"), freshName("gone")
		w, s, other := b.servingWorker(t, one), b.submitter(t), b.submitter(t)
		id := s.submitFresh(one, `0`)
		w.wantJob(id)
		queuedID := s.submitFresh(one, `0`)
		s.close()
		b.submitWhenFree(t, queuedID, freshName("new"))
		next := other.submitFresh(two, `0`)
		w.join(two)
		w.wantQuiet()
		w.respond(`1`)
		w.wantJob(next)
	})
	t.Run("others' jobs stay", func(t *testing.T) {
		typ := freshName("gone")
		s1, s2 := b.submitter(t), b.submitter(t)
		var lostIDs, keptIDs []string
		for range 50 {
			lostIDs = append(lostIDs, s1.submitFresh(typ, `0`))
			keptIDs = append(keptIDs, s2.submitFresh(typ, `0`))
		}
		s1.close()
		b.submitWhenFree(t, lostIDs[49], freshName("new"))
		if got := drainOrder(t, b, typ, 50); fmt.Sprint(got) != fmt.Sprint(keptIDs) {
			t.Fatalf("order %v, want %v", got, keptIDs)
		}
	})
	t.Run("before its first frame", func(t *testing.T) {
		for _, d := range submitterEnds {
			d.end(b.submitter(t).conn)
		}
		b.checkAlive(t)
	})
	t.Run("a requeued job of one that is gone is cleared", func(t *testing.T) {
		typ := freshName("gone")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		w.close()
		waitRequeued(t, b, typ, s, id)
		s.close()
		b.submitWhenFree(t, id, freshName("new"))
		b.servingWorker(t, typ).wantQuiet()
	})
}

// When a submitter with many queued jobs disconnects, the ids of the jobs are soon free, and no
// other peer is delayed.
func TestLargeSubmitterLossFreesIDs(t *testing.T) {
	t.Parallel()
	b := start(t)
	jobs := scaledCount(100_000)
	typ := freshName("heap")
	s := b.submitter(t)
	acks := make(chan error, 1)
	go func() {
		for range jobs {
			if f, err := s.next(patience); err != nil || f.kind() != "ack" {
				acks <- fmt.Errorf("got %s, %v, want an ack", f, err)
				return
			}
		}
		acks <- nil
	}()
	var batch []byte
	for i := range jobs {
		batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":"heap-%d","type":%q,"body":0}`, i, typ))...)
		if len(batch) > 1<<20 {
			s.writeRaw(batch)
			batch = batch[:0]
		}
	}
	s.writeRaw(batch)
	if err := <-acks; err != nil {
		t.Fatal(err)
	}
	otherType := freshName("bystander")
	s2, w2 := b.submitter(t), b.servingWorker(t, otherType)
	s.close()
	maxDelay := time.Duration(0)
	for range 200 {
		begin := time.Now()
		checkServes(t, s2, w2, otherType)
		maxDelay = max(maxDelay, time.Since(begin))
	}
	t.Logf("slowest bystander round while %d jobs were cleared: %s", jobs, maxDelay)
	if maxDelay > stallTime {
		t.Errorf("a bystander waited %s", maxDelay)
	}
	for _, i := range []int{0, 1, jobs / 2, jobs - 1} {
		b.submitWhenFree(t, fmt.Sprintf("heap-%d", i), freshName("new"))
	}
	b.servingWorker(t, typ).wantQuiet()
}
