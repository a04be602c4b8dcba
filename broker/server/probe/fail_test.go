package probe

import (
	"strings"
	"testing"
)

func TestFailRetriesOrEndsJob(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("its reason is passed on", func(t *testing.T) {
		typ := freshName("fail")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		for _, reason := range []string{"disk full", "é \"quoted\" \\ \n 😀", strings.Repeat("long ", 100)} {
			id := s.submitFreshWith(typ, `1`, `,"retries":0`)
			w.wantJob(id)
			w.fail(`,"reason":` + quote(reason))
			if f := s.wantErrorFor("job_failed", id); !strings.Contains(f.text("reason"), reason) {
				t.Errorf("reason %q, want %q in it", f.text("reason"), reason)
			}
		}
	})
	t.Run("the default reason", func(t *testing.T) {
		typ := freshName("fail")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"retries":0`)
		w.wantJob(id)
		w.fail(``)
		if f := s.wantErrorFor("job_failed", id); !strings.Contains(f.text("reason"), "failed by the worker") {
			t.Errorf("reason %q", f.text("reason"))
		}
	})
	t.Run("retry false ends the job at once", func(t *testing.T) {
		typ := freshName("fail")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"retries":1000`)
		w.wantJob(id)
		w.fail(`,"retry":false,"reason":"hopeless","delay_ms":5`)
		if f := s.wantErrorFor("job_failed", id); !strings.Contains(f.text("reason"), "hopeless") {
			t.Errorf("reason %q", f.text("reason"))
		}
		w.wantQuiet()
		s.submit(id, typ, `1`)
	})
	t.Run("ok first, then the next job", func(t *testing.T) {
		typ := freshName("fail")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		next := s.submitFreshWith(typ, `1`, `,"priority":1`)
		w.fail(``)
		w.wantJob(next)
		w.respond(`1`)
		w.wantJob(id)
	})
	t.Run("the retry goes to the longest idle", func(t *testing.T) {
		typ := freshName("fail")
		s, w, other := b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.fail(``)
		other.wantJob(id)
		w.wantQuiet()
	})
	t.Run("without a job", func(t *testing.T) {
		w := b.worker(t)
		w.send(`{"action":"fail"}`)
		checkReason(t, w.wantError("invalid_state"), "not_processing")
		w.join(freshName("fail"))
		w.send(`{"action":"fail","id":"x","reason":"y"}`)
		checkReason(t, w.wantError("invalid_state"), "not_processing")
	})
	t.Run("its id is ignored on a socket without names", func(t *testing.T) {
		typ := freshName("fail")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"retries":0`)
		w.wantJob(id)
		w.fail(`,"id":["another"]`)
		s.wantErrorFor("job_failed", id)
	})
	t.Run("after its submitter went", func(t *testing.T) {
		typ := freshName("fail")
		s, w, other := b.submitter(t), b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		mark := s.submitFresh(freshName("elsewhere"), `1`)
		s.close()
		b.waitState(t, mark, "")
		w.fail(``)
		other.submit(id, typ, `2`)
		if _, body := w.nextJob(); body != `2` {
			t.Errorf("body %s: the unwanted job came back", body)
		}
	})
}

func TestWorkerThatLeavesGetsNoJob(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("idle", func(t *testing.T) {
		typ := freshName("leave")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		w.leave()
		id := s.submitFresh(typ, `1`)
		w.wantQuiet()
		w.join(typ) // undoes the leave
		w.wantJob(id)
	})
	t.Run("at work", func(t *testing.T) {
		typ := freshName("leave")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		next := s.submitFresh(typ, `1`)
		w.leave() // ok at once
		w.respond(`2`)
		s.wantResult(id, `2`)
		w.wantQuiet()
		w.close() // loses nothing
		successor := b.servingWorker(t, typ)
		successor.wantJob(next)
		successor.respond(`3`)
		s.wantResult(next, `3`)
	})
	t.Run("at work, then failed", func(t *testing.T) {
		typ := freshName("leave")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.leave()
		w.fail(``)
		w.wantQuiet() // the worker does not even get the job that it has failed
		b.servingWorker(t, typ).wantJob(id)
	})
	t.Run("at work, then lost", func(t *testing.T) {
		typ := freshName("leave")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.leave()
		w.close()
		b.servingWorker(t, typ).wantJob(id)
	})
	t.Run("twice, and unjoined", func(t *testing.T) {
		w := b.worker(t)
		w.leave()
		w.leave()
		typ := freshName("leave")
		w.join(typ)
		checkServes(t, b.submitter(t), w, typ)
		w.leave()
		w.leave()
		w.wantQuiet()
	})
	t.Run("undone at work", func(t *testing.T) {
		typ, otherType := freshName("leave"), freshName("leave")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		next := s.submitFresh(otherType, `1`)
		w.leave()
		w.join(otherType)
		w.wantQuiet()
		w.respond(`1`)
		w.wantJob(next)
	})
	t.Run("with several jobs out", func(t *testing.T) {
		typ := freshName("leave")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "3")
		var ids []string
		for range 3 {
			ids = append(ids, s.submitFresh(typ, `1`))
			w.wantJob(ids[len(ids)-1])
		}
		s.submitFresh(typ, `1`)
		w.leave()
		for _, id := range ids {
			w.respondTo(id, `1`)
			s.wantResult(id, `1`)
		}
		w.wantQuiet()
	})
}

// TestLeaveWastesNoRun: a worker leaves while jobs are handed out. The worker answers the jobs sent
// before the ok of the leave, and gets no job after that ok. No run is wasted.
func TestLeaveWastesNoRun(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("race")
	const jobs = 400
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		runParallel(t, 3, func(f *parallelT, _ int) {
			for {
				select {
				case <-stop:
					return
				default:
				}
				w := b.worker(f)
				w.join(typ)
				left := false
				for n := 0; !left; n++ {
					if n == 3 {
						w.send(`{"action":"leave"}`)
					}
					fr, err := w.next(20 * ms)
					if err != nil {
						if n < 3 {
							n = 2
						}
						continue
					}
					switch {
					case fr.kind() == "job":
						w.send(`{"action":"respond","body":%s}`, fr.keys["id"])
						// the ok of the answer; the ok of the leave may come before it
						w.wantOK()
						if n >= 3 {
							w.wantOK()
							left = true
						}
					case n >= 3 && fr.kind() == "ok":
						left = true
					default:
						f.Fatalf("got %s", fr)
					}
				}
				w.wantQuiet()
				w.close()
			}
		})
	}()
	defer func() { close(stop); <-done }()
	s := b.submitter(t)
	open := map[string]bool{}
	for range jobs {
		id := freshName("job")
		s.sendSubmit(id, typ, `1`, `,"ack":false,"retries":0`)
		open[id] = true
	}
	for len(open) > 0 {
		f := s.want("result")
		if !open[f.text("id")] {
			t.Fatalf("got %s: unknown or twice", f)
		}
		delete(open, f.text("id"))
	}
}
