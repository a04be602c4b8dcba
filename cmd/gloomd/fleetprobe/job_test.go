package fleetprobe

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker/admin/api"
)

// typeOf is a type of the test's own.
func typeOf(t testing.TB) string { return strings.NewReplacer("/", "-").Replace(t.Name()) }

// wanted waits until a broker knows that another one wants jobs of a type.
func wanted(t testing.TB, home *broker, by, typ string) {
	t.Helper()
	if err := until(by+"'s want of "+typ+" is known at "+home.name, func() error {
		v, err := home.fleet()
		if err != nil {
			return err
		}
		for _, b := range v.Brokers {
			if text, _ := json.Marshal(b.Wants); b.Name == by && strings.Contains(string(text), quote(typ)) {
				return nil
			}
		}
		return fmt.Errorf("%+v", v.Brokers)
	}); err != nil {
		t.Fatal(err)
	}
}

func ledger(t testing.TB, b *broker, typ string) api.Ledger {
	t.Helper()
	var v api.Type
	if err := b.ask("GET", "/v1/types/"+url.PathEscape(typ), nil, &v); err != nil {
		if e := (*api.Error)(nil); errors.As(err, &e) && e.Status == http.StatusNotFound {
			return v.Ledger
		}
		t.Fatal(err)
	}
	l := v.Ledger
	if l.Submitted != l.Ended()+l.Delayed+l.Queued+l.Running {
		t.Errorf("%s: the ledger of %s does not balance: %+v", b.name, typ, l)
	}
	return l
}

// counts waits until the ledger of a type is as wanted.
func counts(t testing.TB, b *broker, typ string, want api.Ledger) {
	t.Helper()
	if err := until("the ledger of "+typ+" at "+b.name+" is as it should be", func() error {
		if l := ledger(t, b, typ); l != want {
			return fmt.Errorf("%+v, want %+v", l, want)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func job(t testing.TB, b *broker, id string) (v api.Job, err error) {
	t.Helper()
	err = b.ask("GET", "/v1/jobs/"+url.PathEscape(id), nil, &v)
	return v, err
}

// in waits until a job is in a state.
func in(t testing.TB, b *broker, id, state string) api.Job {
	t.Helper()
	var v api.Job
	if err := until(id+" is "+state, func() (err error) {
		if v, err = job(t, b, id); err == nil && v.State != state {
			err = fmt.Errorf("%+v", v)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBodies(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		w, s := worker(t, b, `"type":`+quote(typ)), submitter(t, a)
		for i, body := range []string{
			`null`, `true`, `false`, `0`, `-0.0`, `1e400`, `123456789012345678901234567890.5E-7`, `""`, `"\u00e9\ud83d\ude00 é \u0000"`, `[]`, `{}`,
			`{"b":1,"a":2,"b":3}`, `[ 1 ,	2 ]`, `{"id":"x","error":"y","action":"cancel","body":null}`, `"` + strings.Repeat("x", 5000) + `"`,
			strings.Repeat("[", 500) + strings.Repeat("]", 500),
		} {
			id := fmt.Sprint("body", i)
			s.ok(`{"action":"submit","id":"%s","type":%s,"body":%s}`, id, quote(typ), body)
			if f := w.job(); string(f.raw) != fmt.Sprintf(`{"action":"job","id":"%s","type":%s,"body":%s}`, id, quote(typ), body) {
				t.Errorf("the worker got %s, want the body %s", f, body)
			}
			w.ok(`{"action":"respond","body":%s}`, body)
			if f := s.ended(id, ""); string(f.raw) != fmt.Sprintf(`{"id":"%s","body":%s}`, id, body) {
				t.Errorf("the submitter got %s, want the body %s", f, body)
			}
		}
	})
}

func TestNames(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		long := strings.Repeat("n", 1000)
		for _, name := range []string{
			".", "..", ">", "*", "a.>", "*.b", " ", "a b", "\t", "\r\nPUB x 0\r\n", "\x00", "$SYS.>", "_INBOX.x", `"`, `\`, "/", "é", "😀", "\u2028", "%2e", long,
			"gloom", "gloom.a.b", "{}", "null",
		} {
			typ := typeOf(t) + name
			w, s := worker(t, b, `"type":`+quote(typ)), submitter(t, a)
			s.ok(`{"action":"submit","id":%s,"type":%s,"body":1}`, quote(name), quote(typ))
			if f := w.job(); f.ID != name || f.Type != typ {
				t.Errorf("%q: the worker got %s", name, f)
			}
			w.ok(`{"action":"respond","body":2}`)
			s.ended(name, "")
			w.close()
			s.close()
		}
		// One name in two spellings is one.
		typ := typeOf(t) + "-é"
		w, s := worker(t, b, `"type":"`+typ[:len(typ)-2]+`\u00e9"`), submitter(t, a)
		s.ok(`{"action":"submit","id":"\u00e9","type":%s,"body":1}`, quote(typ))
		s.refused("id_exists", `{"action":"submit","id":"é","type":%s,"body":1}`, quote(typ))
		w.job()
		w.ok(`{"action":"respond","body":2}`)
		s.ended("é", "")
	})
}

func TestBigBodies(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		w, s := worker(t, b, `"prefetch":3,"type":`+quote(typ)), submitter(t, a)
		r := rand.New(rand.NewChaCha8([32]byte{1}))
		const mib = 1 << 20
		sizes := []int{100_000, 256 << 10, mib - 200, mib - 1, mib, mib + 1, 4 * mib, 16*mib - 200}
		if testing.Short() {
			sizes = []int{256 << 10, mib, 16*mib - 200}
		}
		for _, n := range sizes {
			text := make([]byte, n-2)
			for i := range text {
				text[i] = byte('0' + r.IntN(75))
				if text[i] == '\\' {
					text[i] = '/'
				}
			}
			body := `"` + string(text) + `"`
			want := sha256.Sum256([]byte(body))
			s.ok(`{"action":"submit","id":"big","type":%s,"body":%s}`, quote(typ), body)
			s.ok(`{"action":"submit","id":"small","type":%s,"body":1}`, quote(typ))
			for oks := 0; oks < 2; {
				f := w.next()
				if f.OK {
					oks++
					continue
				}
				if f.Action != "job" || f.ID == "big" && sha256.Sum256(f.Body) != want {
					t.Fatalf("%d bytes: the worker got %d, %s", n, len(f.Body), f)
				}
				w.send(`{"action":"respond","id":%s,"body":%s}`, quote(f.ID), f.Body)
			}
			for range 2 {
				f := s.next()
				if !f.result() || f.ID == "big" && sha256.Sum256(f.Body) != want {
					t.Fatalf("%d bytes: the end is %s", n, f)
				}
			}
		}
	})
}

// More than NATS keeps for a connection that is slow to read is lent bit by bit.
func TestHeavyBurst(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		const n, size = 500, 256 << 10
		body := quote(strings.Repeat("h", size))
		if err := a.ask("POST", "/v1/types/"+typ+"/pause", struct{}{}, nil); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			s.ok(`{"action":"submit","id":"heavy%d","type":%s,"body":%s,"retries":0}`, i, quote(typ), body)
		}
		for range 8 {
			w := worker(t, b, `"prefetch":70,"type":`+quote(typ))
			go func() {
				for f := range w.in {
					if f.Action == "job" && string(f.Body) == body {
						w.write(`{"action":"respond","id":"` + f.ID + `","body":1}`)
					}
				}
			}()
		}
		wanted(t, a, "b", typ)
		if err := a.ask("POST", "/v1/types/"+typ+"/resume", struct{}{}, nil); err != nil {
			t.Fatal(err)
		}
		for range n {
			if f := s.next(); !f.result() {
				t.Fatal(f)
			}
		}
		counts(t, a, typ, api.Ledger{Submitted: n, Answered: n})
	})
}

func TestHeaders(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		header := `{ "traceparent":"00-1-2-01","x":[1, 2.50] ,"pad":"` + strings.Repeat("p", 3900) + `"}`
		s := submitter(t, a)
		w := worker(t, b, `"headers":true,"type":`+quote(typ))
		s.ok(`{"action":"submit","id":"h1","type":%s,"body":1,"headers":%s,"progress":true,"retries":1}`, quote(typ), header)
		if f := w.job(); string(f.Header) != header {
			t.Errorf("headers %s", f)
		}
		w.ok(`{"action":"progress","id":"h1","body":5}`)
		if f := s.next(); string(f.raw) != `{"id":"h1","progress":5}` {
			t.Errorf("progress %s", f)
		}
		w.ok(`{"action":"leave"}`)
		w.ok(`{"action":"fail","reason":"again"}`)
		w2 := worker(t, c, `"type":`+quote(typ)) // did not ask for headers
		if f := w2.job(); f.Header != nil {
			t.Errorf("headers that nobody asked for: %s", f)
		}
		w2.ok(`{"action":"respond","body":2}`)
		if f := s.ended("h1", ""); string(f.raw) != `{"id":"h1","body":2}` {
			t.Errorf("result %s", f)
		}
	})
}

func TestPriority(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		r := rand.New(rand.NewPCG(1, 2))
		type one struct {
			id       string
			priority int
		}
		var jobs []one
		for i := range 60 {
			j := one{fmt.Sprint("p", i), r.IntN(9) - 4}
			jobs = append(jobs, j)
			s.ok(`{"action":"submit","id":"%s","type":%s,"body":1,"priority":%d}`, j.id, quote(typ), j.priority)
		}
		slices.SortStableFunc(jobs, func(x, y one) int { return y.priority - x.priority })
		w := worker(t, b, `"type":`+quote(typ))
		for i, j := range jobs {
			if f := w.job(); f.ID != j.id {
				t.Fatalf("job %d is %s, want %s of priority %d", i, f.ID, j.id, j.priority)
			}
			w.ok(`{"action":"respond","body":1}`)
			s.ended(j.id, "")
		}
	})
}

func TestAge(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		s.ok(`{"action":"submit","id":"young","type":%s,"body":1}`, quote(typ))
		s.ok(`{"action":"submit","id":"old","type":%s,"body":1,"age_ms":60000}`, quote(typ))
		w := worker(t, b, `"type":`+quote(typ))
		for _, id := range []string{"old", "young"} {
			if f := w.job(); f.ID != id {
				t.Fatalf("%s, want %s", f.ID, id)
			}
			w.ok(`{"action":"respond","body":1}`)
			s.ended(id, "")
		}
	})
}

func TestDelay(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"type":`+quote(typ))
		began := time.Now()
		s.ok(`{"action":"submit","id":"late","type":%s,"body":1,"delay_ms":700}`, quote(typ))
		s.ok(`{"action":"submit","id":"now","type":%s,"body":1}`, quote(typ))
		for f := w.job(); ; f = w.job() {
			w.ok(`{"action":"respond","body":1}`)
			if s.ended(f.ID, ""); f.ID == "late" {
				break
			}
		}
		if d := time.Since(began); d < 700*time.Millisecond {
			t.Errorf("a delay of 700 ms was over after %s", d)
		}
	})
}

func TestExpiry(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		s.ok(`{"action":"submit","id":"waits","type":%s,"body":1,"expires_ms":200}`, quote(typ))
		s.ended("waits", "expired")
		w := worker(t, b, `"type":`+quote(typ))
		s.ok(`{"action":"submit","id":"runs","type":%s,"body":1,"expires_ms":1000}`, quote(typ))
		s.ok(`{"action":"submit","id":"fails","type":%s,"body":1,"expires_ms":1000}`, quote(typ))
		w2 := worker(t, b, `"type":`+quote(typ))
		w.job()
		w2.job()
		time.Sleep(1100 * time.Millisecond) // past the deadline
		w.ok(`{"action":"respond","body":1}`)
		s.ended("runs", "")
		w2.ok(`{"action":"fail","reason":"too late"}`)
		s.ended("fails", "expired")
		counts(t, a, typ, api.Ledger{Submitted: 3, Answered: 1, Expired: 2})
	})
}

func TestTimeout(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		w := worker(t, b, `"cancel":true,"type":`+quote(typ))
		s.ok(`{"action":"submit","id":"slow","type":%s,"body":1,"timeout_ms":1500,"retries":1}`, quote(typ))
		w.job()
		w2 := worker(t, c, `"cancel":true,"type":`+quote(typ))
		if f := w.next(); string(f.raw) != `{"action":"cancel","id":"slow"}` {
			t.Errorf("an overdue run: %s", f)
		}
		if f := w2.job(); f.ID != "slow" {
			t.Errorf("the retry is %s", f)
		}
		// The overdue socket gets nothing before it has answered, whoever asks.
		s.ok(`{"action":"submit","id":"next","type":%s,"body":1}`, quote(typ))
		w.quiet(500 * time.Millisecond)
		w.ok(`{"action":"respond","body":"discarded"}`)
		if f := w.job(); f.ID != "next" {
			t.Errorf("after an overdue run: %s", f)
		}
		w.ok(`{"action":"respond","body":"next"}`)
		if f := w2.next(); f.Action != "cancel" {
			t.Errorf("the second overdue run: %s", f)
		}
		for range 2 {
			switch f := s.next(); {
			case f.ID == "next" && f.result():
			case f.ID == "slow" && f.Error == "job_failed" && strings.Contains(f.Reason, "time"):
			default:
				t.Errorf("%s, want the result of next and slow's failure", f)
			}
		}
		w2.ok(`{"action":"fail","reason":"discarded"}`)
		counts(t, a, typ, api.Ledger{Submitted: 2, Answered: 1, Failed: 1})
		w2.ok(`{"action":"ping"}`)
	})
}

func TestRetries(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"type":`+quote(typ))
		s.ok(`{"action":"submit","id":"r","type":%s,"body":1,"retries":2,"backoff_ms":200}`, quote(typ))
		var at []time.Time
		for i := range 3 {
			w.job()
			at = append(at, time.Now())
			if v, err := job(t, a, "r"); err != nil || v.State != "running" || v.Attempts != i+1 {
				t.Errorf("run %d: %+v, %v", i, v, err)
			}
			w.ok(`{"action":"fail","reason":"try %d"}`, i)
		}
		if f := s.ended("r", "job_failed"); !strings.Contains(f.Reason, "try 2") {
			t.Errorf("reason %q, want the last one's", f.Reason)
		}
		if d := at[1].Sub(at[0]); d < 200*time.Millisecond {
			t.Errorf("first retry after %s, backoff 200 ms", d)
		}
		if d := at[2].Sub(at[1]); d < 400*time.Millisecond {
			t.Errorf("second retry after %s, backoff 400 ms", d)
		}
		s.ok(`{"action":"submit","id":"final","type":%s,"body":1,"retries":9}`, quote(typ))
		w.job()
		w.ok(`{"action":"fail","reason":"for good","retry":false}`)
		if f := s.ended("final", "job_failed"); !strings.Contains(f.Reason, "for good") {
			t.Errorf("reason %q", f.Reason)
		}
		s.ok(`{"action":"submit","id":"own","type":%s,"body":1,"retries":1,"backoff_ms":80000000}`, quote(typ))
		w.job()
		began := time.Now()
		w.ok(`{"action":"fail","delay_ms":300}`)
		in(t, a, "own", "delayed")
		w.job()
		if d := time.Since(began); d < 300*time.Millisecond {
			t.Errorf("the worker's delay of 300 ms was over after %s", d)
		}
		w.ok(`{"action":"respond","body":1}`)
		s.ended("own", "")
		counts(t, a, typ, api.Ledger{Submitted: 3, Answered: 1, Failed: 2})
		counts(t, b, typ, api.Ledger{})
	})
}

func TestDead(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"headers":true,"type":`+quote(typ))
		s.ok(`{"action":"submit","id":"d","type":%s,"body":{"k":1},"retries":0,"headers":{"h":1}}`, quote(typ))
		w.job()
		w.ok(`{"action":"fail","reason":"no"}`)
		s.ended("d", "job_failed")
		var dead api.List[api.DeadJob]
		if err := a.ask("GET", "/v1/dead/"+typ, nil, &dead); err != nil || len(dead.Items) != 1 || dead.Items[0].ID != "d" || !strings.Contains(dead.Items[0].Reason, "no") || dead.Items[0].Attempts != 1 {
			t.Errorf("dead letters at home: %+v, %v", dead, err)
		}
		for _, o := range shared.f.brokers[1:] {
			if err := o.ask("GET", "/v1/dead/"+typ, nil, &dead); err == nil && len(dead.Items) > 0 {
				t.Errorf("dead letters at %s: %+v", o.name, dead)
			}
		}
		if err := a.ask("POST", "/v1/dead/"+typ+"/d/retry", struct{}{}, nil); err != nil {
			t.Fatal(err)
		}
		if f := w.job(); f.ID != "d" || string(f.Body) != `{"k":1}` || string(f.Header) != `{"h":1}` {
			t.Errorf("handed in again: %s", f)
		}
		w.ok(`{"action":"respond","body":1}`)
		counts(t, a, typ, api.Ledger{Submitted: 2, Answered: 1, Failed: 1})
	})
}

func TestCancel(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		s, other := submitter(t, a), submitter(t, b)
		s.ok(`{"action":"submit","id":"cw","type":%s,"body":1}`, quote(typ))
		other.refused("unknown_id", `{"action":"cancel","id":"cw"}`)
		s.ok(`{"action":"cancel","id":"cw"}`)
		s.refused("unknown_id", `{"action":"cancel","id":"cw"}`)

		w := worker(t, b, `"cancel":true,"type":`+quote(typ))
		deaf := worker(t, c, `"type":`+quote(typ))
		for _, id := range []string{"cr1", "cr2"} {
			s.ok(`{"action":"submit","id":"%s","type":%s,"body":1,"progress":true}`, id, quote(typ))
		}
		f, g := w.job(), deaf.job()
		other.refused("unknown_id", `{"action":"cancel","id":"%s"}`, f.ID)
		s.ok(`{"action":"cancel","id":"%s"}`, f.ID)
		if n := w.next(); n.Action != "cancel" || n.ID != f.ID {
			t.Errorf("%s, want cancel of %s", n, f.ID)
		}
		s.ok(`{"action":"cancel","id":"%s"}`, g.ID)
		for _, id := range []string{f.ID, g.ID} {
			s.refused("unknown_id", `{"action":"cancel","id":"%s"}`, id)
			s.refused("id_exists", `{"action":"submit","id":"%s","type":%s,"body":1}`, id, quote(typ))
			if v := in(t, a, id, "running"); !v.Unwanted {
				t.Errorf("%+v is wanted", v)
			}
		}
		w.ok(`{"action":"progress","body":"for nobody"}`)
		w.ok(`{"action":"fail","reason":"stopped"}`)
		deaf.ok(`{"action":"respond","body":"discarded"}`)
		counts(t, a, typ, api.Ledger{Submitted: 3, Cancelled: 3})
		// The ids are free again, the places too.
		for _, id := range []string{f.ID, g.ID} {
			s.ok(`{"action":"submit","id":"%s","type":%s,"body":2}`, id, quote(typ))
		}
		w.job()
		deaf.job()
		w.ok(`{"action":"respond","body":3}`)
		deaf.ok(`{"action":"respond","body":3}`)
		for range 2 {
			if n := s.next(); string(n.Body) != "3" {
				t.Errorf("%s, want a result", n)
			}
		}
	})
}

// A cancel and an answer that meet: exactly one of them wins.
func TestCancelMeetsAnswer(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"type":`+quote(typ))
		cancelled, answered := uint64(0), uint64(0)
		for i := range 60 {
			id := fmt.Sprint("m", i)
			s.ok(`{"action":"submit","id":"%s","type":%s,"body":1}`, id, quote(typ))
			w.job()
			w.send(`{"action":"respond","body":%d}`, i)
			time.Sleep(time.Duration(i*10) * time.Microsecond)
			s.send(`{"action":"cancel","id":"%s"}`, id)
			switch f := s.next(); {
			case f.OK:
				cancelled++
			case f.result() && f.ID == id:
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
		counts(t, a, typ, api.Ledger{Submitted: 60, Cancelled: cancelled, Answered: answered})
		s.quiet(50 * time.Millisecond)
	})
}

func TestProgress(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"prefetch":2,"type":`+quote(typ))
		s.ok(`{"action":"submit","id":"asks","type":%s,"body":1,"progress":true}`, quote(typ))
		s.ok(`{"action":"submit","id":"not","type":%s,"body":1}`, quote(typ))
		w.job()
		w.job()
		for i := range 20 {
			w.ok(`{"action":"progress","id":"not","body":%d}`, i)
			w.ok(`{"action":"progress","id":"asks","body":{ "n":%d}}`, i)
		}
		w.refused("unknown_id", `{"action":"progress","id":"none","body":1}`)
		w.ok(`{"action":"respond","id":"not","body":1}`)
		w.ok(`{"action":"respond","id":"asks","body":1}`)
		last, ends := -1, 0
		for ends < 2 {
			f := s.next()
			if f.result() {
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

func TestPrefetch(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"prefetch":5,"type":`+quote(typ))
		for i := range 12 {
			s.ok(`{"action":"submit","id":"f%d","type":%s,"body":%d}`, i, quote(typ), i)
		}
		var out []string
		for range 5 {
			out = append(out, w.job().ID)
		}
		w.quiet(300 * time.Millisecond)
		w.refused("unknown_id", `{"action":"respond","id":"f11","body":1}`)
		w.refused("missing_field", `{"action":"respond","body":1}`)
		for n := 12; n > 0; n-- {
			id := out[len(out)-1] // the last one first
			out = out[:len(out)-1]
			w.ok(`{"action":"respond","id":"%s","body":1}`, id)
			s.ended(id, "")
			if n > 5 {
				out = append(out, w.job().ID)
			}
		}
		counts(t, a, typ, api.Ledger{Submitted: 12, Answered: 12})
	})
}

func TestRelease(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"type":`+quote(typ))
		s.ok(`{"action":"submit","id":"rel","type":%s,"body":1,"retries":0}`, quote(typ))
		w.job()
		began := time.Now()
		w.ok(`{"action":"release","delay_ms":400}`)
		w.job()
		if d := time.Since(began); d < 400*time.Millisecond {
			t.Errorf("released for 400 ms, back after %s", d)
		}
		w.ok(`{"action":"leave"}`)
		w.ok(`{"action":"release"}`)
		if v := in(t, a, "rel", "queued"); v.Attempts != 0 || v.Releases != 2 {
			t.Errorf("after two releases: attempts %d, releases %d", v.Attempts, v.Releases)
		}
		w2 := worker(t, c, `"type":`+quote(typ))
		w2.job()
		w2.ok(`{"action":"respond","body":1}`)
		s.ended("rel", "")
		w.ok(`{"action":"ping"}`)
	})
}

func TestGroups(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		if err := a.ask("PUT", "/v1/groups/"+typ+"-g", map[string]int{"concurrency": 1}, nil); err != nil {
			t.Fatal(err)
		}
		s, w := submitter(t, a), worker(t, b, `"prefetch":10,"type":`+quote(typ))
		for i := range 3 {
			s.ok(`{"action":"submit","id":"g%d","type":%s,"body":1,"groups":[%s]}`, i, quote(typ), quote(typ+"-g"))
		}
		s.ok(`{"action":"submit","id":"free","type":%s,"body":1}`, quote(typ))
		first, second := w.job().ID, w.job().ID
		if first != "g0" || second != "free" {
			t.Errorf("%s and %s run, want g0 and free", first, second)
		}
		w.quiet(300 * time.Millisecond)
		v := in(t, a, "g1", "queued")
		if v.HeldBy == nil || v.HeldBy.Group != typ+"-g" {
			t.Errorf("g1: %+v", v)
		}
		w.ok(`{"action":"respond","id":"free","body":1}`)
		s.ended("free", "")
		for i := range 3 {
			id := fmt.Sprint("g", i)
			w.ok(`{"action":"respond","id":"%s","body":1}`, id)
			s.ended(id, "")
			if i < 2 {
				if f := w.job(); f.ID != fmt.Sprint("g", i+1) {
					t.Errorf("%s after %s", f, id)
				}
				w.quiet(50 * time.Millisecond)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		if err := a.ask("PUT", "/v1/types/"+typ+"/limits", map[string]int{"concurrency": 2, "rate": 0}, nil); err != nil {
			t.Fatal(err)
		}
		s := submitter(t, a)
		w, w2 := worker(t, b, `"prefetch":10,"type":`+quote(typ)), worker(t, c, `"prefetch":10,"type":`+quote(typ))
		for i := range 10 {
			s.ok(`{"action":"submit","id":"l%d","type":%s,"body":1}`, i, quote(typ))
		}
		// The limit of home holds over all borrowers.
		both := []*peer{w, w2}
		for n := 10; n > 0; {
			time.Sleep(100 * time.Millisecond)
			out := map[string]*peer{}
			for _, p := range both {
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
		counts(t, a, typ, api.Ledger{Submitted: 10, Answered: 10})

		// That of a borrower holds there.
		if err := a.ask("PUT", "/v1/types/"+typ+"/limits", map[string]int{"concurrency": 0, "rate": 0}, nil); err != nil {
			t.Fatal(err)
		}
		w2.close()
		if err := b.ask("PUT", "/v1/types/"+typ+"/limits", map[string]int{"concurrency": 3, "rate": 0}, nil); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if f := s.next(); !f.result() {
				t.Fatal(f)
			}
		}
		for i := range 8 {
			s.ok(`{"action":"submit","id":"m%d","type":%s,"body":1}`, i, quote(typ))
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
		counts(t, a, typ, api.Ledger{Submitted: 18, Answered: 18})
	})
}

func TestPause(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		for _, p := range []*broker{b, a} { // at the borrower, at home
			if err := p.ask("POST", "/v1/types/"+typ+"/pause", struct{}{}, nil); err != nil {
				t.Fatal(err)
			}
			s, w := submitter(t, a), worker(t, b, `"type":`+quote(typ))
			s.ok(`{"action":"submit","id":"paused","type":%s,"body":1,"retries":0}`, quote(typ))
			w.quiet(400 * time.Millisecond)
			if v := in(t, a, "paused", "queued"); v.Attempts != 0 {
				t.Errorf("paused at %s: %+v", p.name, v)
			}
			if err := p.ask("POST", "/v1/types/"+typ+"/resume", struct{}{}, nil); err != nil {
				t.Fatal(err)
			}
			w.job()
			w.ok(`{"action":"respond","body":1}`)
			s.ended("paused", "")
			w.close()
		}
	})
}

func TestKeep(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		w, s := worker(t, b, `"type":`+quote(typ)), submitter(t, a)
		s.ok(`{"action":"submit","id":"kept","type":%s,"body":1,"keep_ms":60000}`, quote(typ))
		s.ok(`{"action":"submit","id":"live","type":%s,"body":1,"keep_ms":60000}`, quote(typ))
		w.job()
		s.close()
		elsewhere := submitter(t, b)
		elsewhere.refused("unknown_id", `{"action":"attach","id":"kept"}`)
		w.ok(`{"action":"respond","body":"outcome"}`)
		if v := in(t, a, "kept", "ended"); v.Outcome != "answered" {
			t.Errorf("%+v", v)
		}
		s = submitter(t, a)
		if f := s.ok(`{"action":"attach","id":"kept"}`); f.State != "ended" {
			t.Errorf("attached: %s", f)
		}
		if f := s.ended("kept", ""); string(f.Body) != `"outcome"` {
			t.Errorf("outcome %s", f)
		}
		w.job()
		if f := s.ok(`{"action":"attach","id":"live","progress":true}`); f.State != "running" {
			t.Errorf("attached: %s", f)
		}
		w.ok(`{"action":"progress","body":7}`)
		if f := s.next(); string(f.raw) != `{"id":"live","progress":7}` {
			t.Errorf("progress after attach: %s", f)
		}
		w.ok(`{"action":"respond","body":2}`)
		s.ended("live", "")
	})
}

func TestDetach(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		s.ok(`{"action":"submit","id":"det","type":%s,"body":1,"detach":true}`, quote(typ))
		s.close()
		w := worker(t, b, `"cancel":true,"type":`+quote(typ))
		w.job()
		w.ok(`{"action":"respond","body":1}`)
		s = submitter(t, a)
		s.ok(`{"action":"submit","id":"det2","type":%s,"body":1,"detach":true}`, quote(typ))
		w.job()
		another := submitter(t, a)
		another.ok(`{"action":"cancel","id":"det2"}`)
		if f := w.next(); f.Action != "cancel" || f.ID != "det2" {
			t.Errorf("%s, want cancel", f)
		}
		w.ok(`{"action":"respond","body":1}`)
		counts(t, a, typ, api.Ledger{Submitted: 2, Answered: 1, Cancelled: 1})
	})
}

func TestSubmitterGoes(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"cancel":true,"type":`+quote(typ))
		for i := range 3 {
			s.ok(`{"action":"submit","id":"gone%d","type":%s,"body":1}`, i, quote(typ))
		}
		f := w.job()
		s.close()
		if n := w.next(); n.Action != "cancel" || n.ID != f.ID {
			t.Errorf("%s, want cancel of %s", n, f.ID)
		}
		counts(t, a, typ, api.Ledger{Submitted: 3, Running: 1, Discarded: 2})
		w.ok(`{"action":"respond","body":1}`)
		counts(t, a, typ, api.Ledger{Submitted: 3, Discarded: 3})
		w.quiet(50 * time.Millisecond)
	})
}

func TestChange(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		for i := range 3 {
			s.ok(`{"action":"submit","id":"c%d","type":%s,"body":1}`, i, quote(typ))
		}
		s.ok(`{"action":"submit","id":"c3","type":%s,"body":1,"delay_ms":3600000}`, quote(typ))
		s.ok(`{"action":"change","id":"c2","priority":5}`)
		s.ok(`{"action":"change","id":"c3","delay_ms":0,"priority":9}`)
		submitter(t, b).refused("unknown_id", `{"action":"change","id":"c2","priority":1}`)
		w := worker(t, b, `"type":`+quote(typ))
		for i, id := range []string{"c3", "c2", "c0", "c1"} {
			if f := w.job(); f.ID != id {
				t.Errorf("job %d is %s, want %s", i, f.ID, id)
			}
			s.refused("invalid_state", `{"action":"change","id":"%s","priority":1}`, id)
			w.ok(`{"action":"respond","body":1}`)
			s.ended(id, "")
		}
	})
}

func TestPatterns(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		w := worker(t, b, fmt.Sprintf(`"types":[%s],"except":[%s],"prefetch":10`, quote(typ+".*"), quote(typ+".no*")))
		s.ok(`{"action":"submit","id":"no","type":%s,"body":1,"priority":9}`, quote(typ+".not"))
		for i := range 5 { // types that come into being after the join
			id := fmt.Sprint("w", i)
			s.ok(`{"action":"submit","id":"%s","type":%s,"body":1}`, id, quote(fmt.Sprint(typ, ".", i)))
			if f := w.job(); f.ID != id || f.Type != fmt.Sprint(typ, ".", i) {
				t.Errorf("%s, want %s", f, id)
			}
			w.ok(`{"action":"respond","id":"%s","body":1}`, id)
			s.ended(id, "")
		}
		w.quiet(200 * time.Millisecond)
		w2 := worker(t, c, fmt.Sprintf(`"types":[%s,"*not"]`, quote(typ+".none")))
		if f := w2.job(); f.ID != "no" {
			t.Errorf("%s, want no", f)
		}
		w2.ok(`{"action":"respond","body":1}`)
		s.ended("no", "")
	})
}

func TestBatch(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
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
			if !f.result() || seen[f.ID] || string(f.Body) != fmt.Sprintf(`{"n":%s}`, strings.TrimPrefix(f.ID, "b")) {
				t.Fatalf("%s, seen %t", f, seen[f.ID])
			}
			seen[f.ID] = true
		}
		counts(t, a, typ, api.Ledger{Submitted: n, Answered: n})
		counts(t, b, typ, api.Ledger{})
	})
}

// One id at two homes: a connection never has two of one id, and each home gets its own answer.
func TestSharedID(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		w := worker(t, b, `"prefetch":10,"type":`+quote(typ))
		homes := []*broker{a, c, b}
		var ss []*peer
		for i, home := range homes {
			s := submitter(t, home)
			ss = append(ss, s)
			s.ok(`{"action":"submit","id":"same","type":%s,"body":"%s"}`, quote(typ), home.name)
			s.ok(`{"action":"submit","id":"own%d","type":%s,"body":1}`, i, quote(typ))
		}
		out := map[string]string{}
		take := func(f frame) {
			if _, ok := out[f.ID]; ok {
				t.Fatalf("two of the id %s are out on one connection", f.ID)
			}
			out[f.ID] = string(f.Body)
		}
		for len(out) < 4 { // one of each id: one whose id is out holds nobody else back
			take(w.job())
		}
		for n := 6; n > 0; n-- {
			if len(out) == 0 {
				take(w.job())
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
				if !f.result() || f.ID == "same" && string(f.Body) != quote(homes[i].name) {
					t.Errorf("home %s got %s", homes[i].name, f)
				}
			}
		}
	})
}

// A cancel of one home's job leaves the other home's of that id alone.
func TestSharedIDCancelled(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		var ws []*peer
		for range 2 {
			ws = append(ws, worker(t, b, `"cancel":true,"prefetch":3,"type":`+quote(typ)))
		}
		sa, sc := submitter(t, a), submitter(t, c)
		sa.ok(`{"action":"submit","id":"twin","type":%s,"body":"a"}`, quote(typ))
		sc.ok(`{"action":"submit","id":"twin","type":%s,"body":"c"}`, quote(typ))
		of := map[string]*peer{}
		for _, w := range ws {
			of[string(w.job().Body)] = w
		}
		if len(of) != 2 {
			t.Fatalf("out are %v", of)
		}
		sa.ok(`{"action":"cancel","id":"twin"}`)
		if f := of[`"a"`].next(); f.Action != "cancel" {
			t.Errorf("%s, want cancel", f)
		}
		of[`"c"`].quiet(100 * time.Millisecond)
		for body, w := range of {
			w.ok(`{"action":"respond","id":"twin","body":%s}`, body)
		}
		sc.ended("twin", "")
		counts(t, a, typ, api.Ledger{Submitted: 1, Cancelled: 1})
		counts(t, c, typ, api.Ledger{Submitted: 1, Answered: 1})
	})
}

func TestWorkerLost(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		s.ok(`{"action":"submit","id":"lost","type":%s,"body":1}`, quote(typ))
		s.ok(`{"action":"submit","id":"after","type":%s,"body":1}`, quote(typ))
		for i := range 4 {
			at := []*broker{b, c}[i%2]
			w := worker(t, at, `"type":`+quote(typ))
			if f := w.job(); f.ID != "lost" { // ahead of its equals
				t.Fatalf("run %d is of %s", i, f.ID)
			}
			if v := in(t, a, "lost", "running"); v.Attempts != i+1 || v.Worker == nil || v.Worker.Broker != at.name {
				t.Errorf("run %d at %s: %+v, worker %+v", i, at.name, v, v.Worker)
			}
			w.close()
			if i < 3 {
				in(t, a, "lost", "queued")
			}
		}
		s.ended("lost", "job_failed")
		w := worker(t, b, `"type":`+quote(typ))
		w.job()
		w.ok(`{"action":"respond","body":1}`)
		s.ended("after", "")
	})
}

// A worker that is closed for what it says ends its job: the next one would say the same.
func TestWorkerSendsGarbage(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s := submitter(t, a)
		for i, bad := range []func(*peer){
			func(p *peer) { p.send(`{"action":"respond","body":`) },
			func(p *peer) { p.c.Write([]byte{0x7f, 0xff, 0xff, 0xff}) },
		} {
			w := worker(t, b, `"type":`+quote(typ))
			s.ok(`{"action":"submit","id":"bad%d","type":%s,"body":1}`, i, quote(typ))
			w.job()
			bad(w)
			s.ended(fmt.Sprint("bad", i), "job_failed")
			w.gone()
		}
		counts(t, a, typ, api.Ledger{Submitted: 2, Failed: 2})
	})
}

func TestLocalFirst(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		remote, local := worker(t, b, `"prefetch":100,"type":`+quote(typ)), worker(t, a, `"type":`+quote(typ))
		wanted(t, a, "b", typ)
		s := submitter(t, a)
		for i := range 200 {
			s.ok(`{"action":"submit","id":"x","type":%s,"body":%d}`, quote(typ), i)
			local.job()
			local.ok(`{"action":"respond","body":1}`)
			s.ended("x", "")
		}
		if n := len(remote.in); n > 0 {
			t.Errorf("%d jobs were lent while the worker at home was idle", n)
		}
		// With that one at work, the next goes away at once.
		s.ok(`{"action":"submit","id":"x","type":%s,"body":1}`, quote(typ))
		local.job()
		for i := range 3 {
			s.ok(`{"action":"submit","id":"y%d","type":%s,"body":1}`, i, quote(typ))
		}
		for n := 0; n < 3; {
			if f := remote.next(); f.Action == "job" {
				n++
				remote.send(`{"action":"respond","id":"%s","body":1}`, f.ID)
			}
		}
		for range 3 {
			if f := s.next(); !f.result() {
				t.Errorf("%s, want a result", f)
			}
		}
	})
}

func TestIDIsFreeWithItsEnd(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"prefetch":3,"type":`+quote(typ))
		for i := range 200 {
			s.ok(`{"action":"submit","id":"again","type":%s,"body":%d}`, quote(typ), i)
			if f := w.job(); string(f.Body) != fmt.Sprint(i) {
				t.Fatalf("job %d is %s", i, f)
			}
			w.send(`{"action":"respond","id":"again","body":%d}`, i)
			if f := s.ended("again", ""); string(f.Body) != fmt.Sprint(i) {
				t.Fatalf("answer %d is %s", i, f)
			}
			if f := w.next(); !f.OK {
				t.Fatal(f)
			}
		}
	})
}

func TestRejoin(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"type":`+quote(typ+"1"))
		s.ok(`{"action":"submit","id":"one","type":%s,"body":1}`, quote(typ+"1"))
		w.job()
		w.ok(`{"action":"join","type":%s}`, quote(typ+"2"))
		s.ok(`{"action":"submit","id":"more","type":%s,"body":1}`, quote(typ+"1"))
		s.ok(`{"action":"submit","id":"two","type":%s,"body":2}`, quote(typ+"2"))
		w.quiet(100 * time.Millisecond)
		w.ok(`{"action":"respond","body":1}`)
		s.ended("one", "")
		if f := w.job(); f.ID != "two" {
			t.Errorf("%s, want two", f)
		}
		w.ok(`{"action":"respond","body":1}`)
		s.ended("two", "")
		in(t, a, "more", "queued")
	})
}

func TestLeave(t *testing.T) {
	calm(t, func(t *trial, a, b, c *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"prefetch":3,"type":`+quote(typ))
		for i := range 6 {
			s.ok(`{"action":"submit","id":"v%d","type":%s,"body":1}`, i, quote(typ))
		}
		ids := []string{w.job().ID, w.job().ID, w.job().ID}
		w.ok(`{"action":"leave"}`)
		for _, id := range ids {
			w.ok(`{"action":"respond","id":"%s","body":1}`, id)
			s.ended(id, "")
		}
		w.quiet(200 * time.Millisecond)
		w.close()
		for i := 3; i < 6; i++ {
			if v := in(t, a, fmt.Sprint("v", i), "queued"); v.Attempts != 0 {
				t.Errorf("%+v never ran", v)
			}
		}
		w = worker(t, c, `"prefetch":3,"type":`+quote(typ))
		for range 3 {
			id := w.job().ID
			w.send(`{"action":"respond","id":"%s","body":1}`, id)
		}
		for range 3 {
			s.next()
		}
		counts(t, a, typ, api.Ledger{Submitted: 6, Answered: 6})
	})
}

func TestFair(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		if err := a.ask("PUT", "/v1/types/"+typ, map[string]bool{"fair": true}, nil); err != nil {
			t.Fatal(err)
		}
		s := submitter(t, a)
		for i := range 30 {
			s.ok(`{"action":"submit","id":"many%d","type":%s,"body":1,"groups":["many"]}`, i, quote(typ))
		}
		for i := range 3 {
			s.ok(`{"action":"submit","id":"few%d","type":%s,"body":1,"groups":["few"]}`, i, quote(typ))
		}
		w := worker(t, b, `"type":`+quote(typ))
		few := 0
		for i := range 33 {
			f := w.job()
			if strings.HasPrefix(f.ID, "few") {
				if few++; i > 2*few+1 {
					t.Errorf("%s is only number %d", f.ID, i)
				}
			}
			w.ok(`{"action":"respond","body":1}`)
			s.ended(f.ID, "")
		}
	})
}

// Jobs that are handed in over HTTP are lent as well.
func TestHTTP(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		w := worker(t, b, `"type":`+quote(typ))
		done := make(chan error, 1)
		var answer string
		go func() { done <- a.ask("POST", "/v1/jobs?wait=40s&type="+typ, json.RawMessage(`{"to":"you"}`), &answer) }()
		if f := w.job(); string(f.Body) != `{"to":"you"}` {
			t.Errorf("%s", f)
		}
		w.ok(`{"action":"respond","body":{"sent":true}}`)
		if err := <-done; err != nil || !strings.Contains(answer, `{"sent":true}`) {
			t.Errorf("%s, %v", answer, err)
		}
		s := submitter(t, a)
		s.ok(`{"action":"submit","id":"h","type":%s,"body":1}`, quote(typ))
		w.job()
		err := a.ask("DELETE", "/v1/jobs/h", nil, nil)
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Status != http.StatusConflict {
			t.Errorf("DELETE of a running job: %v", err)
		}
		if _, err := job(t, b, "h"); err == nil {
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
		w.ok(`{"action":"respond","body":1}`)
		s.ended("h", "")
	})
}

// What the fleet's numbers tell while one job is away, and after.
func TestNumbers(t *testing.T) {
	calm(t, func(t *trial, a, b, _ *broker) {
		typ := typeOf(t)
		s, w := submitter(t, a), worker(t, b, `"type":`+quote(typ))
		s.ok(`{"action":"submit","id":"n","type":%s,"body":1}`, quote(typ))
		w.job()
		v, err := a.fleet()
		if err != nil || !v.Member || v.Alone || v.Name != "a" || v.NATS == nil || !v.NATS.Connected || v.Lent < 1 || v.Lends < 1 || len(v.Brokers) != 2 {
			t.Errorf("at home %+v, %v", v, err)
		}
		v, err = b.fleet()
		if err != nil || v.Borrowed < 1 || v.Borrows < 1 {
			t.Errorf("at the borrower %+v, %v", v, err)
		}
		var text string
		if err := a.ask("GET", "/metrics", nil, &text); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"gloom_fleet_connected 1", "gloom_fleet_peers", "gloom_fleet_wants", "gloom_fleet_lent ", "gloom_fleet_borrowed ", "gloom_fleet_lends_total",
			"gloom_fleet_borrows_total", "gloom_fleet_returned_total", "gloom_fleet_lost_total", "gloom_fleet_late_total", "gloom_fleet_round_trip_seconds",
			"gloom_fleet_batch_items", "gloom_fleet_messages_total", "gloom_fleet_bytes_total", "gloom_fleet_gaps_total", "gloom_fleet_garbage_total",
		} {
			if !bytes.Contains([]byte(text), []byte("\n"+name)) {
				t.Errorf("/metrics has no %q", name)
			}
		}
		w.ok(`{"action":"respond","body":1}`)
		s.ended("n", "")
	})
}
