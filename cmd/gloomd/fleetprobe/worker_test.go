package fleetprobe

import (
	"fmt"
	"testing"
	"time"

	"gloom/broker/admin/api"
)

func TestPrefetchBoundsLentJobs(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"prefetch":5,"type":`+quote(typ))
		for i := range 12 {
			s.wantOK(`{"action":"submit","id":"f%d","type":%s,"body":%d}`, i, quote(typ), i)
		}
		var out []string
		for range 5 {
			out = append(out, w.nextJob().ID)
		}
		w.wantQuiet(300 * time.Millisecond)
		w.wantRefusal("unknown_id", `{"action":"respond","id":"f11","body":1}`)
		w.wantRefusal("missing_field", `{"action":"respond","body":1}`)
		for n := 12; n > 0; n-- {
			id := out[len(out)-1] // answers the last one first
			out = out[:len(out)-1]
			w.wantOK(`{"action":"respond","id":"%s","body":1}`, id)
			s.wantEnd(id, "")
			if n > 5 {
				out = append(out, w.nextJob().ID)
			}
		}
		awaitCounts(t, a, typ, api.Ledger{Submitted: 12, Answered: 12})
	})
}

func TestLentJobIsReleased(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"type":`+quote(typ))
		s.wantOK(`{"action":"submit","id":"rel","type":%s,"body":1,"retries":0}`, quote(typ))
		w.nextJob()
		start := time.Now()
		w.wantOK(`{"action":"release","delay_ms":400}`)
		w.nextJob()
		if d := time.Since(start); d < 400*time.Millisecond {
			t.Errorf("released for 400 ms, back after %s", d)
		}
		w.wantOK(`{"action":"leave"}`)
		w.wantOK(`{"action":"release"}`)
		if v := awaitState(t, a, "rel", "queued"); v.Attempts != 0 || v.Releases != 2 {
			t.Errorf("after two releases: attempts %d, releases %d", v.Attempts, v.Releases)
		}
		w2 := newWorker(t, c, `"type":`+quote(typ))
		w2.nextJob()
		w2.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("rel", "")
		w.wantOK(`{"action":"ping"}`)
	})
}

func TestPatternsMatchInFleet(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		w := newWorker(t, b, fmt.Sprintf(`"types":[%s],"except":[%s],"prefetch":10`, quote(typ+".*"), quote(typ+".no*")))
		s.wantOK(`{"action":"submit","id":"no","type":%s,"body":1,"priority":9}`, quote(typ+".not"))
		for i := range 5 { // types that first appear after the join
			id := fmt.Sprint("w", i)
			s.wantOK(`{"action":"submit","id":"%s","type":%s,"body":1}`, id, quote(fmt.Sprint(typ, ".", i)))
			if f := w.nextJob(); f.ID != id || f.Type != fmt.Sprint(typ, ".", i) {
				t.Errorf("%s, want %s", f, id)
			}
			w.wantOK(`{"action":"respond","id":"%s","body":1}`, id)
			s.wantEnd(id, "")
		}
		w.wantQuiet(200 * time.Millisecond)
		w2 := newWorker(t, c, fmt.Sprintf(`"types":[%s,"*not"]`, quote(typ+".none")))
		if f := w2.nextJob(); f.ID != "no" {
			t.Errorf("%s, want no", f)
		}
		w2.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("no", "")
	})
}

func TestLentJobOfLostWorkerIsRequeued(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"lost","type":%s,"body":1}`, quote(typ))
		s.wantOK(`{"action":"submit","id":"after","type":%s,"body":1}`, quote(typ))
		for i := range 4 {
			at := []*broker{b, c}[i%2]
			w := newWorker(t, at, `"type":`+quote(typ))
			if f := w.nextJob(); f.ID != "lost" { // the requeued job comes before others of its priority
				t.Fatalf("run %d is of %s", i, f.ID)
			}
			if v := awaitState(t, a, "lost", "running"); v.Attempts != i+1 || v.Worker == nil || v.Worker.Broker != at.name {
				t.Errorf("run %d at %s: %+v, worker %+v", i, at.name, v, v.Worker)
			}
			w.close()
			if i < 3 {
				awaitState(t, a, "lost", "queued")
			}
		}
		s.wantEnd("lost", "job_failed")
		w := newWorker(t, b, `"type":`+quote(typ))
		w.nextJob()
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("after", "")
	})
}

// If a worker is closed because of a bad frame, its job ends: the next worker would send the same
// frame.
func TestGarbageEndsLentJob(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		for i, garbage := range []func(*peer){
			func(p *peer) { p.send(`{"action":"respond","body":`) },
			func(p *peer) { p.conn.Write([]byte{0x7f, 0xff, 0xff, 0xff}) },
		} {
			w := newWorker(t, b, `"type":`+quote(typ))
			s.wantOK(`{"action":"submit","id":"bad%d","type":%s,"body":1}`, i, quote(typ))
			w.nextJob()
			garbage(w)
			s.wantEnd(fmt.Sprint("bad", i), "job_failed")
			w.awaitClose()
		}
		awaitCounts(t, a, typ, api.Ledger{Submitted: 2, Failed: 2})
	})
}

func TestLocalWorkersGoFirst(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		remote, local := newWorker(t, b, `"prefetch":100,"type":`+quote(typ)), newWorker(t, a, `"type":`+quote(typ))
		awaitWants(t, a, "b", typ)
		s := newSubmitter(t, a)
		for i := range 200 {
			s.wantOK(`{"action":"submit","id":"x","type":%s,"body":%d}`, quote(typ), i)
			local.nextJob()
			local.wantOK(`{"action":"respond","body":1}`)
			s.wantEnd("x", "")
		}
		if n := len(remote.in); n > 0 {
			t.Errorf("%d jobs were lent while the worker at home was idle", n)
		}
		// While this job runs, the next job is lent at once.
		s.wantOK(`{"action":"submit","id":"x","type":%s,"body":1}`, quote(typ))
		local.nextJob()
		for i := range 3 {
			s.wantOK(`{"action":"submit","id":"y%d","type":%s,"body":1}`, i, quote(typ))
		}
		for n := 0; n < 3; {
			if f := remote.next(); f.Action == "job" {
				n++
				remote.send(`{"action":"respond","id":"%s","body":1}`, f.ID)
			}
		}
		for range 3 {
			if f := s.next(); !f.isResult() {
				t.Errorf("%s, want a result", f)
			}
		}
	})
}

func TestBorrowingWorkerJoinsAgain(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"type":`+quote(typ+"1"))
		s.wantOK(`{"action":"submit","id":"one","type":%s,"body":1}`, quote(typ+"1"))
		w.nextJob()
		w.wantOK(`{"action":"join","type":%s}`, quote(typ+"2"))
		s.wantOK(`{"action":"submit","id":"more","type":%s,"body":1}`, quote(typ+"1"))
		s.wantOK(`{"action":"submit","id":"two","type":%s,"body":2}`, quote(typ+"2"))
		w.wantQuiet(100 * time.Millisecond)
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("one", "")
		if f := w.nextJob(); f.ID != "two" {
			t.Errorf("%s, want two", f)
		}
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("two", "")
		awaitState(t, a, "more", "queued")
	})
}

func TestWorkerLeavesWithLentJobs(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"prefetch":3,"type":`+quote(typ))
		for i := range 6 {
			s.wantOK(`{"action":"submit","id":"v%d","type":%s,"body":1}`, i, quote(typ))
		}
		ids := []string{w.nextJob().ID, w.nextJob().ID, w.nextJob().ID}
		w.wantOK(`{"action":"leave"}`)
		for _, id := range ids {
			w.wantOK(`{"action":"respond","id":"%s","body":1}`, id)
			s.wantEnd(id, "")
		}
		w.wantQuiet(200 * time.Millisecond)
		w.close()
		for i := 3; i < 6; i++ {
			if v := awaitState(t, a, fmt.Sprint("v", i), "queued"); v.Attempts != 0 {
				t.Errorf("%+v never ran", v)
			}
		}
		w = newWorker(t, c, `"prefetch":3,"type":`+quote(typ))
		for range 3 {
			id := w.nextJob().ID
			w.send(`{"action":"respond","id":"%s","body":1}`, id)
		}
		for range 3 {
			s.next()
		}
		awaitCounts(t, a, typ, api.Ledger{Submitted: 6, Answered: 6})
	})
}
