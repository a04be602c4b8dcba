package fleetprobe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gloom/broker/admin/api"
)

func TestLentJobIsCancelled(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		s, other := newSubmitter(t, a), newSubmitter(t, b)
		s.wantOK(`{"action":"submit","id":"cw","type":%s,"body":1}`, quote(typ))
		other.wantRefusal("unknown_id", `{"action":"cancel","id":"cw"}`)
		s.wantOK(`{"action":"cancel","id":"cw"}`)
		s.wantRefusal("unknown_id", `{"action":"cancel","id":"cw"}`)

		w := newWorker(t, b, `"cancel":true,"type":`+quote(typ))
		deafWorker := newWorker(t, c, `"type":`+quote(typ))
		for _, id := range []string{"cr1", "cr2"} {
			s.wantOK(`{"action":"submit","id":"%s","type":%s,"body":1,"progress":true}`, id, quote(typ))
		}
		f, g := w.nextJob(), deafWorker.nextJob()
		other.wantRefusal("unknown_id", `{"action":"cancel","id":"%s"}`, f.ID)
		s.wantOK(`{"action":"cancel","id":"%s"}`, f.ID)
		if n := w.next(); n.Action != "cancel" || n.ID != f.ID {
			t.Errorf("%s, want cancel of %s", n, f.ID)
		}
		s.wantOK(`{"action":"cancel","id":"%s"}`, g.ID)
		for _, id := range []string{f.ID, g.ID} {
			s.wantRefusal("unknown_id", `{"action":"cancel","id":"%s"}`, id)
			s.wantRefusal("id_exists", `{"action":"submit","id":"%s","type":%s,"body":1}`, id, quote(typ))
			if v := awaitState(t, a, id, "running"); !v.Unwanted {
				t.Errorf("%+v is wanted", v)
			}
		}
		w.wantOK(`{"action":"progress","body":"for nobody"}`)
		w.wantOK(`{"action":"fail","reason":"stopped"}`)
		deafWorker.wantOK(`{"action":"respond","body":"discarded"}`)
		awaitCounts(t, a, typ, api.Ledger{Submitted: 3, Cancelled: 3})
		// The ids and the places are free again.
		for _, id := range []string{f.ID, g.ID} {
			s.wantOK(`{"action":"submit","id":"%s","type":%s,"body":2}`, id, quote(typ))
		}
		w.nextJob()
		deafWorker.nextJob()
		w.wantOK(`{"action":"respond","body":3}`)
		deafWorker.wantOK(`{"action":"respond","body":3}`)
		for range 2 {
			if n := s.next(); string(n.Body) != "3" {
				t.Errorf("%s, want a result", n)
			}
		}
	})
}

// If a cancel and an answer come at the same time, exactly one of them wins.
func TestEitherCancelOrAnswerWins(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"type":`+quote(typ))
		cancelled, answered := uint64(0), uint64(0)
		for i := range 60 {
			id := fmt.Sprint("m", i)
			s.wantOK(`{"action":"submit","id":"%s","type":%s,"body":1}`, id, quote(typ))
			w.nextJob()
			w.send(`{"action":"respond","body":%d}`, i)
			time.Sleep(time.Duration(i*10) * time.Microsecond)
			s.send(`{"action":"cancel","id":"%s"}`, id)
			switch f := s.next(); {
			case f.OK:
				cancelled++
			case f.isResult() && f.ID == id:
				answered++
				if f := s.next(); f.Error != "unknown_id" {
					t.Fatalf("%s has its result, and the cancel is answered with %s", id, f)
				}
			default:
				t.Fatal(f)
			}
			if f := w.next(); !f.OK {
				t.Fatal(f)
			}
		}
		t.Logf("%d cancelled, %d answered", cancelled, answered)
		awaitCounts(t, a, typ, api.Ledger{Submitted: 60, Cancelled: cancelled, Answered: answered})
		s.wantQuiet(50 * time.Millisecond)
	})
}

func TestProgressOfLentJobReachesSubmitter(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"prefetch":2,"type":`+quote(typ))
		s.wantOK(`{"action":"submit","id":"asks","type":%s,"body":1,"progress":true}`, quote(typ))
		s.wantOK(`{"action":"submit","id":"not","type":%s,"body":1}`, quote(typ))
		w.nextJob()
		w.nextJob()
		for i := range 20 {
			w.wantOK(`{"action":"progress","id":"not","body":%d}`, i)
			w.wantOK(`{"action":"progress","id":"asks","body":{ "n":%d}}`, i)
		}
		w.wantRefusal("unknown_id", `{"action":"progress","id":"none","body":1}`)
		w.wantOK(`{"action":"respond","id":"not","body":1}`)
		w.wantOK(`{"action":"respond","id":"asks","body":1}`)
		last, ends := -1, 0
		for ends < 2 {
			f := s.next()
			if f.isResult() {
				ends++
				continue
			}
			var n struct{ N int }
			if f.ID != "asks" || json.Unmarshal(f.News, &n) != nil || n.N <= last {
				t.Fatalf("%s after %d", f, last)
			}
			if last = n.N; string(f.News) != fmt.Sprintf(`{ "n":%d}`, last) {
				t.Errorf("%s is not what was sent", f)
			}
		}
		if last != 19 {
			t.Errorf("the last news is %d of 19, though its submitter reads", last)
		}
	})
}

func TestLentJobIsKept(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		w, s := newWorker(t, b, `"type":`+quote(typ)), newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"kept","type":%s,"body":1,"keep_ms":60000}`, quote(typ))
		s.wantOK(`{"action":"submit","id":"live","type":%s,"body":1,"keep_ms":60000}`, quote(typ))
		w.nextJob()
		s.close()
		otherSubmitter := newSubmitter(t, b)
		otherSubmitter.wantRefusal("unknown_id", `{"action":"attach","id":"kept"}`)
		w.wantOK(`{"action":"respond","body":"outcome"}`)
		if v := awaitState(t, a, "kept", "ended"); v.Outcome != "answered" {
			t.Errorf("%+v", v)
		}
		s = newSubmitter(t, a)
		if f := s.wantOK(`{"action":"attach","id":"kept"}`); f.State != "ended" {
			t.Errorf("attached: %s", f)
		}
		if f := s.wantEnd("kept", ""); string(f.Body) != `"outcome"` {
			t.Errorf("outcome %s", f)
		}
		w.nextJob()
		if f := s.wantOK(`{"action":"attach","id":"live","progress":true}`); f.State != "running" {
			t.Errorf("attached: %s", f)
		}
		// Progress that is reported before b knows of a reader goes nowhere.
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		var f frame
		for open := true; f.raw == nil; {
			w.wantOK(`{"action":"progress","body":7}`)
			select {
			case f, open = <-s.in:
				if !open {
					t.Fatal("a closed the connection")
				}
			case <-ticker.C:
			}
		}
		if string(f.raw) != `{"id":"live","progress":7}` {
			t.Errorf("progress after attach: %s", f)
		}
		w.wantOK(`{"action":"respond","body":2}`)
		for f = s.next(); f.News != nil; f = s.next() {
		}
		if f.ID != "live" || !f.isResult() {
			t.Errorf("%s, want the result of live", f)
		}
	})
}

func TestLentJobIsDetached(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"det","type":%s,"body":1,"detach":true}`, quote(typ))
		s.close()
		w := newWorker(t, b, `"cancel":true,"type":`+quote(typ))
		w.nextJob()
		w.wantOK(`{"action":"respond","body":1}`)
		s = newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"det2","type":%s,"body":1,"detach":true}`, quote(typ))
		w.nextJob()
		secondSubmitter := newSubmitter(t, a)
		secondSubmitter.wantOK(`{"action":"cancel","id":"det2"}`)
		if f := w.next(); f.Action != "cancel" || f.ID != "det2" {
			t.Errorf("%s, want cancel", f)
		}
		w.wantOK(`{"action":"respond","body":1}`)
		awaitCounts(t, a, typ, api.Ledger{Submitted: 2, Answered: 1, Cancelled: 1})
	})
}

func TestLentJobOfGoneSubmitterIsUnwanted(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"cancel":true,"type":`+quote(typ))
		for i := range 3 {
			s.wantOK(`{"action":"submit","id":"gone%d","type":%s,"body":1}`, i, quote(typ))
		}
		f := w.nextJob()
		s.close()
		if n := w.next(); n.Action != "cancel" || n.ID != f.ID {
			t.Errorf("%s, want cancel of %s", n, f.ID)
		}
		awaitCounts(t, a, typ, api.Ledger{Submitted: 3, Running: 1, Discarded: 2})
		w.wantOK(`{"action":"respond","body":1}`)
		awaitCounts(t, a, typ, api.Ledger{Submitted: 3, Discarded: 3})
		w.wantQuiet(50 * time.Millisecond)
	})
}

func TestLentJobIsChanged(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		for i := range 3 {
			s.wantOK(`{"action":"submit","id":"c%d","type":%s,"body":1}`, i, quote(typ))
		}
		s.wantOK(`{"action":"submit","id":"c3","type":%s,"body":1,"delay_ms":3600000}`, quote(typ))
		s.wantOK(`{"action":"change","id":"c2","priority":5}`)
		s.wantOK(`{"action":"change","id":"c3","delay_ms":0,"priority":9}`)
		newSubmitter(t, b).wantRefusal("unknown_id", `{"action":"change","id":"c2","priority":1}`)
		w := newWorker(t, b, `"type":`+quote(typ))
		for i, id := range []string{"c3", "c2", "c0", "c1"} {
			if f := w.nextJob(); f.ID != id {
				t.Errorf("job %d is %s, want %s", i, f.ID, id)
			}
			s.wantRefusal("invalid_state", `{"action":"change","id":"%s","priority":1}`, id)
			w.wantOK(`{"action":"respond","body":1}`)
			s.wantEnd(id, "")
		}
	})
}

func TestManyUnackedJobsAreLent(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		const n = 3000
		go func() {
			for i := range n {
				if s.write(fmt.Sprintf(`{"action":"submit","id":"b%d","type":%s,"body":{"n":%d},"ack":false}`, i, quote(typ), i)) != nil {
					return
				}
			}
		}()
		for i := range 4 {
			p, err := []*broker{b, c}[i%2].dial("9999")
			if err != nil {
				t.Fatal(err)
			}
			w := newPeer(p)
			defer w.close()
			w.write(fmt.Sprintf(`{"action":"join","type":%s,"prefetch":100}`, quote(typ)))
			go func() {
				for f := range w.in {
					if f.Action == "job" {
						w.write(fmt.Sprintf(`{"action":"respond","id":"%s","body":%s}`, f.ID, f.Body))
					}
				}
			}()
		}
		seen := map[string]bool{}
		for len(seen) < n {
			f := s.next()
			if !f.isResult() || seen[f.ID] || string(f.Body) != fmt.Sprintf(`{"n":%s}`, strings.TrimPrefix(f.ID, "b")) {
				t.Fatalf("%s, seen %t", f, seen[f.ID])
			}
			seen[f.ID] = true
		}
		awaitCounts(t, a, typ, api.Ledger{Submitted: n, Answered: n})
		awaitCounts(t, b, typ, api.Ledger{})
	})
}

// Jobs that are submitted over HTTP are lent as well.
func TestJobsOverHTTPAreLent(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		w := newWorker(t, b, `"type":`+quote(typ))
		done := make(chan error, 1)
		var answer string
		go func() { done <- a.ask("POST", "/v1/jobs?wait=40s&type="+typ, json.RawMessage(`{"to":"you"}`), &answer) }()
		if f := w.nextJob(); string(f.Body) != `{"to":"you"}` {
			t.Errorf("%s", f)
		}
		w.wantOK(`{"action":"respond","body":{"sent":true}}`)
		if err := <-done; err != nil || !strings.Contains(answer, `{"sent":true}`) {
			t.Errorf("%s, %v", answer, err)
		}
		s := newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"h","type":%s,"body":1}`, quote(typ))
		w.nextJob()
		err := a.ask("DELETE", "/v1/jobs/h", nil, nil)
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Status != http.StatusConflict {
			t.Errorf("DELETE of a running job: %v", err)
		}
		if _, err := fetchJob(t, b, "h"); err == nil {
			t.Error("the borrower knows the id")
		}
		var list api.List[api.Job]
		if err := b.ask("GET", "/v1/types/"+typ+"/jobs?state=running", nil, &list); err == nil && len(list.Items) > 0 {
			t.Errorf("the borrower lists %+v", list.Items)
		}
		var d api.Demand
		if err := a.ask("GET", "/v1/types/"+typ+"/demand", nil, &d); err != nil || d.Demand != 1 {
			t.Errorf("demand %+v, %v", d, err)
		}
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("h", "")
	})
}
