package probe

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHTTPHandlers: each answer of a service that runs jobs has the documented effect.
func TestHTTPHandlers(t *testing.T) {
	d := sharedDaemon(t)
	type call struct {
		method, body string
		header       http.Header
	}
	var mu sync.Mutex
	calls := map[string][]call{}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		calls[r.URL.Path] = append(calls[r.URL.Path], call{r.Method, string(b), r.Header.Clone()})
		n := len(calls[r.URL.Path])
		mu.Unlock()
		switch strings.Split(r.URL.Path, "/")[1] {
		case "ok":
			fmt.Fprintf(w, "data\nJ: b|x\n#J: b|y\nmore")
		case "gone":
			w.WriteHeader(410)
		case "again":
			if n == 1 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(429)
			}
		case "redirect":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "cut":
			c, _, _ := http.NewResponseController(w).Hijack()
			_ = c.Close()
		case "hang":
			<-r.Context().Done()
		case "batch":
			fmt.Fprint(w, "# a comment\nJ: b|from the first\n200 one\n404\n")
		case "badbatch":
			fmt.Fprint(w, "200 one\nfrob\n200 three\n")
		}
	}))
	t.Cleanup(func() {
		service.CloseClientConnections()
		service.Close()
	})
	run := func(t *testing.T, path, lines, state string, options ...string) (client string, ids []string) {
		t.Helper()
		client = freshClient()
		ids = d.add(t, client, "h", lines)
		d.addHandler(t, client, "h", "http", service.URL+path+"/"+client, options...)
		for _, id := range ids {
			if state != "" {
				d.awaitEnd(t, client, id, state)
			}
		}
		return client, ids
	}
	t.Run("ok", func(t *testing.T) {
		client, ids := run(t, "/ok", "pay|load\n", "ok")
		mu.Lock()
		c := calls["/ok/"+client]
		mu.Unlock()
		if len(c) != 1 || c[0].method != "POST" || c[0].body != "pay|load\n" || c[0].header.Get("job-id") != ids[0] ||
			c[0].header.Get("job-type") != "h" || c[0].header.Get("job-try") != "1" {
			t.Errorf("%+v", c)
		}
		if got := d.awaitEnd(t, client, ids[0], "ok"); strings.TrimRight(got, "\n") != "data\nmore" {
			t.Errorf("data %q", got)
		}
		if k := d.counts(t, client, "b"); k["added"] != 2.0 {
			t.Errorf("its J: lines: %v", k)
		}
	})
	t.Run("another verb", func(t *testing.T) {
		client := freshClient()
		d.expect(t, 200, "POST", "/"+client+"/handler/add/h?method=PUT", fmt.Sprintf(`{"lang":"http","body":"%s/ok/%s"}`, service.URL, client), "Content-Type: application/json")
		d.awaitEnd(t, client, d.addOne(t, client, "h", "x"), "ok")
		mu.Lock()
		defer mu.Unlock()
		if c := calls["/ok/"+client]; len(c) != 1 || c[0].method != "PUT" {
			t.Errorf("%+v", c)
		}
		if r := d.expect(t, 200, "GET", "/"+client+"/handler/get/h", ""); r.text("method") != "PUT" {
			t.Errorf("%s", r)
		}
	})
	for path, want := range map[string]struct {
		state string
		code  float64
	}{"/gone": {"failed", 410}, "/again": {"ok", 200}, "/redirect": {"abandoned", 500}, "/cut": {"abandoned", 500}, "/hang": {"abandoned", 500}} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			client, ids := run(t, path, "x\n", want.state, `options={"timeout":"500ms"}`)
			if r := d.job(t, client, ids[0]); r.json["exitcode"] != want.code {
				t.Errorf("%s, want %v", r, want.code)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		client := freshClient()
		d.addHandler(t, client, "h", "http", "http://127.0.0.1:1/")
		id := d.addOne(t, client, "h", "x")
		d.awaitEnd(t, client, id, "abandoned")
	})
	t.Run("link-local is never called", func(t *testing.T) {
		t.Parallel()
		client := freshClient()
		r := d.ask(t, "POST", "/"+client+"/handler/add/h", `{"lang":"http","body":"http://169.254.169.254/latest"}`, "Content-Type: application/json")
		if r.status == 200 {
			id := d.addOne(t, client, "h", "x")
			d.awaitEnd(t, client, id, "abandoned")
		} else if r.status != 400 {
			t.Errorf("%s", r)
		}
	})
	t.Run("a batch", func(t *testing.T) {
		client, ids := run(t, "/batch", "a\nb\nc\n", "", `options={"batch":true,"batchSize":10}`)
		if got := d.awaitEnd(t, client, ids[0], "ok"); got != "one" {
			t.Errorf("%q", got)
		}
		d.awaitEnd(t, client, ids[1], "failed")
		d.awaitEnd(t, client, ids[2], "ok") // it runs again alone, as the first job of the next batch
		if r := d.job(t, client, ids[2]); r.json["tries"] != 2.0 {
			t.Errorf("%s", r)
		}
		mu.Lock()
		first := calls["/batch/"+client][0]
		mu.Unlock()
		if first.body != "a\nb\nc\n" {
			t.Errorf("body %q", first.body)
		}
	})
	t.Run("a bad line spoils itself and what follows", func(t *testing.T) {
		client, ids := run(t, "/badbatch", "a\nb\nc\n", "", `options={"batch":true,"batchSize":10}`)
		d.awaitEnd(t, client, ids[0], "ok")
		waitUntil(t, "the others are tried again", func() error {
			for _, id := range ids[1:] {
				if r := d.job(t, client, id); r.json["tries"].(float64) < 1 || r.text("state") == "waiting" && r.json["exitcode"] != 500.0 {
					return fmt.Errorf("%s", r)
				}
			}
			return nil
		})
	})
}

// TestBadHTTP: invalid requests.
func TestBadHTTP(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	addr := strings.TrimPrefix(d.base, "http://")
	exchange := func(t *testing.T, request string, close bool) string {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if close {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(line)
	}
	t.Run("a body cut short adds nothing", func(t *testing.T) {
		exchange(t, "POST /"+client+"/job/cut/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx\ny\n", true)
		if k := d.counts(t, client, "cut"); k != nil {
			t.Errorf("%v", k)
		}
	})
	t.Run("a chunk cut short adds nothing", func(t *testing.T) {
		exchange(t, "POST /"+client+"/job/cut/add HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nx\ny\n\r\n", true)
		if k := d.counts(t, client, "cut"); k != nil {
			t.Errorf("%v", k)
		}
	})
	t.Run("too large, announced", func(t *testing.T) {
		if got := exchange(t, "POST /"+client+"/job/big/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", false); !strings.Contains(got, " 413 ") {
			t.Errorf("%q", got)
		}
	})
	t.Run("too large or unwanted, announced and sent before the answer is read", func(t *testing.T) {
		const size = 40 << 20
		body := strings.Repeat(strings.Repeat("x", 1023)+"\n", size>>10)
		for path, want := range map[string]string{"/job/big/add": " 413 ", "/retry": " 400 ", "/nowhere": " 404 "} {
			if got := exchange(t, "POST /"+client+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: "+strconv.Itoa(size)+"\r\n\r\n"+body, false); !strings.Contains(got, want) {
				t.Errorf("%s: %q", path, got)
			}
		}
	})
	t.Run("garbage", func(t *testing.T) {
		if got := exchange(t, "\x00\x01\x02frob\r\n\r\n", true); !strings.Contains(got, " 400 ") && got != "" {
			t.Errorf("%q", got)
		}
	})
}
