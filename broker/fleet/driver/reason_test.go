package driver

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestSilentCloseMayBeCertificate: if NATS closes a TLS connection without a word, it may require
// another certificate.
func TestSilentCloseMayBeCertificate(t *testing.T) {
	cut := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, c := range []struct {
		opt  Options
		err  error
		want string
	}{
		{Options{CA: "ca.pem"}, cut, "fleet-cert"},
		{Options{Servers: "nats://a:1,tls://b:1"}, io.EOF, "fleet-cert"},
		{Options{Servers: "nats://a:1"}, cut, ""},
		{Options{CA: "ca.pem"}, errors.New("tls: certificate required"), "NATS asks for a certificate: fleet-cert"},
		{Options{CA: "ca.pem"}, errors.New("tls: expired certificate"), "NATS no longer takes our certificate: fleet-cert"},
		{Options{CA: "ca.pem"}, errors.New("no route to host"), ""},
	} {
		if got := c.opt.awayReason(c.err); !strings.Contains(got, c.err.Error()) || !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "fleet-") {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
