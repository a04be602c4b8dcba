package cli

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"gloom/bench/throwaway"
)

// TestRenewedClientCertificate: each connection presents the certificate that is in the files at that
// time. While the certificate and the key do not match, it presents the earlier one.
func TestRenewedClientCertificate(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()} // the client's files, and two authorities
	for _, dir := range dirs {
		if err := throwaway.WriteCerts(dir); err != nil {
			t.Fatal(err)
		}
	}
	copyFile := func(from, name string) {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dirs[0], name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	issue := func(from string) { copyFile(from, "client.pem"); copyFile(from, "client.key") }
	issue(dirs[1])
	conf, err := ClientTLS("--tls-", filepath.Join(dirs[0], "ca.pem"), filepath.Join(dirs[0], "client.pem"), filepath.Join(dirs[0], "client.key"), "broker.test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dirs[0], "server.pem"), filepath.Join(dirs[0], "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	isTrusted := func(authority string) bool { // whether a server accepts the client
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: readPool(t, authority)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		accepted := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				err = c.(*tls.Conn).Handshake()
				c.Close()
			}
			accepted <- err
		}()
		c, err := tls.Dial("tcp", l.Addr().String(), conf)
		if err == nil {
			defer c.Close()
		}
		return <-accepted == nil
	}
	check := func(when string, first, second bool) {
		t.Helper()
		if got := isTrusted(dirs[1]); got != first {
			t.Errorf("%s: the first authority's server accepts it: %v", when, got)
		}
		if got := isTrusted(dirs[2]); got != second {
			t.Errorf("%s: the second authority's server accepts it: %v", when, got)
		}
	}
	check("at first", true, false)
	copyFile(dirs[2], "client.pem")
	check("without the new key", true, false)
	copyFile(dirs[2], "client.key")
	check("renewed", false, true)
}

func readPool(t *testing.T, dir string) *x509.CertPool {
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("no authority in %s: %v", dir, err)
	}
	return pool
}
