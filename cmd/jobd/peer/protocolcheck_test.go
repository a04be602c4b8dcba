package peer_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"gloom/cmd/internal/testing/peertest"
	"gloom/cmd/jobd/peer"
)

// TestBrowserRequestsAreNotCarriedOut: a web page can send one of our messages as the body of a
// request, and a cookie or a session ticket can hold such a message. The server carries out none of
// these messages.
func TestBrowserRequestsAreNotCarriedOut(t *testing.T) {
	s := startServer(t, peer.Options{Password: "secret", AllowLocalhost: true})
	const body = `|[0,{"no":1,"type":"big"}]|`
	head := " / HTTP/1.1\r\nHost: 127.0.0.1:7080\r\nContent-Type: text/plain\r\n\r\n"
	for _, opening := range []string{
		"GET" + head, "POST" + head, "PUT" + head, "DELETE" + head, "HEAD" + head, "OPTIONS" + head, "PATCH" + head, "TRACE" + head,
		"CONNECT 127.0.0.1:7080 HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n",
		"FOO" + head, "M-SEARCH" + head, "foo" + head, "Post" + head, "x2" + head, "POST http://127.0.0.1:7080/ HTTP/1.1\r\n\r\n",
		"GET /\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	} {
		c := s.dial(t)
		c.Write(opening + body)
		c.ExpectEnd()
		sock, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		request := []byte(opening + "\x04" + body)
		for i := range request {
			if _, err := sock.Write(request[i : i+1]); err != nil {
				break // closed by now
			}
		}
		_ = sock.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := sock.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%q byte by byte is answered", opening)
		}
		sock.Close()
	}
	if _, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("TLS is spoken")
	}
	if n := s.bigRequests.Load(); n > 0 {
		t.Errorf("%d requests of browsers are obeyed", n)
	}
	// While the method is incomplete, the connection waits, and delays no other.
	half := s.dial(t)
	half.Write("POS")
	other := s.dial(t)
	other.ExpectNothing()
	half.Write("T ")
	half.ExpectEnd()
}

// TestGarbageLikeHTTPIsIgnored: input that is neither HTTP nor our protocol is ignored, even if it
// begins a little like HTTP.
func TestGarbageLikeHTTPIsIgnored(t *testing.T) {
	s := startServer(t, peer.Options{})
	for _, text := range []string{"GET|", "POST|", "hello world|", "GE\x01T / HTTP/1.1\r\n|", " GET / HTTP/1.1|", "[GET / HTTP/1.1|", "\x16|", "\x16\x04"} {
		c := s.dial(t)
		c.Write(text)
		c.ExpectNothing()
	}
	c := s.dial(t)
	c.ExpectNothing()
	c.Write("GET / HTTP/1.1\r\n\r\n|") // these are not the connection's first bytes
	c.ExpectNothing()
	peertest.WaitUntil(t, "all are served", func() bool { return s.Connections() > 0 })
}
