package guard

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestUnreadBodyIsReadOn: a client that sends its whole body before it reads gets the reply of a
// handler that does not want the body, and may then use the connection again.
func TestUnreadBodyIsReadOn(t *testing.T) {
	server := httptest.NewServer(ReadOn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		http.Error(w, "unwanted", http.StatusTeapot)
	})))
	defer server.Close()
	body := strings.Repeat(" ", 40<<20)
	for _, c := range []struct{ path, headers, body string }{
		{"/", fmt.Sprintf("Content-Length: %d", len(body)), body},
		{"/", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)},
		{"/", "Transfer-Encoding: chunked", "0\r\n\r\n"},
		{"/read", "Content-Length: 2", "{}"},
		{"/read", "Transfer-Encoding: chunked", "0\r\n\r\n"},
		{"/", "Expect: 100-continue\r\nContent-Length: 1000000", ""}, // the body does not come after this reply
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		replies := bufio.NewReader(conn)
		for range 2 {
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n%s", c.path, c.headers, c.body); err != nil {
				t.Errorf("%.60q: %v", c.headers, err)
			}
			resp, err := http.ReadResponse(replies, nil)
			if err != nil || resp.StatusCode != http.StatusTeapot {
				t.Errorf("%.60q: %v, %v", c.headers, resp, err)
				break
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Errorf("%.60q: %v", c.headers, err)
			}
			if resp.ContentLength < 0 && c.path == "/read" {
				t.Errorf("%.60q: the reply to a body that was read is in chunks", c.headers)
			}
			if strings.HasPrefix(c.headers, "Expect") {
				if _, err := replies.ReadByte(); err != io.EOF {
					t.Errorf("the connection stays open: %v", err)
				}
				break
			}
		}
		_ = conn.Close()
	}
}

// TestRestOfBodyIsNoRequest: when a body breaks off or stalls, the connection is closed after the
// reply, and nothing that follows is taken for another request.
func TestRestOfBodyIsNoRequest(t *testing.T) {
	server := httptest.NewUnstartedServer(ReadOn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/read":
			_, _ = io.Copy(io.Discard, r.Body)
		case "/stalled":
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = io.Copy(io.Discard, r.Body)
		case "/next":
			t.Error("the rest of a body is taken for a request")
		}
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "no")
	})))
	server.Start()
	defer server.Close()
	const next = "GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, c := range []struct{ path, start, rest string }{
		{"/", "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nZZ\r\n", next},
		{"/read", "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nZZ\r\n", next},
		{"/stalled", fmt.Sprintf("Content-Length: %d\r\n\r\nabcde", 5+len(next)), next},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n%s", c.path, c.start)
		replies := bufio.NewReader(conn)
		resp, err := http.ReadResponse(replies, nil)
		if err != nil {
			t.Fatal(c.path, err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "no" {
			t.Errorf("%s: reply %q, %v", c.path, body, err)
		}
		_, _ = io.WriteString(conn, c.rest)
		if rest, _ := io.ReadAll(replies); len(rest) > 0 {
			t.Errorf("%s: the connection stays open, and has %.60q", c.path, rest)
		}
		_ = conn.Close()
	}
}
