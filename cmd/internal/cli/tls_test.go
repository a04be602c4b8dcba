package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"gloom/bench/throwaway"
	gloom "gloom/clients/go"
)

// TestRenewedClientCertificate: each connection presents the certificate that is in the files at
// that time. While the certificate and the key do not match, a connection presents the earlier
// certificate.
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
		acceptResult := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				err = c.(*tls.Conn).Handshake()
				c.Close()
			}
			acceptResult <- err
		}()
		c, err := tls.Dial("tcp", l.Addr().String(), conf)
		if err == nil {
			defer c.Close()
		}
		return <-acceptResult == nil
	}
	check := func(moment string, first, second bool) {
		t.Helper()
		if got := isTrusted(dirs[1]); got != first {
			t.Errorf("%s: the first authority's server accepts it: %v", moment, got)
		}
		if got := isTrusted(dirs[2]); got != second {
			t.Errorf("%s: the second authority's server accepts it: %v", moment, got)
		}
	}
	check("at first", true, false)
	copyFile(dirs[2], "client.pem")
	check("without the new key", true, false)
	copyFile(dirs[2], "client.key")
	check("renewed", false, true)
}

// TestRenewedAuthority: each connection trusts the authorities that are in the file at that time,
// both the Go client's and an HTTP client's. While the file holds no authorities, a connection
// trusts the earlier ones. The certificate must name the server's address.
func TestRenewedAuthority(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	for _, dir := range dirs {
		if err := throwaway.WriteCerts(dir); err != nil {
			t.Fatal(err)
		}
	}
	trust := func(pem []byte, err error) {
		if err == nil {
			err = os.WriteFile(ca, pem, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	trust(os.ReadFile(filepath.Join(dirs[0], "ca.pem")))
	conf, err := ClientTLS("--tls-", ca, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialTLSContext: DialTLS(conf), DisableKeepAlives: true}}
	check := func(when, host string, wants ...bool) {
		t.Helper()
		for i, want := range wants {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dirs[i], "server.pem"), filepath.Join(dirs[i], "server.key"))
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
			addr := net.JoinHostPort(host, port)
			resp, err := client.Get("https://" + addr)
			if err == nil {
				resp.Body.Close()
			}
			// The server is no broker, so the client fails in any case. The test checks whether the
			// certificate is the reason.
			jobs, dialErr := gloom.Dial(t.Context(), gloom.Addrs(addr), gloom.TLS(conf), gloom.ClientName("test"))
			if dialErr == nil {
				jobs.Close()
			}
			var bad *tls.CertificateVerificationError
			if errors.As(err, &bad) == want || errors.As(dialErr, &bad) == want {
				t.Errorf("%s, server %d: HTTP: %v, client: %v, want trust: %v", when, i, err, dialErr, want)
			}
			s.Close()
		}
	}
	check("at first", "127.0.0.1", true, false)
	check("another name", "localhost", false, false)
	trust(nil, nil)
	check("empty", "127.0.0.1", true, false)
	trust(os.ReadFile(filepath.Join(dirs[1], "ca.pem")))
	check("replaced", "127.0.0.1", false, true)
}

func readPool(t *testing.T, dir string) *x509.CertPool {
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("no authority in %s: %v", dir, err)
	}
	return pool
}
