package fleetprobe

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker/admin/api"
)

func TestLentJobsRunByPriority(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		r := rand.New(rand.NewPCG(1, 2))
		type one struct {
			id       string
			priority int
		}
		var jobs []one
		for i := range 60 {
			j := one{fmt.Sprint("p", i), r.IntN(9) - 4}
			jobs = append(jobs, j)
			s.wantOK(`{"action":"submit","id":"%s","type":%s,"body":1,"priority":%d}`, j.id, quote(typ), j.priority)
		}
		slices.SortStableFunc(jobs, func(x, y one) int { return y.priority - x.priority })
		w := newWorker(t, b, `"type":`+quote(typ))
		for i, j := range jobs {
			if f := w.nextJob(); f.ID != j.id {
				t.Fatalf("job %d is %s, want %s of priority %d", i, f.ID, j.id, j.priority)
			}
			w.wantOK(`{"action":"respond","body":1}`)
			s.wantEnd(j.id, "")
		}
	})
}

func TestGroupRuleHoldsInFleet(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		if err := a.ask("PUT", "/v1/groups/"+typ+"-g", map[string]int{"concurrency": 1}, nil); err != nil {
			t.Fatal(err)
		}
		s, w := newSubmitter(t, a), newWorker(t, b, `"prefetch":10,"type":`+quote(typ))
		for i := range 3 {
			s.wantOK(`{"action":"submit","id":"g%d","type":%s,"body":1,"groups":[%s]}`, i, quote(typ), quote(typ+"-g"))
		}
		s.wantOK(`{"action":"submit","id":"free","type":%s,"body":1}`, quote(typ))
		first, second := w.nextJob().ID, w.nextJob().ID
		if first != "g0" || second != "free" {
			t.Errorf("%s and %s run, want g0 and free", first, second)
		}
		w.wantQuiet(300 * time.Millisecond)
		v := awaitState(t, a, "g1", "queued")
		if v.HeldBy == nil || v.HeldBy.Group != typ+"-g" {
			t.Errorf("g1: %+v", v)
		}
		w.wantOK(`{"action":"respond","id":"free","body":1}`)
		s.wantEnd("free", "")
		for i := range 3 {
			id := fmt.Sprint("g", i)
			w.wantOK(`{"action":"respond","id":"%s","body":1}`, id)
			s.wantEnd(id, "")
			if i < 2 {
				if f := w.nextJob(); f.ID != fmt.Sprint("g", i+1) {
					t.Errorf("%s after %s", f, id)
				}
				w.wantQuiet(50 * time.Millisecond)
			}
		}
	})
}

// A group opens at a home that has no worker. Other brokers get the group's jobs, although nothing
// else happens to the types of these jobs.
func TestGroupOpensAtHome(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, 1)
	home, other := f.brokers[0], f.brokers[1]
	s := newSubmitter(t, home)
	for _, c := range []struct {
		name          string
		before, after map[string]float64
	}{
		{"limit", map[string]float64{"concurrency": 1}, map[string]float64{"concurrency": 2}},
		{"rate", map[string]float64{"rate": 0.2}, nil},
	} {
		set := func(limits map[string]float64) {
			if err := home.ask("PUT", "/v1/groups/"+c.name, limits, nil); err != nil {
				t.Fatal(err)
			}
		}
		set(c.before)
		first, second := newWorker(t, other, `"type":`+quote(c.name+"1")), newWorker(t, other, `"type":`+quote(c.name+"2"))
		for i := 1; i <= 2; i++ {
			s.wantOK(`{"action":"submit","id":"%s%d","type":"%[1]s%[2]d","body":1,"groups":["%[1]s"]}`, c.name, i)
			if i == 1 {
				first.nextJob()
			}
		}
		second.wantQuiet(3 * time.Second) // long enough that every offer has been forgotten
		if c.after != nil {
			set(c.after)
		}
		second.nextJob()
		for i, w := range []*peer{first, second} {
			w.wantOK(`{"action":"respond","body":1}`)
			s.wantEnd(fmt.Sprint(c.name, i+1), "")
		}
	}
}

func TestLimitOfTypeHoldsInFleet(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		if err := a.ask("PUT", "/v1/types/"+typ+"/limits", map[string]int{"concurrency": 2, "rate": 0}, nil); err != nil {
			t.Fatal(err)
		}
		s := newSubmitter(t, a)
		w, w2 := newWorker(t, b, `"prefetch":10,"type":`+quote(typ)), newWorker(t, c, `"prefetch":10,"type":`+quote(typ))
		for i := range 10 {
			s.wantOK(`{"action":"submit","id":"l%d","type":%s,"body":1}`, i, quote(typ))
		}
		// Home's limit holds over all borrowers together.
		workers := []*peer{w, w2}
		for n := 10; n > 0; {
			time.Sleep(100 * time.Millisecond)
			out := map[string]*peer{}
			for _, p := range workers {
				for len(p.in) > 0 {
					if f := p.next(); f.Action == "job" {
						out[f.ID] = p
					} else if !f.OK {
						t.Fatal(f)
					}
				}
			}
			if len(out) > 2 {
				t.Fatalf("%v run, the limit is 2", out)
			}
			for id, p := range out {
				p.send(`{"action":"respond","id":"%s","body":1}`, id)
				n--
			}
		}
		awaitCounts(t, a, typ, api.Ledger{Submitted: 10, Answered: 10})

		// A borrower's own limit holds for the jobs that it borrows.
		if err := a.ask("PUT", "/v1/types/"+typ+"/limits", map[string]int{"concurrency": 0, "rate": 0}, nil); err != nil {
			t.Fatal(err)
		}
		w2.close()
		if err := b.ask("PUT", "/v1/types/"+typ+"/limits", map[string]int{"concurrency": 3, "rate": 0}, nil); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if f := s.next(); !f.isResult() {
				t.Fatal(f)
			}
		}
		for i := range 8 {
			s.wantOK(`{"action":"submit","id":"m%d","type":%s,"body":1}`, i, quote(typ))
		}
		for n := 8; n > 0; {
			time.Sleep(100 * time.Millisecond)
			var out []string
			for len(w.in) > 0 {
				if f := w.next(); f.Action == "job" {
					out = append(out, f.ID)
				}
			}
			if len(out) > 3 {
				t.Fatalf("%v run at the borrower, its limit is 3", out)
			}
			for _, id := range out {
				w.send(`{"action":"respond","id":"%s","body":1}`, id)
				n--
			}
		}
		awaitCounts(t, a, typ, api.Ledger{Submitted: 18, Answered: 18})
	})
}

func TestPausedTypeIsNotLent(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		for _, p := range []*broker{b, a} { // paused first at the borrower, then at home
			if err := p.ask("POST", "/v1/types/"+typ+"/pause", struct{}{}, nil); err != nil {
				t.Fatal(err)
			}
			s, w := newSubmitter(t, a), newWorker(t, b, `"type":`+quote(typ))
			s.wantOK(`{"action":"submit","id":"paused","type":%s,"body":1,"retries":0}`, quote(typ))
			w.wantQuiet(400 * time.Millisecond)
			if v := awaitState(t, a, "paused", "queued"); v.Attempts != 0 {
				t.Errorf("paused at %s: %+v", p.name, v)
			}
			if err := p.ask("POST", "/v1/types/"+typ+"/resume", struct{}{}, nil); err != nil {
				t.Fatal(err)
			}
			w.nextJob()
			w.wantOK(`{"action":"respond","body":1}`)
			s.wantEnd("paused", "")
			w.close()
		}
	})
}

func TestTenantsTakeTurnsInFleet(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		if err := a.ask("PUT", "/v1/types/"+typ, map[string]bool{"fair": true}, nil); err != nil {
			t.Fatal(err)
		}
		s := newSubmitter(t, a)
		for i := range 30 {
			s.wantOK(`{"action":"submit","id":"many%d","type":%s,"body":1,"groups":["many"]}`, i, quote(typ))
		}
		for i := range 3 {
			s.wantOK(`{"action":"submit","id":"few%d","type":%s,"body":1,"groups":["few"]}`, i, quote(typ))
		}
		before, err := a.fleet()
		if err != nil {
			t.Fatal(err)
		}
		w := newWorker(t, b, `"type":`+quote(typ))
		fewCount := 0
		for i := range 33 {
			f := w.nextJob()
			if strings.HasPrefix(f.ID, "few") {
				// A job that was lent and came back without a run still counts as its tenant's
				// turn.
				view, err := a.fleet()
				if err != nil {
					t.Fatal(err)
				}
				returnedCount := int(view.Returned - before.Returned)
				if fewCount++; i > 2*fewCount+1+returnedCount {
					t.Errorf("%s is only number %d; %d came back", f.ID, i, returnedCount)
				}
			}
			w.wantOK(`{"action":"respond","body":1}`)
			s.wantEnd(f.ID, "")
		}
	})
}
