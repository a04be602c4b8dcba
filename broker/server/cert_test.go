package server

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"

	"gloom/bench/throwaway"
	"gloom/broker/settings"
)

// setCertificate gives a broker a certificate, so that its addresses have TLS.
func setCertificate(t *testing.T, o *settings.Options) {
	t.Helper()
	dir := t.TempDir()
	if err := throwaway.WriteCerts(dir); err != nil {
		t.Fatal(err)
	}
	o.TLSCert, o.TLSKey = filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
}

func dialTLS(t *testing.T, a net.Addr) *peer {
	t.Helper()
	p := dial(t, a).shrinkBuffers()
	p.Conn = tls.Client(p.Conn, &tls.Config{InsecureSkipVerify: true})
	return p
}
