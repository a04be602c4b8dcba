package fleetprobe

import (
	"strings"
	"testing"
	"time"

	"gloom/broker/admin/api"
)

func TestLentJobsRunByAge(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"young","type":%s,"body":1}`, quote(typ))
		s.wantOK(`{"action":"submit","id":"old","type":%s,"body":1,"age_ms":60000}`, quote(typ))
		w := newWorker(t, b, `"type":`+quote(typ))
		for _, id := range []string{"old", "young"} {
			if f := w.nextJob(); f.ID != id {
				t.Fatalf("%s, want %s", f.ID, id)
			}
			w.wantOK(`{"action":"respond","body":1}`)
			s.wantEnd(id, "")
		}
	})
}

func TestDelayedJobIsLentLater(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"type":`+quote(typ))
		start := time.Now()
		s.wantOK(`{"action":"submit","id":"late","type":%s,"body":1,"delay_ms":700}`, quote(typ))
		s.wantOK(`{"action":"submit","id":"now","type":%s,"body":1}`, quote(typ))
		for f := w.nextJob(); ; f = w.nextJob() {
			w.wantOK(`{"action":"respond","body":1}`)
			if s.wantEnd(f.ID, ""); f.ID == "late" {
				break
			}
		}
		if d := time.Since(start); d < 700*time.Millisecond {
			t.Errorf("a delay of 700 ms was over after %s", d)
		}
	})
}

func TestDeadlineOfLentJobHolds(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"waits","type":%s,"body":1,"expires_ms":200}`, quote(typ))
		s.wantEnd("waits", "expired")
		w := newWorker(t, b, `"type":`+quote(typ))
		s.wantOK(`{"action":"submit","id":"runs","type":%s,"body":1,"expires_ms":5000}`, quote(typ))
		s.wantOK(`{"action":"submit","id":"fails","type":%s,"body":1,"expires_ms":5000}`, quote(typ))
		w2 := newWorker(t, b, `"type":`+quote(typ))
		w.nextJob()
		w2.nextJob()
		time.Sleep(5100 * time.Millisecond) // past the deadline
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("runs", "")
		w2.wantOK(`{"action":"fail","reason":"too late"}`)
		s.wantEnd("fails", "expired")
		awaitCounts(t, a, typ, api.Ledger{Submitted: 3, Answered: 1, Expired: 2})
	})
}

func TestTimeoutOfLentRunHolds(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, c *broker) {
		typ := typeOfTest(t)
		s := newSubmitter(t, a)
		w := newWorker(t, b, `"cancel":true,"type":`+quote(typ))
		s.wantOK(`{"action":"submit","id":"slow","type":%s,"body":1,"timeout_ms":4000,"retries":1}`, quote(typ))
		w.nextJob()
		w2 := newWorker(t, c, `"cancel":true,"type":`+quote(typ))
		if f := w.next(); string(f.raw) != `{"action":"cancel","id":"slow"}` {
			t.Errorf("an overdue run: %s", f)
		}
		if f := w2.nextJob(); f.ID != "slow" {
			t.Errorf("the retry is %s", f)
		}
		// The overdue socket gets no job before it has answered, whoever submits.
		s.wantOK(`{"action":"submit","id":"next","type":%s,"body":1}`, quote(typ))
		w.wantQuiet(500 * time.Millisecond)
		w.wantOK(`{"action":"respond","body":"discarded"}`)
		if f := w.nextJob(); f.ID != "next" {
			t.Errorf("after an overdue run: %s", f)
		}
		w.wantOK(`{"action":"respond","body":"next"}`)
		if f := w2.next(); f.Action != "cancel" {
			t.Errorf("the second overdue run: %s", f)
		}
		for range 2 {
			switch f := s.next(); {
			case f.ID == "next" && f.isResult():
			case f.ID == "slow" && f.Error == "job_failed" && strings.Contains(f.Reason, "time"):
			default:
				t.Errorf("%s, want the result of next and slow's failure", f)
			}
		}
		w2.wantOK(`{"action":"fail","reason":"discarded"}`)
		awaitCounts(t, a, typ, api.Ledger{Submitted: 2, Answered: 1, Failed: 1})
		w2.wantOK(`{"action":"ping"}`)
	})
}

func TestRetriesOfLentJobAreCounted(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"type":`+quote(typ))
		s.wantOK(`{"action":"submit","id":"r","type":%s,"body":1,"retries":2,"backoff_ms":200}`, quote(typ))
		var at []time.Time
		for i := range 3 {
			w.nextJob()
			at = append(at, time.Now())
			if v, err := fetchJob(t, a, "r"); err != nil || v.State != "running" || v.Attempts != i+1 {
				t.Errorf("run %d: %+v, %v", i, v, err)
			}
			w.wantOK(`{"action":"fail","reason":"try %d"}`, i)
		}
		if f := s.wantEnd("r", "job_failed"); !strings.Contains(f.Reason, "try 2") {
			t.Errorf("reason %q, want the last one's", f.Reason)
		}
		if d := at[1].Sub(at[0]); d < 200*time.Millisecond {
			t.Errorf("first retry after %s, backoff 200 ms", d)
		}
		if d := at[2].Sub(at[1]); d < 400*time.Millisecond {
			t.Errorf("second retry after %s, backoff 400 ms", d)
		}
		s.wantOK(`{"action":"submit","id":"final","type":%s,"body":1,"retries":9}`, quote(typ))
		w.nextJob()
		w.wantOK(`{"action":"fail","reason":"for good","retry":false}`)
		if f := s.wantEnd("final", "job_failed"); !strings.Contains(f.Reason, "for good") {
			t.Errorf("reason %q", f.Reason)
		}
		s.wantOK(`{"action":"submit","id":"own","type":%s,"body":1,"retries":1,"backoff_ms":80000000}`, quote(typ))
		w.nextJob()
		start := time.Now()
		w.wantOK(`{"action":"fail","delay_ms":5000}`)
		awaitState(t, a, "own", "delayed") // so that the test sees it in time on a busy machine
		w.nextJob()
		if d := time.Since(start); d < 5*time.Second {
			t.Errorf("the worker's delay of 5 s was over after %s", d)
		}
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("own", "")
		awaitCounts(t, a, typ, api.Ledger{Submitted: 3, Answered: 1, Failed: 2})
		awaitCounts(t, b, typ, api.Ledger{})
	})
}

func TestLentJobBecomesDeadLetter(t *testing.T) {
	runUndisturbed(t, func(t *trial, a, b, _ *broker) {
		typ := typeOfTest(t)
		s, w := newSubmitter(t, a), newWorker(t, b, `"headers":true,"type":`+quote(typ))
		s.wantOK(`{"action":"submit","id":"d","type":%s,"body":{"k":1},"retries":0,"headers":{"h":1}}`, quote(typ))
		w.nextJob()
		w.wantOK(`{"action":"fail","reason":"no"}`)
		s.wantEnd("d", "job_failed")
		var letters api.List[api.DeadJob]
		if err := a.ask("GET", "/v1/dead/"+typ, nil, &letters); err != nil || len(letters.Items) != 1 || letters.Items[0].ID != "d" || !strings.Contains(letters.Items[0].Reason, "no") || letters.Items[0].Attempts != 1 {
			t.Errorf("dead letters at home: %+v, %v", letters, err)
		}
		for _, o := range shared.fleet.brokers[1:] {
			if err := o.ask("GET", "/v1/dead/"+typ, nil, &letters); err == nil && len(letters.Items) > 0 {
				t.Errorf("dead letters at %s: %+v", o.name, letters)
			}
		}
		if err := a.ask("POST", "/v1/dead/"+typ+"/d/retry", struct{}{}, nil); err != nil {
			t.Fatal(err)
		}
		if f := w.nextJob(); f.ID != "d" || string(f.Body) != `{"k":1}` || string(f.Header) != `{"h":1}` {
			t.Errorf("handed in again: %s", f)
		}
		w.wantOK(`{"action":"respond","body":1}`)
		awaitCounts(t, a, typ, api.Ledger{Submitted: 2, Answered: 1, Failed: 1})
	})
}
