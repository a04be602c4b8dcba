package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// request sends an HTTP request, with a token unless token is "".
func (d *daemon) request(method, path, token string) (status int, body string, err error) {
	return d.requestWith(method, path, token, "")
}

// requestWith is ask with a body, unless body is "".
func (d *daemon) requestWith(method, path, token, reqBody string) (status int, body string, err error) {
	req, err := http.NewRequest(method, "http://"+d.httpAddr+path, strings.NewReader(reqBody))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := plainHTTP.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// jobState returns a job's state over HTTP, or "" if the job has ended and its outcome is not
// kept.
func (d *daemon) jobState(t tb, id string) string {
	t.Helper()
	status, body, err := d.request("GET", "/v1/jobs/"+url.PathEscape(id), "")
	if err != nil {
		t.Fatalf("GET job: %v", err)
	}
	if status == http.StatusNotFound {
		return ""
	}
	var job struct {
		State string `json:"state"`
		Keep  *int64 `json:"keep_ms"`
	}
	if status != http.StatusOK || json.Unmarshal([]byte(body), &job) != nil || job.State == "" {
		t.Fatalf("GET job %q: status %d, %s", id, status, body)
	}
	if job.State == "ended" && job.Keep == nil {
		return ""
	}
	return job.State
}

// waitState polls until the job is in the state want; "" waits for the job's end.
func (d *daemon) waitState(t tb, id, want string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("job %q is %q", id, want), func() error {
		if got := d.jobState(t, id); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

var ledgerNames = []string{"submitted", "delayed", "queued", "running", "answered", "failed", "cancelled", "expired", "discarded"}

// readLedger reads the nine counts of a type's ledger and checks that they balance.
func (d *daemon) readLedger(t tb, typ string) map[string]int64 {
	t.Helper()
	status, body, err := d.request("GET", "/v1/types/"+url.PathEscape(typ), "")
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET type %q: status %d, %v, %s", typ, status, err, body)
	}
	var info struct {
		Ledger map[string]int64 `json:"ledger"`
	}
	if err := json.Unmarshal([]byte(body), &info); err != nil {
		t.Fatalf("GET type %q: %v: %s", typ, err, body)
	}
	l := info.Ledger
	total := int64(0)
	for _, n := range ledgerNames {
		if _, has := l[n]; !has {
			t.Fatalf("ledger of %q lacks %s: %s", typ, n, body)
		}
		if n != "submitted" {
			total += l[n]
		}
	}
	if l["submitted"] != total {
		t.Fatalf("ledger of %q is out of balance: %v", typ, l)
	}
	return l
}

// awaitLedger waits until a type's ledger has these counts, and zero for all others.
func (d *daemon) awaitLedger(t tb, typ string, want map[string]int64) {
	t.Helper()
	waitFor(t, "ledger of "+typ, func() error {
		got := d.readLedger(t, typ)
		for _, n := range ledgerNames {
			if got[n] != want[n] {
				return fmt.Errorf("%s is %d, want %d: %v", n, got[n], want[n], got)
			}
		}
		return nil
	})
}

func TestJobsAreShownOverHTTP(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("states", func(t *testing.T) {
		typ := freshName("http")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":1000`)
		if got := b.jobState(t, id); got != "delayed" {
			t.Errorf("state %q, want delayed", got)
		}
		b.waitState(t, id, "queued")
		w := b.servingWorker(t, typ)
		w.wantJob(id)
		if got := b.jobState(t, id); got != "running" {
			t.Errorf("state %q, want running", got)
		}
		w.respond(`2`)
		if got := b.jobState(t, id); got != "" {
			t.Errorf("state %q, want none once ended", got)
		}
	})
	t.Run("waiting for a retry is delayed", func(t *testing.T) {
		typ := freshName("http")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.send(`{"action":"fail","delay_ms":60000}`)
		w.wantOK()
		if got := b.jobState(t, id); got != "delayed" {
			t.Errorf("state %q, want delayed", got)
		}
	})
	t.Run("unwanted is running", func(t *testing.T) {
		typ := freshName("http")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		if got := b.jobState(t, id); !strings.HasPrefix(got, "running") {
			t.Errorf("state %q, want running", got)
		}
		w.respond(`1`)
		if got := b.jobState(t, id); got != "" {
			t.Errorf("state %q, want none", got)
		}
	})
	t.Run("unknown is 404", func(t *testing.T) {
		for _, method := range []string{"GET", "DELETE"} {
			if status, body, err := b.request(method, "/v1/jobs/no-such-job", ""); err != nil || status != 404 {
				t.Errorf("%s: status %d, %v, %s", method, status, err, body)
			}
		}
	})
	t.Run("ids that need escaping", func(t *testing.T) {
		s := b.submitter(t)
		typ := freshName("http")
		for _, id := range []string{typ + " /a?b#c%d", typ + "é😀", typ + `"quoted"`, typ + "/../x", typ + "\x00\n", typ + ";&=+"} {
			s.submit(id, typ, `1`)
			if got := b.jobState(t, id); got != "queued" {
				t.Errorf("%q: state %q, want queued", id, got)
			}
		}
	})
	t.Run("DELETE a queued one", func(t *testing.T) {
		typ := freshName("http")
		s := b.submitter(t)
		id := s.submitFresh(typ, `1`)
		deleteJob(t, b, id, 200)
		s.wantErrorFor("cancelled", id)
		b.servingWorker(t, typ).wantQuiet()
		s.submit(id, typ, `2`) // the id is free
		b.awaitLedger(t, typ, map[string]int64{"submitted": 2, "cancelled": 1, "running": 1})
	})
	t.Run("DELETE a delayed one", func(t *testing.T) {
		typ := freshName("http")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":60000`)
		deleteJob(t, b, id, 200)
		s.wantErrorFor("cancelled", id)
		deleteJob(t, b, id, 404)
		s.wantQuiet()
	})
	t.Run("DELETE a detached one", func(t *testing.T) {
		s := b.submitter(t)
		id := s.submitFreshWith(freshName("http"), `1`, `,"detach":true`)
		deleteJob(t, b, id, 200)
		s.wantQuiet() // the submitter gets no frame about a detached job
	})
	t.Run("DELETE a running one is 409", func(t *testing.T) {
		typ := freshName("http")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		deleteJob(t, b, id, 409)
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("a page in a browser cannot cancel", func(t *testing.T) {
		s := b.submitter(t)
		id := s.submitFresh(freshName("http"), `1`)
		req, _ := http.NewRequest("DELETE", "http://"+b.httpAddr+"/v1/jobs/"+id, nil)
		req.Host = "evil.example"
		req.Header.Set("Content-Type", "application/json")
		res, err := plainHTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode < 400 || b.jobState(t, id) != "queued" {
			t.Errorf("a request for another host got %d", res.StatusCode)
		}
	})
	t.Run("readyz", func(t *testing.T) {
		if status, body, err := b.get("/readyz"); err != nil || status != 200 {
			t.Errorf("status %d, %v, %s", status, err, body)
		}
	})
}

func deleteJob(t *testing.T, d *daemon, id string, want int) {
	t.Helper()
	status, body, err := d.request("DELETE", "/v1/jobs/"+url.PathEscape(id), "")
	if want == 200 && status/100 == 2 {
		status = 200
	}
	if err != nil || status != want {
		t.Fatalf("DELETE %q: status %d, %v, %s; want %d", id, status, err, body, want)
	}
}

// TestEachEndHasItsCount: each way in which a job can end has its own count.
func TestEachEndHasItsCount(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("ledger")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	want := map[string]int64{}
	step := func(name string, do func(t *testing.T, s submitter, w worker), change ...string) {
		t.Run(name, func(t *testing.T) {
			do(t, submitter{&conn{t, s.net, s.in}}, worker{&conn{t, w.net, w.in}})
			for _, c := range change {
				want[c]++
			}
			b.awaitLedger(t, typ, want)
		})
	}
	step("answered", func(t *testing.T, s submitter, w worker) { checkServes(t, s, w, typ) }, "submitted", "answered")
	step("failed by retries", func(t *testing.T, s submitter, w worker) {
		id := s.submitFreshWith(typ, `1`, `,"retries":0`)
		w.wantJob(id)
		w.fail(``)
		s.wantErrorFor("job_failed", id)
	}, "submitted", "failed")
	step("failed by word", func(t *testing.T, s submitter, w worker) {
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.fail(`,"retry":false`)
		s.wantErrorFor("job_failed", id)
	}, "submitted", "failed")
	step("failed by timeout", func(t *testing.T, s submitter, w worker) {
		id := s.submitFreshWith(typ, `1`, `,"retries":0,"timeout_ms":50`)
		w.wantJob(id)
		s.wantErrorFor("job_failed", id)
		w.respond(`0`) // overdue: not counted
	}, "submitted", "failed")
	step("cancelled at work", func(t *testing.T, s submitter, w worker) {
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.respond(`1`)
	}, "submitted", "cancelled")
	step("discarded at work", func(t *testing.T, _ submitter, w worker) {
		s := b.submitter(t)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		queuedID := s.submitFresh(freshName("elsewhere"), `1`)
		s.close()
		b.waitState(t, queuedID, "")
		w.respond(`1`)
	}, "submitted", "discarded")
	step("detached and answered", func(t *testing.T, _ submitter, w worker) {
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"detach":true`)
		w.wantJob(id)
		s.close()
		w.respond(`1`)
	}, "submitted", "answered")
	step("running", func(t *testing.T, s submitter, w worker) { w.wantJob(s.submitFresh(typ, `1`)) }, "submitted", "running")
	step("queued", func(t *testing.T, s submitter, _ worker) { s.submitFresh(typ, `1`) }, "submitted", "queued")
	step("delayed", func(t *testing.T, s submitter, _ worker) { s.submitFreshWith(typ, `1`, `,"delay_ms":600000`) }, "submitted", "delayed")
	step("cancelled in the queue", func(t *testing.T, s submitter, _ worker) { s.cancel(s.submitFresh(typ, `1`)) }, "submitted", "cancelled")
	step("expired", func(t *testing.T, s submitter, _ worker) {
		s.wantErrorFor("expired", s.submitFreshWith(typ, `1`, `,"expires_ms":50`))
	}, "submitted", "expired")
	step("discarded in the queue", func(t *testing.T, _ submitter, _ worker) {
		s := b.submitter(t)
		s.submitFresh(typ, `1`)
		s.close()
	}, "submitted", "discarded")
	step("refused submits count nowhere", func(t *testing.T, s submitter, _ worker) {
		s.send(`{"action":"submit","id":"x","type":%q}`, typ)
		s.wantError("missing_field")
		s.sendSubmit("x", typ, `1`, `,"retries":-1`)
		s.wantError("invalid_value")
	})
}
