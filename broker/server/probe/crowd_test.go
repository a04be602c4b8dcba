package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestAnswersReachTheirSubmitters: with many submitters and workers at once, every answer reaches
// its submitter.
func TestAnswersReachTheirSubmitters(t *testing.T) {
	t.Parallel()
	b := shared(t)
	const submitters, workers, types, jobs = 24, 24, 6, 150
	base := freshName("crowd")
	typeOf := func(n int) string { return fmt.Sprintf("%s-%d", base, n%types) }
	var ws []worker
	for i := range workers {
		ws = append(ws, b.servingWorker(t, typeOf(i)))
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		runParallel(t, workers, func(f *parallelT, i int) {
			w := worker{&conn{f, ws[i].net, ws[i].in}}
			for {
				fr, err := w.next(patience)
				if err != nil {
					return // closed below
				}
				switch {
				case fr.kind() == "ok":
				case fr.kind() == "job" && fr.text("type") == typeOf(i):
					_ = w.write(packFrame(fmt.Sprintf(`{"action":"respond","body":[%s,%s]}`, fr.keys["id"], fr.keys["body"])))
				default:
					f.Fatalf("worker of %s got %s", typeOf(i), fr)
				}
			}
		})
	}()
	defer func() {
		for _, w := range ws {
			w.close()
		}
		<-served
	}()
	runParallel(t, submitters, func(f *parallelT, i int) {
		s := b.submitter(f)
		open := map[string]string{} // by id: the answer that the job must get
		acked := map[string]bool{}
		submits, done := 0, 0
		for done < jobs {
			for ; submits < jobs && len(open) < 16; submits++ {
				id := fmt.Sprintf("%s-%d-%d", base, i, submits)
				body := fmt.Sprintf(`{"owner":%d,"n":%d}`, i, submits)
				open[id] = fmt.Sprintf(`[%s,%s]`, quote(id), body)
				s.sendSubmit(id, typeOf(submits), body, "")
			}
			fr := s.recv()
			id := fr.text("id")
			switch fr.kind() {
			case "ack":
				acked[id] = true
			case "result":
				if want, mine := open[id]; !mine || !acked[id] || string(fr.keys["body"]) != want {
					f.Fatalf("submitter %d got %s, want %s", i, fr, want)
				}
				delete(open, id)
				done++
			default:
				f.Fatalf("submitter %d got %s", i, fr)
			}
		}
		s.wantQuiet()
	})
}

// TestOneSubmitterWinsID: if many submitters use the same id at once, exactly one gets it.
func TestOneSubmitterWinsID(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("race")
	const rivals, rounds = 8, 60
	wins := make([][]bool, rivals)
	runParallel(t, rivals, func(f *parallelT, i int) {
		s := b.submitter(f)
		wins[i] = make([]bool, rounds)
		for n := range rounds {
			id := fmt.Sprintf("%s-%d", typ, n)
			s.sendSubmit(id, typ, fmt.Sprint(i), "")
			switch fr := s.recv(); {
			case fr.kind() == "ack":
				wins[i][n] = true
			case fr.text("error") != "id_exists":
				f.Fatalf("got %s", fr)
			}
		}
		// a winner's job must stay queued until all have tried, so keep the connection open
		t.Cleanup(s.close)
	})
	for n := range rounds {
		winners := 0
		for i := range rivals {
			if wins[i][n] {
				winners++
			}
		}
		if winners != 1 {
			t.Errorf("id %d was accepted %d times", n, winners)
		}
	}
}

func TestThousandConnectionsAreServed(t *testing.T) {
	t.Parallel()
	b := start(t)
	const peers, dialers = 1000, 8
	typ := freshName("thousand")
	workers := make([]worker, peers)
	begin := time.Now()
	runParallel(t, dialers, func(f *parallelT, d int) {
		for i := d; i < peers; i += dialers {
			workers[i] = b.worker(t)
			workers[i].send(`{"action":"join","type":%q}`, typ)
		}
	})
	for i := range workers {
		workers[i].wantOK()
	}
	t.Logf("%d connects and joins in %s", peers, roundedSince(begin))
	s := b.submitter(t)
	for range peers {
		s.sendSubmit(freshName("job"), typ, `0`, "")
	}
	acks, results := 0, 0
	for i := range workers {
		_, _ = workers[i].nextJob()
		workers[i].send(`{"action":"respond","body":0}`)
	}
	for acks < peers || results < peers {
		switch f := s.recv(); f.kind() {
		case "ack":
			acks++
		case "result":
			results++
		default:
			t.Fatalf("got %s", f)
		}
	}
	for i := range workers {
		workers[i].close()
	}
	b.checkAlive(t)
}

// Many short connections leak no descriptors.
func TestConnectionsLeakNoDescriptors(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.checkAlive(t)
	before := b.usage().Descriptors
	runParallel(t, 4, func(f *parallelT, i int) {
		for n := range 150 {
			s, w := b.submitter(f), b.worker(f)
			w.join(freshName("fd"))
			s.submitFresh(freshName("fd"), `0`)
			peerEnds[n%5].end(s.conn)
			peerEnds[(n+i)%5].end(w.conn)
			s.close()
			w.close()
		}
	})
	waitFor(t, "descriptors are given back", func() error {
		if open := b.usage().Descriptors; open > before+5 {
			return fmt.Errorf("%d open, %d before", open, before)
		}
		return nil
	})
	b.checkAlive(t)
}

// TestFileLimitIsSurvived: if more connections arrive than the daemon may have open files, the
// daemon survives and keeps its present connections. It serves new connections once the flood is
// over.
func TestFileLimitIsSurvived(t *testing.T) {
	t.Parallel()
	b := startSpec(t, daemonSpec{openFileLimit: 96})
	typ := freshName("resident")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	checkServes(t, s, w, typ)
	for range 2 {
		var flood []*conn
		for i := range 400 {
			addr := b.submitAddr
			if i%2 == 1 {
				addr = b.workerAddr
			}
			flood = append(flood, dial(t, addr)) // those not accepted wait in the kernel's backlog
			if i%40 == 0 {
				checkServes(t, s, w, typ)
			}
		}
		checkServes(t, s, w, typ)
		for _, c := range flood {
			c.reset()
		}
		waitFor(t, "new peers are served after the flood", func() error {
			c, err := dialTry(b.submitAddr)
			if err != nil {
				return err
			}
			defer c.close()
			if err := c.write(packFrame(`{"action":"anybody?"}`)); err != nil {
				return err
			}
			f, err := c.next(time.Second)
			if err == nil && f.text("error") != "unknown_action" {
				err = fmt.Errorf("got %s", f)
			}
			return err
		})
		checkServes(t, s, w, typ)
	}
	waitFor(t, "both ports and HTTP serve", func() error {
		status, _, err := b.get("/healthz")
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
	b.checkAlive(t)
	if n := len(strings.Split(b.Log.String(), "\n")); n > 500 {
		t.Errorf("the flood wrote %d lines of log: not rate-limited", n)
	}
}
