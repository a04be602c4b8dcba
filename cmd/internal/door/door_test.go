package door

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/broker/guard"
)

const testTimeout = 45 * time.Second

// startDoor opens a door with a handler on a free port.
func startDoor(t *testing.T, opt Options, h http.HandlerFunc) *Door {
	t.Helper()
	opt.Addr = "127.0.0.1:0"
	d, err := Listen(opt, zerolog.Nop(), false, "push", "work")
	if err != nil {
		t.Fatal(err)
	}
	d.Serve(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = d.Shutdown(ctx)
	})
	return d
}

// testClient is a connection over which a test writes HTTP itself.
type testClient struct {
	net.Conn
	reader *bufio.Reader
}

func dialDoor(t *testing.T, d *Door) *testClient {
	t.Helper()
	c, err := net.Dial("tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	return &testClient{c, bufio.NewReader(c)}
}

// get sends a request and returns the body of the answer.
func (v *testClient) get(path string) (string, error) {
	fmt.Fprintf(v, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	resp, err := http.ReadResponse(v.reader, nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// TestConnectionsBeyondLimitGetError: a connection beyond the limit gets an error. A connection
// that has long been idle is closed to make room for a new connection; a connection that waits for
// its answer is not closed.
func TestConnectionsBeyondLimitGetError(t *testing.T) {
	release := make(chan struct{})
	var current atomic.Pointer[Door]
	d := startDoor(t, Options{MaxConns: 2}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			_, _ = current.Load().Admit(w, r, Requirements{Methods: []string{http.MethodGet}})
			<-release
		}
		if isOverLimit(r) {
			w.Header().Set("Connection", "close")
		}
		fmt.Fprint(w, isOverLimit(r))
	})
	current.Store(d)
	busyClient := dialDoor(t, d)
	reply := make(chan string)
	go func() {
		body, err := busyClient.get("/wait")
		reply <- fmt.Sprint(body, err)
	}()
	idleClient := dialDoor(t, d)
	if body, err := idleClient.get("/"); body != "false" || err != nil {
		t.Fatalf("a connection within the limit: %s, %v", body, err)
	}
	thirdClient := dialDoor(t, d)
	if body, err := thirdClient.get("/"); body != "true" || err != nil {
		t.Fatalf("a third connection: %q, %v", body, err)
	}
	for end := time.Now().Add(testTimeout); ; {
		next := dialDoor(t, d)
		body, err := next.get("/")
		if body == "false" && err == nil {
			break
		}
		_ = next.Close()
		if time.Now().After(end) {
			t.Fatalf("the last connection: %q, %v", body, err)
		}
	}
	if _, err := idleClient.get("/"); err == nil {
		t.Error("the idle connection has not made room")
	}
	close(release)
	if got := <-reply; got != "false<nil>" {
		t.Errorf("who waited for an answer got %s", got)
	}
}

// TestSlowClientsLockNobodyOut: connections without complete requests do not lock other connections
// out, however many there are and wherever they stop: before the first byte, in a handshake, in the
// head of a request, or without reading a public answer.
func TestSlowClientsLockNobodyOut(t *testing.T) {
	dir, largeBody := t.TempDir(), make([]byte, 1<<20)
	if err := throwaway.WriteCerts(dir); err != nil {
		t.Fatal(err)
	}
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			opt := Options{MaxConns: 8}
			if secure {
				opt.TLSCert, opt.TLSKey = filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
			}
			var at atomic.Pointer[Door]
			d := startDoor(t, opt, func(w http.ResponseWriter, r *http.Request) {
				switch _, err := at.Load().Admit(w, r, Requirements{Methods: []string{http.MethodGet}, Public: r.URL.Path != "/"}); {
				case err != nil:
					w.WriteHeader(err.(*Refusal).Status)
				case r.URL.Path == "/open":
					for range 64 {
						if _, err := w.Write(largeBody); err != nil {
							return
						}
					}
				}
			})
			at.Store(d)
			client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			url := map[bool]string{false: "http://", true: "https://"}[secure] + d.Addr().String()
			for _, want := range []string{"", "\x16\x03\x01\x02\x00\x01", "GET / HTTP/1.1\r\nHost: localh", "GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
				var visitors []*testClient
				for range 8 + 2*SpareConns {
					visitors = append(visitors, dialDoor(t, d))
					fmt.Fprint(visitors[len(visitors)-1], want)
				}
				for _, path := range []string{"/health", "/"} {
					for end := time.Now().Add(headerTimeout / 2); ; time.Sleep(100 * time.Millisecond) {
						r, err := client.Get(url + path)
						if err == nil && r.Body.Close() == nil && r.StatusCode == 200 {
							break
						}
						if time.Now().After(end) {
							t.Errorf("%s behind %q: %v, %v", path, want, r, err)
							break
						}
					}
				}
				for _, v := range visitors {
					_ = v.Close()
				}
			}
		})
	}
}

// TestFloodLeavesRoomForOne: if connections that are too new to be closed take all places, one more
// connection is still accepted. To make room for it, the oldest of the connections beyond the limit
// is closed.
func TestFloodLeavesRoomForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &connLimiter{max: 2}
		var conns []*limitedConn
		for range l.max + SpareConns + 3 {
			clientConn, serverConn := net.Pipe()
			defer serverConn.Close()
			m := l.add(clientConn)
			if m == nil {
				t.Fatalf("connection %d is refused", len(conns)+1)
			}
			conns = append(conns, m)
			l.onState(m, http.StateNew)
		}
		for i, m := range conns {
			closed := m.SetDeadline(time.Time{}) != nil
			if want := i >= l.max && i < l.max+3; closed != want {
				t.Errorf("connection %d is closed: %t", i+1, closed)
			}
			_ = m.Close()
		}
	})
}

// TestTokenDecidesWhatRequestMayDo: the token of a request decides what it may do; the token file
// is read again on demand.
func TestTokenDecidesWhatRequestMayDo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one push\n")
	d := startDoor(t, Options{Options: guard.Options{TokenFile: file}}, nil)
	judge := func(header string) string {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // so that the test does not wait for the refusal
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		g, ok := d.grantOf(r)
		return fmt.Sprint(ok, ok && g.Has(1), ok && g.Has(2))
	}
	for header, want := range map[string]string{
		"Bearer one": "true true false", "bearer  one ": "true true false",
		"": "false false false", "Bearer": "false false false", "Bearer two": "false false false", "Basic one": "false false false",
	} {
		if got := judge(header); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
	if n := d.Unauthorized.Load(); n != 4 {
		t.Errorf("%d refusals are counted, want 4", n)
	}
	write("two push,work\n")
	if err := d.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := judge("Bearer two"); got != "true true true" {
		t.Errorf("after a reload: %s", got)
	}
}

// TestFileLimitLeavesFilesForWork: the limit on connections leaves enough files for the daemon's work.
func TestFileLimitLeavesFilesForWork(t *testing.T) {
	connsFor := func(files int) int {
		d, err := Listen(Options{Addr: "127.0.0.1:0", ReservedFiles: files}, zerolog.Nop(), false, "push")
		if err != nil {
			t.Fatal(err)
		}
		defer d.limiter.Close()
		return d.MaxConns()
	}
	if maxConns, fewerConns := connsFor(0), connsFor(100); fewerConns != maxConns-100 {
		t.Errorf("%d connections, and %d beside 100 files", maxConns, fewerConns)
	}
}

// TestInvalidValueNamesItsFlag: invalid values are refused with the name of their flag.
func TestInvalidValueNamesItsFlag(t *testing.T) {
	for _, c := range []struct {
		opt        Options
		flag, want string
	}{
		{Options{Addr: "0.0.0.0:0"}, "addr", "other hosts"},
		{Options{Addr: "nowhere"}, "addr", "neither"},
		{Options{Addr: "https://127.0.0.1:0"}, "addr", "--tls-cert"},
		{Options{Addr: "127.0.0.1:0,127.0.0.1:0"}, "addr", "one address"},
		{Options{Addr: "127.0.0.1:0", Options: guard.Options{TLSCert: "x"}}, "tls-cert", "--tls-key"},
		{Options{Addr: "127.0.0.1:0", Options: guard.Options{TokenFile: "/none"}}, "token-file", "no such file"},
	} {
		err := c.opt.Validate()
		if err == nil {
			_, err = Listen(c.opt, zerolog.Nop(), false, "push", "work")
		}
		var o *guard.OptionError
		if !errors.As(err, &o) || o.Flag != c.flag || !strings.Contains(o.Reason, c.want) {
			t.Errorf("%+v: %v, want %s: %s", c.opt, err, c.flag, c.want)
		}
	}
	d, err := Listen(Options{Addr: "http://127.0.0.1:0/"}, zerolog.Nop(), false, "push")
	if err != nil {
		t.Fatal(err)
	}
	d.Serve(http.NotFoundHandler())
	defer d.Shutdown(t.Context())
	// An address in use is not an error of the command line.
	var o *guard.OptionError
	if _, err = Listen(Options{Addr: d.Addr().String()}, zerolog.Nop(), false, "push"); !errors.Is(err, syscall.EADDRINUSE) || errors.As(err, &o) {
		t.Errorf("a taken address: %v", err)
	}
}

// TestFirstReasonRefusesRequest: a request is refused for the first reason that applies, and the
// answer's text is this reason.
func TestFirstReasonRefusesRequest(t *testing.T) {
	d := startDoor(t, Options{}, nil)
	get, post := []string{http.MethodGet}, []string{http.MethodPost}
	const remote, foreign = "https://evil.example", "evil.example"
	for _, c := range []struct {
		method, host, origin string
		requirements         Requirements
		want, allow          string
	}{
		{"GET", "", "", Requirements{}, "not_found", ""},
		{"GET", "", "", Requirements{Methods: get, Scope: 1}, "", ""},
		{"HEAD", "", "", Requirements{Methods: get, Scope: 1}, "", ""},
		{"HEAD", "", "", Requirements{Methods: get, Scope: 1, Mutates: true}, "method_not_allowed", "GET"},
		{"POST", "", "", Requirements{Methods: get, Scope: 1}, "method_not_allowed", "GET, HEAD"},
		{"POST", foreign, remote, Requirements{Methods: get, Public: true}, "method_not_allowed", "GET, HEAD"},
		{"POST", foreign, remote, Requirements{Methods: post, Public: true}, "", ""},
		{"POST", foreign, "", Requirements{Methods: post, Scope: 1}, "forbidden_host", ""},
		{"POST", foreign, "", Requirements{Methods: post, Scope: 1, AnyHost: true}, "", ""},
		{"POST", "", remote, Requirements{Methods: post, Scope: 1}, "forbidden_origin", ""},
		{"GET", "", remote, Requirements{Methods: get, Scope: 1}, "", ""},
		{"GET", "", remote, Requirements{Methods: get, Scope: 1, Mutates: true}, "forbidden_origin", ""},
		{"GET", "", "cross-site no-cors", Requirements{Methods: get, Scope: 1}, "forbidden_origin", ""},
		{"GET", "", "cross-site no-cors", Requirements{Methods: get, Public: true}, "", ""},
		{"GET", "", "cross-site navigate document", Requirements{Methods: get, Scope: 1}, "", ""}, // a link
		{"GET", "", "cross-site navigate iframe", Requirements{Methods: get, Scope: 1}, "forbidden_origin", ""},
		{"GET", "", "cross-site navigate", Requirements{Methods: get, Scope: 1, Mutates: true}, "forbidden_origin", ""},
		{"GET", "", "same-origin cors", Requirements{Methods: get, Scope: 1}, "", ""},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), c.method, "/", nil)
		if r.Host = "localhost"; c.host != "" {
			r.Host = c.host
		}
		if fetch := strings.Fields(c.origin); len(fetch) > 1 {
			for i, name := range []string{"Site", "Mode", "Dest"}[:len(fetch)] {
				r.Header.Set("Sec-Fetch-"+name, fetch[i])
			}
		} else if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		_, err := d.Admit(w, r, c.requirements)
		var refusal *Refusal
		if errors.As(err, &refusal); (refusal == nil) != (c.want == "") || refusal != nil && refusal.Code != c.want || w.Header().Get("Allow") != c.allow {
			t.Errorf("%+v: %v, Allow %q", c, err, w.Header().Get("Allow"))
		}
	}
}

// TestPasswordMayExemptThisHost: with a password, clients on this host may be exempt; without a
// password, only clients on this host are admitted.
func TestPasswordMayExemptThisHost(t *testing.T) {
	for _, c := range []struct {
		password string
		local    bool
		from     string
		headers  string // "Name: value"
		want     int    // 200 is admitted
	}{
		{"", true, "127.0.0.1:5", "", 200}, {"", true, "[::1]:5", "", 200}, {"", true, "[::ffff:127.0.0.1]:5", "", 200},
		{"", true, "10.0.0.1:5", "", 403}, {"", true, "127.0.0.1:5", "X-Forwarded-For: 10.0.0.1", 403},
		{"pass word", true, "127.0.0.1:5", "", 200}, {"pass word", true, "10.0.0.1:5", "", 401}, {"pass word", true, "127.0.0.1:5", "Forwarded: for=10.0.0.1", 401},
		{"pass word", true, "127.0.0.1:5", "Authorization: Bearer pass", 401}, {"pass word", false, "127.0.0.1:5", "", 401},
		{"pass word", false, "10.0.0.1:5", "Authorization: Bearer pass word", 200},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		d := NewOnListener(ln, Options{Addr: "127.0.0.1:0", Password: c.password, TrustLocal: c.local, MaxConns: 1}, zerolog.Nop(), "admin")
		r := httptest.NewRequest("GET", "http://localhost/x", nil)
		r.RemoteAddr = c.from
		if name, value, ok := strings.Cut(c.headers, ": "); ok {
			r.Header.Set(name, value)
		}
		ctx, cancel := context.WithCancel(r.Context())
		cancel() // so that the test does not wait for the delay after a wrong token
		grant, err := d.Admit(httptest.NewRecorder(), r.WithContext(ctx), Requirements{Methods: []string{"GET"}, Scope: 1})
		got := 200
		var refusal *Refusal
		if errors.As(err, &refusal) {
			got = refusal.Status
		}
		if got != c.want || got == 200 && !grant.Has(1) {
			t.Errorf("%+v: %d", c, got)
		}
		_ = ln.Close()
	}
}

// TestCertificateIsWarnedAboutDaily: the log says each day that the certificate is not valid for long, until the door is
// closed.
func TestCertificateIsWarnedAboutDaily(t *testing.T) {
	dir := t.TempDir()
	if err := throwaway.WriteCerts(dir); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log throwaway.Log
		opt := Options{Options: guard.Options{TLSCert: filepath.Join(dir, "expired.pem"), TLSKey: filepath.Join(dir, "expired.key")}}
		d := newDoor(opt, "", zerolog.New(&log), false, nil)
		var err error
		if d.certs, err = d.options.LoadCertificates(d.log); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			d.warnOfCerts()
			close(ended)
		}()
		time.Sleep(3*24*time.Hour + time.Minute)
		if n := strings.Count(log.String(), "the TLS certificate"); n != 4 {
			t.Errorf("the log says it %d times in three days:\n%s", n, log.String())
		}
		close(d.closed)
		<-ended
	})
}
