package runner

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
)

// startServer serves requests until the test ends.
func startServer(t testing.TB, f http.HandlerFunc) (url string) {
	s := httptest.NewServer(f)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func httpHandler(url string, o job.Options) *job.Handler {
	return handler(job.Source{Lang: job.HTTP, Body: url, Options: o})
}

func TestHTTPRequestCarriesJob(t *testing.T) {
	r := newRunner(t, nil)
	var mu sync.Mutex
	var got []string
	url := startServer(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprintf("%s %s %s %s %s %q", q.Method, q.URL, q.Header.Get("job-id"), q.Header.Get("job-type"), q.Header.Get("job-try"), body))
		fmt.Fprintf(w, "J: u|1\nbody\nJ: bad\n of it")
	})
	h := httpHandler(url+"/a?b=c", job.Options{})
	if s := texts(run(t, r, batch(h, "x", "y\x00\xff"))); s != "200 body\n of it [u|1] bad=1; 200 body\n of it [u|1] bad=1" {
		t.Errorf("outcomes %q", s)
	}
	h.Method = "PUT"
	runOne(t, r, h, "")
	want := `POST /a?b=c id-0 t 1 "x\n"; POST /a?b=c id-1 t 2 "y\x00\xff\n"; PUT /a?b=c id-0 t 1 "\n"`
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("requests\n%s, want\n%s", s, want)
	}
}

func TestHTTPReplyDecidesOutcome(t *testing.T) {
	r := newRunner(t, func(o *Options) { o.RetryFor, o.MaxOutput, o.MaxLines, o.MaxLineBytes = time.Hour, 10_000, 5, 100 })
	type reply struct {
		status int
		header string
		body   string
	}
	for want, c := range map[string]reply{
		"204":                    {204, "", ""},
		"404 gone":               {404, "", "gone"},
		"302":                    {302, "Location: /elsewhere", ""},
		"503 busy after=7s":      {503, "Retry-After: 7", "busy"},
		"503 at once":            {503, "Retry-After: 0", ""},
		"503 after=1h0m0s":       {503, "Retry-After: Fri, 31 Dec 2100 23:59:59 GMT", ""},
		"500 at once":            {500, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT", ""},
		"500":                    {500, "Retry-After: soon", ""},
		"408 again":              {408, "", ""},
		"425 again":              {425, "", ""},
		"429 again x after=2m0s": {429, "Retry-After: 120", "x"},
		"777":                    {777, "", ""},
		"200 J:x\n J: y\nend [a|b] [c|d|e] bad=2": {200, "", "J: a|b\nJ:x\n#J: c|d|e\n J: y\nJ: 2026-01-02T03:04:05.678Z|x\nJ: 1700000000000|x\nend"},
		"200 [a|] bad=1":                     {200, "", "J: a|\nJ: b|" + strings.Repeat("x", 101)},
		"500 lines …":                        {200, "", strings.Repeat("J: a|b\n", 6)},
		"500 output …":                       {200, "", strings.Repeat("x", 10_001)},
		"200 " + strings.Repeat("x", 10_000): {200, "", strings.Repeat("x", 10_000)},
	} {
		url := startServer(t, func(w http.ResponseWriter, q *http.Request) {
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				w.Header().Set(name, value)
			}
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		})
		if got := text(runOne(t, r, httpHandler(url, job.Options{}), "x")); !sameOutcome(got, want) {
			t.Errorf("%+v gave %.200q, want %.200q", c, got, want)
		}
	}
}

// TestBadServers: each kind of invalid answer has an error of its own.
func TestBadServers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw := func(answer string, stay bool) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						io.WriteString(c, answer)
					}
					if stay {
						io.Copy(io.Discard, c)
					}
				}()
			}
		}()
		return "http://" + l.Addr().String()
	}
	closedURL := raw("", false)
	l.Close()
	r := newRunner(t, func(o *Options) { o.MaxOutput = 1 << 20 })
	short := job.Options{Timeout: job.Duration(50 * time.Millisecond)}
	for name, c := range map[string]struct {
		url  string
		o    job.Options
		want string
	}{
		"refused":                   {"http://" + l.Addr().String(), job.Options{}, "500 connection_failed …"},
		"no such host":              {"http://no-such-host.invalid/", job.Options{}, "500 connection_failed …"},
		"no such certificate":       {"https://" + strings.TrimPrefix(closedURL, "http://"), job.Options{}, "500 connection_failed …"},
		"cut off":                   {closedURL, job.Options{}, "500 connection_failed …"},
		"cut off in a body":         {raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", false), job.Options{}, "500 connection_failed …"},
		"no HTTP":                   {raw("hello\r\n\r\n", false), job.Options{}, "500 connection_failed …"},
		"headers forever":           {raw("HTTP/1.1 200 OK\r\n"+strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 100), true), job.Options{}, "500 connection_failed …"},
		"overdue":                   {raw("", true), short, "500 timeout …"},
		"overdue in a body":         {raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", true), short, "500 timeout …"},
		"another protocol":          {raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", true), short, "101"},
		"link-local":                {"http://169.254.169.254/latest/meta-data", job.Options{}, "500 connection_failed …link-local…"},
		"link-local, mapped":        {"http://[::ffff:169.254.169.254]/", job.Options{}, "500 connection_failed …link-local…"},
		"link-local, 6":             {"http://[fe80::1%25lo]/", job.Options{}, "500 connection_failed …link-local…"},
		"link-local, as one number": {"http://2852039166/", job.Options{}, "500 connection_failed …"},
	} {
		if got := text(runOne(t, r, httpHandler(c.url, c.o), "x")); !sameOutcome(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAllowedAddresses(t *testing.T) {
	prefixes := func(list ...string) (parsed []netip.Prefix) {
		for _, s := range list {
			parsed = append(parsed, netip.MustParsePrefix(s))
		}
		return parsed
	}
	for _, c := range []struct {
		address  string
		prefixes []netip.Prefix
		ok       bool
	}{
		{"10.1.2.3:80", nil, true},
		{"[::1]:80", nil, true},
		{"10.1.2.3:80", prefixes("10.0.0.0/8"), true},
		{"[::ffff:10.1.2.3]:80", prefixes("10.0.0.0/8"), true},
		{"11.1.2.3:80", prefixes("10.0.0.0/8", "fd00::/8"), false},
		{"[fd00::1]:80", prefixes("10.0.0.0/8", "fd00::/8"), true},
		{"169.254.0.1:80", prefixes("0.0.0.0/0"), false},
		{"[fe80::1%eth0]:80", prefixes("::/0"), false},
		{"[64:ff9b::a9fe:a9fe]:80", nil, false},
		{"[64:ff9b::808:808]:80", nil, true},
		{"224.0.0.1:80", nil, false},
	} {
		if err := checkDial(c.address, c.prefixes); (err == nil) != c.ok {
			t.Errorf("%s with %v: %v", c.address, c.prefixes, err)
		}
	}
	url := startServer(t, func(w http.ResponseWriter, q *http.Request) {})
	r := newRunner(t, func(o *Options) { o.HTTPAllow = prefixes("10.0.0.0/8") })
	if got := text(runOne(t, r, httpHandler(url, job.Options{}), "x")); !sameOutcome(got, "500 connection_failed …not in a network that --http-allow allows…") {
		t.Errorf("%q", got)
	}
}

func TestBatchReplies(t *testing.T) {
	r := newRunner(t, func(o *Options) { o.MaxLines = 3 })
	for body, want := range map[string]string{
		"200\n404 no\n500 oh dear\n":      "200; 404 no; 500 oh dear",
		"200\r\n404 no\r\n500":            "200; 404 no; 500",
		"# hello\n200\n#\n429\n#J x\n100": "200; 429 again; 100",
		"200\n201\n202\n203\n":            "200; 201; 202",
		"200\n":                           "200; 500 no_response …; 500 no_response …",
		"":                                "500 no_response …; 500 no_response …; 500 no_response …",
		"200\nwhat\n200\n":                "200; 500 bad_response …; 500 bad_response …",
		"200\n\n200\n":                    "200; 500 bad_response …; 500 bad_response …",
		"20\n200\n200\n":                  "500 bad_response …; 500 bad_response …; 500 bad_response …",
		"J: u|1\n200\n201\n#J: v|2\nJ: w|3\n202\n":      "200 [u|1]; 201; 202 [v|2] [w|3]",
		"200\nJ: bad\n201\n202\nJ: u|1\n":               "200; 201 bad=1; 202 bad=1",
		"J: u|1\nJ: u|1\nJ: u|1\nJ: u|1\n200\n200\n200": "500 lines …; 500 lines …; 500 lines …",
	} {
		var got string
		url := startServer(t, func(w http.ResponseWriter, q *http.Request) {
			lines, _ := io.ReadAll(q.Body)
			got = fmt.Sprintf("%s %s %s %q", q.Method, q.Header.Get("job-type"), q.Header.Get("job-count"), lines)
			w.WriteHeader(200)
			io.WriteString(w, body)
		})
		if s := texts(run(t, r, batch(httpHandler(url, job.Options{Batch: true}), "a", "b", "c"))); !sameOutcome(s, want) {
			t.Errorf("%q gave %q, want %q", body, s, want)
		}
		if want := `POST t 3 "a\nb\nc\n"`; got != want {
			t.Errorf("request %s, want %s", got, want)
		}
	}
	url := startServer(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(503)
		io.WriteString(w, "200\n200\n200\n")
	})
	if s := texts(run(t, r, batch(httpHandler(url, job.Options{Batch: true}), "a", "b"))); s != "503 after=3s; 503 after=3s" {
		t.Errorf("%q", s)
	}
}

// TestEndedRequests: when ctx ends, or at Kill, a request in progress is ended; the end of
// its job is not reported, and no other job begins.
func TestEndedRequests(t *testing.T) {
	for _, whole := range []bool{false, true} {
		r := newRunner(t, nil)
		url := startServer(t, func(w http.ResponseWriter, q *http.Request) {
			io.Copy(io.Discard, q.Body)
			<-q.Context().Done()
		})
		b := batch(httpHandler(url, job.Options{Batch: whole}), "a", "b")
		ctx, cancel := context.WithCancel(context.Background())
		for name, end := range map[string]func(){"context": cancel, "Kill": r.Kill} {
			to := &reportRecorder{t: t, onStart: func(int) { time.AfterFunc(time.Millisecond, end) }}
			use := ctx
			if name == "Kill" {
				use = context.Background()
			}
			r.Run(use, b, to)
			if len(to.outcomes) != 0 || !whole && to.startedCount != 1 {
				t.Errorf("%s, batch %v: %d started, %d ended", name, whole, to.startedCount, len(to.outcomes))
			}
		}
	}
}

// TestConnectionsAreKept: jobs that run one after the other use the same connection.
func TestConnectionsAreKept(t *testing.T) {
	var mu sync.Mutex
	conns := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "J: u|1\nx") }))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			mu.Lock()
			defer mu.Unlock()
			conns++
		}
	}
	s.Start()
	defer s.Close()
	run(t, newRunner(t, nil), batch(httpHandler(s.URL, job.Options{}), make([]string, 50)...))
	mu.Lock()
	defer mu.Unlock()
	if conns > 5 {
		t.Fatalf("50 jobs took %d connections", conns)
	}
}
