package server

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"gloom/broker/settings"
)

// TestFramesInBrowserRequestAreRefused: a web page can make a browser send a request whose body
// consists of Gloom frames. The broker reads the first four bytes of the request as a length that
// is beyond the largest possible --max-frame. So it closes the connection and reads none of the
// frames in the body.
func TestFramesInBrowserRequestAreRefused(t *testing.T) {
	t.Parallel()
	large := func(o *settings.Options) { o.MaxFrame, o.MaxInbound, o.MaxMemory = 1<<30, 2<<30, 8<<30 }
	server := startServer(t, large)
	secret := startServer(t, func(o *settings.Options) { large(o); setCertificate(t, o) })
	body := string(frame(`{"action":"submit","id":"csrf","type":"t","body":1}`))
	worker := string(frame(`{"action":"join","type":"csrf"}`))
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PRI", "FOO", "foo"} {
		for _, c := range []*peer{
			dial(t, server.SubmitAddr()), dial(t, server.WorkerAddr()), dialTLS(t, secret.SubmitAddr()), dialTLS(t, secret.WorkerAddr()),
		} {
			_, _ = io.WriteString(c, method+" / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"+body+worker)
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s to %s: not closed", method, c.RemoteAddr())
			}
		}
	}
	for _, s := range []*Server{server, secret} {
		eventually(t, "all are closed", func() bool { return s.Counts().Conns == 0 })
		stats, refusals := s.Hub().Stats(), uint64(0)
		for _, n := range stats.Errors {
			refusals += n
		}
		if refusals == 0 || stats.FramesIn != refusals {
			t.Errorf("%d frames were read of which %d were refused", stats.FramesIn, refusals)
		}
	}
}
