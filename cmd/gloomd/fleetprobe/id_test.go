package fleetprobe

import (
	"fmt"
	"testing"
	"time"

	"gloom/broker/admin/api"
)

// Two homes have a job with one id. A connection never has two jobs with one id, and each home gets
// its own answer.
func TestEachHomeGetsItsOwnAnswer(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		w := newWorker(t, b, `"prefetch":10,"type":`+quote(typ))
		homes := []*broker{a, c, b}
		var ss []*peer
		for i, home := range homes {
			s := newSubmitter(t, home)
			ss = append(ss, s)
			s.wantOK(`{"action":"submit","id":"same","type":%s,"body":"%s"}`, quote(typ), home.name)
			s.wantOK(`{"action":"submit","id":"own%d","type":%s,"body":1}`, i, quote(typ))
		}
		out := map[string]string{}
		take := func(f frame) {
			if _, ok := out[f.ID]; ok {
				t.Fatalf("two of the id %s are out on one connection", f.ID)
			}
			out[f.ID] = string(f.Body)
		}
		for len(out) < 4 { // one job of each id: those whose id is already out wait without delaying the others
			take(w.nextJob())
		}
		for n := 6; n > 0; n-- {
			if len(out) == 0 {
				take(w.nextJob())
			}
			for id, body := range out {
				delete(out, id)
				w.send(`{"action":"respond","id":"%s","body":%s}`, id, body)
				break
			}
			for f := w.next(); !f.OK; f = w.next() {
				take(f)
			}
		}
		for i, s := range ss {
			for range 2 {
				f := s.next()
				if !f.isResult() || f.ID == "same" && string(f.Body) != quote(homes[i].name) {
					t.Errorf("home %s got %s", homes[i].name, f)
				}
			}
		}
	})
}

// A cancel of one home's job does not affect the other home's job with that id.
func TestCancelAffectsOneHome(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		var ws []*peer
		for range 2 {
			ws = append(ws, newWorker(t, b, `"cancel":true,"prefetch":3,"type":`+quote(typ)))
		}
		sa, sc := newSubmitter(t, a), newSubmitter(t, c)
		sa.wantOK(`{"action":"submit","id":"twin","type":%s,"body":"a"}`, quote(typ))
		sc.wantOK(`{"action":"submit","id":"twin","type":%s,"body":"c"}`, quote(typ))
		workersByBody := map[string]*peer{}
		for _, w := range ws {
			workersByBody[string(w.nextJob().Body)] = w
		}
		if len(workersByBody) != 2 {
			t.Fatalf("out are %v", workersByBody)
		}
		sa.wantOK(`{"action":"cancel","id":"twin"}`)
		if f := workersByBody[`"a"`].next(); f.Action != "cancel" {
			t.Errorf("%s, want cancel", f)
		}
		workersByBody[`"c"`].wantQuiet(100 * time.Millisecond)
		for body, w := range workersByBody {
			w.wantOK(`{"action":"respond","id":"twin","body":%s}`, body)
		}
		sc.wantEnd("twin", "")
		awaitCounts(t, a, typ, api.Ledger{Submitted: 1, Cancelled: 1})
		awaitCounts(t, c, typ, api.Ledger{Submitted: 1, Answered: 1})
	})
}

func TestIDIsFreeAfterEnd(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"prefetch":3,"type":`+quote(typ))
		for i := range 200 {
			s.wantOK(`{"action":"submit","id":"again","type":%s,"body":%d}`, quote(typ), i)
			if f := w.nextJob(); string(f.Body) != fmt.Sprint(i) {
				t.Fatalf("job %d is %s", i, f)
			}
			w.send(`{"action":"respond","id":"again","body":%d}`, i)
			if f := s.wantEnd("again", ""); string(f.Body) != fmt.Sprint(i) {
				t.Fatalf("answer %d is %s", i, f)
			}
			if f := w.next(); !f.OK {
				t.Fatal(f)
			}
		}
	})
}
