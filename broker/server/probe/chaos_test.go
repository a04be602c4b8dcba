package probe

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestEveryAckedJobEndsOnce runs everything at once: random options, workers that fail, stall,
// leave and die, and submitters that cancel and vanish. Every job that was acked to a submitter
// that stays ends exactly once, and the ledger balances.
func TestEveryAckedJobEndsOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	base := freshName("chaos")
	typeOf := func(r *rand.Rand) string { return fmt.Sprintf("%s-%d", base, r.IntN(3)) }
	end := time.Now().Add(3 * time.Second)
	stop := make(chan struct{})
	workers := make(chan struct{})
	go func() {
		defer close(workers)
		runParallel(t, 10, func(f *parallelT, i int) { chaosWorker(f, b, rand.New(rand.NewPCG(seed, uint64(i))), typeOf, stop) })
	}()
	func() {
		defer func() { close(stop); <-workers }()
		runParallel(t, 6, func(f *parallelT, i int) {
			r := rand.New(rand.NewPCG(seed, uint64(100+i)))
			for time.Now().Before(end) {
				chaosSubmitter(f, b, r, typeOf)
			}
		})
	}()
	for n := range 3 {
		typ := fmt.Sprintf("%s-%d", base, n)
		waitFor(t, "all ended", func() error {
			l := b.readLedger(t, typ) // readLedger also checks that the counts balance
			if l["delayed"]+l["queued"]+l["running"] > 0 {
				drainRest(t, b, typ)
				return fmt.Errorf("%v", l)
			}
			t.Logf("%s: %v", typ, l)
			return nil
		})
	}
}

// drainRest answers the detached jobs that are left.
func drainRest(t *testing.T, b *daemon, typ string) {
	w := b.servingWorker(t, typ)
	defer w.close()
	for {
		f, err := w.next(30 * ms)
		if err != nil {
			return
		}
		if f.kind() == "job" {
			_ = w.write(packFrame(`{"action":"respond","body":0}`))
		}
	}
}

func chaosWorker(f *parallelT, b *daemon, r *rand.Rand, typeOf func(*rand.Rand) string, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		w := b.worker(f)
		out := map[string]bool{}
		jobsToTake := 1 + r.IntN(30)
		w.send(`{"action":"join","type":%q,"prefetch":%d,"cancel":%v}`, typeOf(r), 1+r.IntN(4), r.IntN(2) == 0)
		for ; jobsToTake > 0; jobsToTake-- {
			fr, err := w.next(20 * ms)
			if err != nil {
				continue
			}
			id := fr.text("id")
			switch fr.kind() {
			case "job":
				if out[id] {
					f.Fatalf("job %q twice on one socket", id)
				}
				out[id] = true
			case "ok", "cancel":
			default:
				f.Fatalf("worker got %s", fr)
			}
			for id := range out {
				switch r.IntN(12) {
				case 0, 1: // later
					continue
				case 2:
					w.send(`{"action":"fail","id":%q,"delay_ms":%d}`, id, r.IntN(20))
				case 3:
					w.send(`{"action":"fail","id":%q,"retry":%v}`, id, r.IntN(2) == 0)
				case 4:
					w.send(`{"action":"progress","id":%q,"body":1}`, id)
					continue
				default:
					w.send(`{"action":"respond","id":%q,"body":%q}`, id, id)
				}
				delete(out, id)
			}
			if r.IntN(40) == 0 {
				w.send(`{"action":"leave"}`)
			}
			if r.IntN(20) == 0 {
				w.send(`{"action":"join","type":%q,"prefetch":%d}`, typeOf(r), 1+r.IntN(4))
			}
		}
		peerEnds[r.IntN(7)].end(w.conn)
		w.close()
	}
}

func chaosSubmitter(f *parallelT, b *daemon, r *rand.Rand, typeOf func(*rand.Rand) string) {
	s := b.submitter(f)
	defer s.close()
	open := map[string]string{} // by id: "sent" or "acked"
	cancels := map[string]bool{}
	jobs := 20 + r.IntN(60)
	vanish := r.IntN(3) == 0
	for n := 0; n < jobs || len(open)+len(cancels) > 0; {
		if n < jobs && len(open) < 20 {
			n++
			id := freshName("chaos")
			fields := fmt.Sprintf(`,"priority":%d`, r.IntN(3))
			for _, option := range []string{`,"delay_ms":%d`, `,"timeout_ms":%d`, `,"backoff_ms":%d`, `,"expires_ms":5%d`} {
				if r.IntN(4) == 0 {
					fields += fmt.Sprintf(option, 5+r.IntN(40))
				}
			}
			if r.IntN(3) == 0 {
				fields += fmt.Sprintf(`,"retries":%d`, r.IntN(4))
			}
			if r.IntN(8) == 0 {
				s.sendSubmit(id, typeOf(r), `1`, fields+`,"detach":true,"ack":false`)
				continue
			}
			if r.IntN(3) == 0 {
				fields += `,"progress":true`
			}
			s.sendSubmit(id, typeOf(r), `1`, fields)
			open[id] = "sent"
			if r.IntN(6) == 0 {
				s.send(`{"action":"cancel","id":%q}`, id)
				cancels[id] = true
			}
			continue
		}
		if vanish && r.IntN(30) == 0 {
			submitterEnds[r.IntN(5)].end(s.conn)
			return
		}
		fr := s.recv()
		id := fr.text("id")
		switch {
		case fr.kind() == "ack" && open[id] == "sent":
			open[id] = "acked"
		case fr.kind() == "ack" && cancels[id] && open[id] == "acked":
			delete(cancels, id)
			delete(open, id)
		case fr.text("error") == "unknown_id" && cancels[id]:
			delete(cancels, id)
			if open[id] != "" {
				f.Fatalf("got %s, and job %q has not ended", fr, id)
			}
		case fr.kind() == "progress" && open[id] == "acked":
		case fr.kind() == "result" && open[id] == "acked" && string(fr.keys["body"]) == quote(id):
			delete(open, id)
		case (fr.text("error") == "job_failed" || fr.text("error") == "expired") && open[id] == "acked":
			delete(open, id)
		default:
			f.Fatalf("got %s; job is %q, cancel asked: %v", fr, open[id], cancels[id])
		}
	}
	s.wantQuiet()
}
