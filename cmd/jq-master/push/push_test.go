package push

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/pack"
)

const testTimeout = 45 * time.Second

func handout(t *testing.T) *job.Handout {
	argument, fault := pack.FromJSON([]byte(`{"to":"x"}`))
	if fault != nil {
		t.Fatal(fault)
	}
	return &job.Handout{Job: &job.Job{ID: job.NewID(), Attributes: job.Attributes{Name: "mail", Argument: argument, Timeout: 30_000}, Attempt: 2}, Deadline: 1767225600123}
}

// pushJob pushes a job to a worker and waits for the outcome.
func pushJob(t *testing.T, c *Client, w *job.Worker, h *job.Handout) master.Answer {
	t.Helper()
	answers := make(chan master.Answer, 2)
	c.Push(w, h, func(a master.Answer) { answers <- a })
	select {
	case a := <-answers:
		return a
	case <-time.After(testTimeout):
		t.Fatal("nothing has come of a push")
	}
	panic("not reached")
}

// TestPushHasAllAttributes: a worker gets a job with all its attributes.
func TestPushHasAllAttributes(t *testing.T) {
	h := handout(t)
	var got map[string]any
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := msgpack.Unmarshal(body, &got); err != nil {
			t.Error(err)
		}
		got["request"] = r.Method + " " + r.RequestURI + " " + r.Header.Get("Content-Type") + " " + r.Header.Get("Authorization")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer srv.Close()
	if a := pushJob(t, New(nil), &job.Worker{URL: srv.URL + "/a%20b/./%2Fc/", Token: "s3cret"}, h); a.Kind != master.AnswerTaken {
		t.Fatalf("got %+v", a)
	}
	want := map[string]any{
		"id": h.ID.String(), "job_id": h.ID.String(), "name": "mail", "timeout": int8(30), "attempt": int8(2), "deadline": "2026-01-01T00:00:00.123Z",
		"request": "POST /a%20b/./%2Fc/worker-job application/msgpack Bearer s3cret",
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %#v, want %#v", k, got[k], v)
		}
	}
	if m, ok := got["argument"].(map[string]any); !ok || m["to"] != "x" {
		t.Errorf("argument is %v", got["argument"])
	}
}

// TestAnswersAreUnderstood: each answer of a worker is understood.
func TestAnswersAreUnderstood(t *testing.T) {
	var redirectedCount atomic.Int32
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   master.Answer
	}{
		{"200", func(w http.ResponseWriter, _ *http.Request) {}, master.Answer{Kind: master.AnswerTaken}},
		{"204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, master.Answer{Kind: master.AnswerTaken}},
		{"hints, then 404", func(w http.ResponseWriter, _ *http.Request) {
			for _, code := range []int{100, 103, 102, 100} {
				w.Header().Set("Link", strings.Repeat("x", 2000))
				w.WriteHeader(code)
			}
			w.WriteHeader(404)
		}, master.Answer{Kind: master.AnswerUnknownName, Reason: "the worker answered 404 Not Found"}},
		{"404", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, master.Answer{Kind: master.AnswerUnknownName, Reason: "the worker answered 404 Not Found"}},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }, master.Answer{Kind: master.AnswerBusy, RetryAfter: 7 * time.Second, Reason: "the worker answered 429 Too Many Requests"}},
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, master.Answer{Kind: master.AnswerBusy, Reason: "the worker answered 503 Service Unavailable"}},
		{"503 for long", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
		}, master.Answer{Kind: master.AnswerBusy, RetryAfter: time.Minute, Reason: "the worker answered 503 Service Unavailable"}},
		{"400", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no\x00thing\n", 400) }, master.Answer{Kind: master.AnswerRefused, Reason: "the worker answered 400 Bad Request: no thing"}},
		{"401", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, master.Answer{Kind: master.AnswerRefused, Reason: "the worker answered 401 Unauthorized"}},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, master.Answer{Kind: master.AnswerBroken, Reason: "the worker answered 500 Internal Server Error"}},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			if redirectedCount.Add(1) > 1 {
				t.Error("a redirect is followed")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, master.Answer{Kind: master.AnswerRefused, Reason: "the worker answered 307 Temporary Redirect"}},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, master.Answer{Kind: master.AnswerTaken, Reason: "the connection was cut off"}},
		{"refused, then cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(503)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, master.Answer{Kind: master.AnswerBusy, Reason: "the worker answered 503 Service Unavailable"}},
		{"refused, then silent", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(404)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, master.Answer{Kind: master.AnswerUnknownName, Reason: "the worker answered 404 Not Found"}},
		{"a long answer", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) }, master.Answer{Kind: master.AnswerTaken}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(c.answer)
			defer srv.Close()
			if got := pushJob(t, New(nil), &job.Worker{URL: srv.URL}, handout(t)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestSilentWorkerHasTakenJob: a worker that reads a request and does not answer has taken the job;
// a worker that cannot be reached has not.
func TestSilentWorkerHasTakenJob(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	jobIDs := make(chan string, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = nc.Close() }) // otherwise the garbage collector may close it
		r, err := http.ReadRequest(bufio.NewReader(nc))
		if err == nil {
			jobIDs <- r.URL.Path
		}
	}()
	a := pushJob(t, New(nil), &job.Worker{URL: "http://" + ln.Addr().String()}, handout(t))
	if a.Kind != master.AnswerTaken || a.Reason != "no answer within 5s" || <-jobIDs != "/worker-job" {
		t.Errorf("silence: %+v", a)
	}
	_ = ln.Close()
	if a := pushJob(t, New(nil), &job.Worker{URL: "http://" + ln.Addr().String()}, handout(t)); a.Kind != master.AnswerUnreachable || !strings.Contains(a.Reason, "refused") {
		t.Errorf("nobody there: %+v", a)
	}
	if a := pushJob(t, New(nil), &job.Worker{URL: "https://" + startSilentServer(t)}, handout(t)); a.Kind != master.AnswerUnreachable {
		t.Errorf("no TLS: %+v", a)
	}
}

// TestAnswerBeforeRequestIsRead: the answer of a worker that does not read the job is understood,
// even if the worker closed the connection before the whole job was written.
func TestAnswerBeforeRequestIsRead(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(nc, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n")
			_ = nc.Close()
		}
	}()
	c, h := New(nil), handout(t)
	h.Argument = make([]byte, 8<<20)
	for range 10 {
		if a := pushJob(t, c, &job.Worker{URL: "http://" + ln.Addr().String()}, h); a.Kind != master.AnswerBusy {
			t.Fatalf("%+v", a)
		}
	}
}

// TestConnectionReuse: connections are reused, except connections that the worker has closed.
func TestConnectionReuse(t *testing.T) {
	var requestCount, connCount atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requestCount.Add(1) }))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connCount.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	c, w := New(nil), &job.Worker{URL: srv.URL}
	for i := int32(1); i <= 6; i++ {
		if a := pushJob(t, c, w, handout(t)); a != (master.Answer{Kind: master.AnswerTaken}) || requestCount.Load() != i {
			t.Fatalf("push %d: %+v, %d came", i, a, requestCount.Load())
		}
		if i%3 == 0 {
			srv.CloseClientConnections()
		}
	}
	if n := connCount.Load(); n != 2 {
		t.Errorf("%d connections were opened, want 2", n)
	}
}

// TestHTTPS: a worker with a certificate of an unknown authority gets nothing.
func TestHTTPS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was sent") }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer srv.Close()
	if a := pushJob(t, New(nil), &job.Worker{URL: srv.URL}, handout(t)); a.Kind != master.AnswerUnreachable || !strings.Contains(a.Reason, "certificate") {
		t.Errorf("got %+v", a)
	}
}

// startSilentServer returns the URL of a server that reads each request and then closes the
// connection.
func startSilentServer(t *testing.T) string {
	srv := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// TestOnlyAllowedAddressesAreDialled: only allowed addresses are dialled.
func TestOnlyAllowedAddressesAreDialled(t *testing.T) {
	client := New([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")})
	for _, c := range []struct {
		url, host, text string
	}{
		{"http://127.0.0.1:80", "", ""}, {"https://[::1]:80/x", "", ""}, {"http://[::ffff:127.0.0.1]", "", ""}, {"http://localhost:1", "", ""},
		{"http://192.0.2.1", "192.0.2.1", ""}, {"http://192.0.2.1", "192.0.2.2", "neither"}, {"http://10.1.2.3:80", "", ""}, {"http://10.2.2.3:80", "", "neither"},
		{"http://[fe80::1]", "", "neither"}, {"http://0.0.0.0", "", "neither"}, {"http://169.254.169.254/latest", "", "neither"},
		{"ftp://127.0.0.1", "", "http or https"}, {"127.0.0.1:80", "", "http or https"}, {"http://", "", "http or https"}, {"http://a b", "", "http or https"}, {"/x", "", "http or https"},
		{"http://u:p@127.0.0.1", "", "no user"}, {"http://127.0.0.1/?a", "", "no user"}, {"http://127.0.0.1/#a", "", "no user"}, {"http://127.0.0.1:99999", "", "port from 1"}, {"http://127.0.0.1:0", "", "port from 1"},
	} {
		fault := client.Check(c.url, c.host)
		switch {
		case c.text == "" && fault != nil:
			t.Errorf("%s: %v", c.url, fault)
		case c.text != "" && (fault == nil || fault.Code != job.InvalidValue || fault.Field != "url" || !strings.Contains(fault.Reason, c.text)):
			t.Errorf("%s: %v, want %q", c.url, fault, c.text)
		}
	}
	// A URL with a host name is accepted, but its address is checked when it is dialled.
	a := pushJob(t, client, &job.Worker{URL: "http://192.0.2.1:80"}, handout(t))
	if a.Kind != master.AnswerUnreachable || !strings.Contains(a.Reason, "--worker-allow") {
		t.Errorf("a forbidden address: %+v", a)
	}
}

// TestRetryAfter: Retry-After may have seconds or a date, and counts up to a minute.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "x": 0, "-1": 0, "0": 0, "1": time.Second, "0.5": time.Second / 2, "1e9": time.Minute, "NaN": 0,
		"Thu, 01 Jan 2026 00:00:09 GMT": 9 * time.Second, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

func BenchmarkPush(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) }))
	defer srv.Close()
	c := New(nil)
	w := &job.Worker{URL: srv.URL}
	h := &job.Handout{Job: &job.Job{ID: job.NewID(), Attributes: job.Attributes{Name: "mail", Argument: []byte{0x80}, Timeout: 30_000}, Attempt: 1}, Deadline: 1}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if a := c.push(w, h); a.Kind != master.AnswerTaken {
				b.Error(a)
			}
		}
	})
}
