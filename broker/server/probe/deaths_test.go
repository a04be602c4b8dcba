package probe

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// peerEnds are the ways in which a peer can end its connection.
var peerEnds = []struct {
	name string
	end  func(c *conn)
}{
	{"FIN", (*conn).close},
	{"RST", (*conn).reset},
	{"half-close", (*conn).halfClose},
	{"FIN in mid-header", func(c *conn) { c.writeRaw([]byte{0, 0}); c.close() }},
	{"FIN in mid-frame", func(c *conn) { c.writeRaw(packFrame(`{"action":"respond","body":1}`)[:20]); c.close() }},
	{"RST in mid-frame", func(c *conn) { c.writeRaw(packFrame(`{"action":"respond","body":1}`)[:20]); c.reset() }},
	{"half-close in mid-frame", func(c *conn) { c.writeRaw(packFrame(`{"action":"respond","body":1}`)[:20]); c.halfClose() }},
	{"FIN a byte short", func(c *conn) { p := packFrame(`{"action":"respond","body":1}`); c.writeRaw(p[:len(p)-1]); c.close() }},
	{"FIN behind a refused request", func(c *conn) { c.writeRaw(packFrame(`{"action":"frobnicate"}`)); c.close() }},
	{"FIN behind a rejoin", func(c *conn) { c.writeRaw(packFrame(`{"action":"join","type":"elsewhere"}`)); c.close() }},
}

func TestJobOfLostWorkerIsRequeued(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, d := range peerEnds {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			typ := freshName("lost")
			w, s := b.servingWorker(t, typ), b.submitter(t)
			id := s.submitFresh(typ, `{"n":1}`)
			w.wantJob(id)
			d.end(w.conn)
			successor := b.servingWorker(t, typ)
			if got, body := successor.nextJob(); got != id || body != `{"n":1}` {
				t.Fatalf("job %q body %s, want %q", got, body, id)
			}
			successor.respond(`"done"`)
			s.wantResult(id, `"done"`)
			s.wantQuiet()
			checkServes(t, s, successor, typ)
		})
		t.Run(d.name+", successor already idle", func(t *testing.T) {
			t.Parallel()
			typ := freshName("lost")
			w, successor, s := b.servingWorker(t, typ), b.servingWorker(t, typ), b.submitter(t)
			id := s.submitFresh(typ, `1`)
			w.wantJob(id)
			d.end(w.conn)
			successor.wantJob(id)
			successor.respond(`2`)
			s.wantResult(id, `2`)
		})
	}
}

func TestLossOfIdleWorkerLosesNoJob(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, d := range peerEnds {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			typ := freshName("idle")
			w, s := b.servingWorker(t, typ), b.submitter(t)
			d.end(w.conn)
			// If the broker does not know of the loss when the job arrives, it may send the job to
			// the lost worker. Then it must hand the job out again.
			id := s.submitFresh(typ, `1`)
			successor := b.servingWorker(t, typ)
			successor.wantJob(id)
			successor.respond(`2`)
			s.wantResult(id, `2`)
		})
	}
	t.Run("never joined", func(t *testing.T) {
		for _, d := range peerEnds {
			d.end(b.worker(t).conn)
		}
		b.checkAlive(t)
	})
}

// TestRequeuedJobGoesFirst: a lost worker's job is handed out before other jobs of its priority.
func TestRequeuedJobGoesFirst(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("ahead of equals, behind its betters", func(t *testing.T) {
		typ := freshName("place")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		lostID := s.submitFresh(typ, `0`)
		w.wantJob(lostID)
		equalID1, equalID2 := s.submitFresh(typ, `0`), s.submitFresh(typ, `0`)
		betterID := s.submitFreshWith(typ, `0`, `,"priority":1`)
		worseID := s.submitFreshWith(typ, `0`, `,"priority":-1`)
		w.close()
		waitRequeued(t, b, typ, s, lostID)
		got := drainOrder(t, b, typ, 5)
		want := []string{betterID, lostID, equalID1, equalID2, worseID}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("order %v, want %v", got, want)
		}
	})
	t.Run("two lost ones keep their ages", func(t *testing.T) {
		typ := freshName("place")
		w1, w2, s := b.servingWorker(t, typ), b.servingWorker(t, typ), b.submitter(t)
		first, second := s.submitFresh(typ, `0`), s.submitFresh(typ, `0`)
		w1.wantJob(first)
		w2.wantJob(second)
		third := s.submitFresh(typ, `0`)
		w2.close()
		waitRequeued(t, b, typ, s, second)
		w1.close()
		waitRequeued(t, b, typ, s, first)
		got := drainOrder(t, b, typ, 3)
		if want := []string{first, second, third}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("order %v, want %v", got, want)
		}
	})
}

// waitRequeued waits until the broker knows that a job's worker is lost and has queued
// the job again.
func waitRequeued(t *testing.T, d *daemon, typ string, s submitter, id string) {
	t.Helper()
	waitFor(t, "job is queued again", func() error {
		status, body, err := d.get("/v1/jobs/" + id)
		if err != nil {
			return err
		}
		if status == 404 {
			// HTTP does not show the job. A later check fails if this time is too short.
			time.Sleep(300 * time.Millisecond)
			return nil
		}
		if !strings.Contains(body, `"queued"`) {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
}

// loseWorkers lets n workers take the job, one after the other, and closes each of them.
func loseWorkers(t *testing.T, d *daemon, typ, id string, n int) {
	t.Helper()
	for i := range n {
		w := d.servingWorker(t, typ)
		w.wantJob(id)
		peerEnds[i%3].end(w.conn)
	}
}

func TestLostWorkersUseUpAttempts(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("three more times, then job_failed", func(t *testing.T) {
		typ := freshName("attempt")
		s := b.submitter(t)
		id := s.submitFresh(typ, `0`)
		loseWorkers(t, b, typ, id, 4)
		s.wantErrorFor("job_failed", id)
		w := b.servingWorker(t, typ)
		w.wantQuiet()
		s.submit(id, typ, `"again"`)
		w.wantJob(id)
		w.respond(`1`)
		s.wantResult(id, `1`)
		s.wantQuiet()
	})
	t.Run("the fourth run still counts", func(t *testing.T) {
		typ := freshName("attempt")
		s := b.submitter(t)
		id := s.submitFresh(typ, `0`)
		loseWorkers(t, b, typ, id, 3)
		w := b.servingWorker(t, typ)
		w.wantJob(id)
		w.respond(`"at last"`)
		s.wantResult(id, `"at last"`)
		s.wantQuiet()
	})
	t.Run("a new job with the old id starts from nought", func(t *testing.T) {
		typ := freshName("attempt")
		s := b.submitter(t)
		id := freshName("job")
		for range 2 {
			s.submit(id, typ, `0`)
			loseWorkers(t, b, typ, id, 3)
			w := b.servingWorker(t, typ)
			w.wantJob(id)
			w.respond(`1`)
			s.wantResult(id, `1`)
			w.retire()
		}
	})
	for _, retries := range []int{0, 1, 5} {
		t.Run(fmt.Sprintf("--retries=%d", retries), func(t *testing.T) {
			t.Parallel()
			b := start(t, fmt.Sprintf("--retries=%d", retries))
			typ := freshName("attempt")
			s := b.submitter(t)
			id := s.submitFresh(typ, `0`)
			loseWorkers(t, b, typ, id, retries+1)
			s.wantErrorFor("job_failed", id)
			b.servingWorker(t, typ).wantQuiet()
		})
	}
}

// TestAnswerOfLostWorkerCounts: an answer that was sent counts, whatever happens to the worker
// afterwards.
func TestAnswerOfLostWorkerCounts(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("last words")
	s := b.submitter(t)
	for i := range 30 {
		id := s.submitFresh(typ, `0`)
		w := b.servingWorker(t, typ)
		w.wantJob(id)
		w.writeRaw(packFrame(fmt.Sprintf(`{"action":"respond","body":%d}`, i)))
		if i%2 == 0 {
			w.close()
		} else {
			w.halfClose()
		}
		s.wantResult(id, fmt.Sprint(i))
	}
	s.wantQuiet()
	b.servingWorker(t, typ).wantQuiet()
}

// TestBadFrameEndsJob: if the broker closes a worker because of a bad frame, the worker's job
// ends at once.
func TestBadFrameEndsJob(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("size_error", func(t *testing.T) {
		typ := freshName("bad")
		w, successor, s := b.servingWorker(t, typ), b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		w.writeRaw(announceFrame(0x7fffffff))
		w.wantError("size_error")
		w.wantEOF()
		s.wantErrorFor("job_failed", id)
		successor.wantQuiet()
		s.submit(id, typ, `1`) // the id is free
		successor.wantJob(id)
	})
	t.Run("invalid_json", func(t *testing.T) {
		typ := freshName("bad")
		w, successor, s := b.servingWorker(t, typ), b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		w.writeRaw(packFrame(`{"action":"respond","body":[1,}`))
		w.wantError("invalid_json")
		if staysOrCloses(t, w.conn) {
			w.respond(`1`)
			s.wantResult(id, `1`)
			return
		}
		s.wantErrorFor("job_failed", id)
		successor.wantQuiet()
		s.submit(id, typ, `1`)
		successor.wantJob(id)
	})
	t.Run("invalid UTF-8", func(t *testing.T) {
		typ := freshName("bad")
		w, successor, s := b.servingWorker(t, typ), b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		w.writeRaw(packFrame("{\"action\":\"respond\",\"body\":\"\xff\"}"))
		w.wantError("invalid_json")
		if staysOrCloses(t, w.conn) {
			w.respond(`1`)
			s.wantResult(id, `1`)
			return
		}
		s.wantErrorFor("job_failed", id) // the submitter has not been closed
		successor.wantQuiet()
		checkServes(t, s, successor, typ)
	})
	t.Run("an idle one gets no jobs any more", func(t *testing.T) {
		for _, payload := range []string{"{", "\xff"} {
			typ := freshName("bad")
			w, s := b.servingWorker(t, typ), b.submitter(t)
			w.writeRaw(packFrame(payload))
			w.wantError("invalid_json")
			if staysOrCloses(t, w.conn) {
				checkServes(t, s, w, typ)
				continue
			}
			id := s.submitFresh(typ, `0`)
			b.servingWorker(t, typ).wantJob(id)
		}
	})
	t.Run("its submitter may be gone", func(t *testing.T) {
		typ := freshName("bad")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		s.close()
		w.writeRaw(announceFrame(0xffffffff))
		w.wantError("size_error")
		w.wantEOF()
		b.submitWhenFree(t, id, freshName("bad"))
	})
}

// Workers join, work and die at random moments, and every job ends exactly once.
func TestRandomDeathsLoseNoJob(t *testing.T) {
	t.Parallel()
	b := start(t, "--retries=1000")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	typ := freshName("chaos")
	const jobs, workers = 400, 12
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		runParallel(t, workers, func(f *parallelT, i int) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				w := b.worker(f)
				w.send(`{"action":"join","type":%q}`, typ)
				for jobsToTake := r.IntN(6); jobsToTake >= 0; jobsToTake-- {
					fr, err := w.next(200 * time.Millisecond)
					if err != nil {
						break
					}
					if fr.kind() == "job" && jobsToTake > 0 {
						w.send(`{"action":"respond","body":%s}`, fr.keys["id"])
					}
				}
				peerEnds[r.IntN(7)].end(w.conn)
				w.close()
			}
		})
	}()
	defer func() { close(stop); <-done }()
	runParallel(t, 4, func(f *parallelT, i int) {
		s := b.submitter(f)
		want := map[string]bool{}
		for n := range jobs / 4 {
			id := fmt.Sprintf("%s-%d-%d", typ, i, n)
			s.sendSubmit(id, typ, `0`, "")
			want[id] = true
		}
		acked := map[string]bool{}
		for len(want) > 0 {
			fr := s.recv()
			id := fr.text("id")
			switch fr.kind() {
			case "ack":
				acked[id] = true
			case "result":
				if !want[id] || !acked[id] || string(fr.keys["body"]) != quote(id) {
					f.Fatalf("got %s: unknown, unacked, twice or not its answer", fr)
				}
				delete(want, id)
			default:
				f.Fatalf("got %s", fr)
			}
		}
		s.wantQuiet()
	})
}
