package probe

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(nameSerial.Add(1)), Subject: pkix.Name{CommonName: freshName("authority")},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.pool.AddCert(a.cert)
	return a
}

// issue makes a certificate and its key for servers and clients on loopback.
func (a *authority) issue(until time.Time) (certPEM, keyPEM []byte) {
	a.t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(nameSerial.Add(1)), Subject: pkix.Name{CommonName: "probe"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, _ := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func (a *authority) clientCertificate() tls.Certificate {
	a.t.Helper()
	c, err := tls.X509KeyPair(a.issue(time.Now().Add(time.Hour)))
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *authority) write(file string, text []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, file)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// flags writes the certificate files of a server and returns the flags that name them.
func (a *authority) flags() []string {
	a.t.Helper()
	cert, key := a.issue(time.Now().Add(time.Hour))
	return []string{"--tls-cert=" + a.write("cert.pem", cert), "--tls-key=" + a.write("key.pem", key)}
}

func (a *authority) caFile() string {
	return a.write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// dialTLS connects with TLS. A failed handshake may show only on the first read.
func dialTLS(addr string, conf *tls.Config) (*conn, error) {
	d := &net.Dialer{Timeout: patience}
	c, err := tls.DialWithDialer(d, "tcp", addr, conf)
	if err != nil {
		return nil, err
	}
	return &conn{net: c, in: bufio.NewReader(c)}, nil
}

func mustDialTLS(t *testing.T, addr string, conf *tls.Config) *conn {
	t.Helper()
	c, err := dialTLS(addr, conf)
	if err != nil {
		t.Fatalf("TLS to %s: %v", addr, err)
	}
	c.t = t
	t.Cleanup(c.close)
	return c
}

// checkRefusesTLS checks that the listener at addr refuses a client with this configuration.
func checkRefusesTLS(t *testing.T, addr string, conf *tls.Config) {
	t.Helper()
	c, err := dialTLS(addr, conf)
	if err != nil {
		return
	}
	defer c.close()
	_ = c.write(packFrame(`{"action":"ping"}`))
	if f, err := c.next(patience); err == nil {
		t.Errorf("got %s, want the handshake to fail", f)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("left waiting, want the handshake to fail")
	}
}

// startTLS starts a daemon that may serve HTTP with TLS. Unlike start, it does not check the
// ledger at the end, because it could not read it.
func startTLS(t *testing.T, flags ...string) *daemon {
	t.Helper()
	d, err := launch(daemonSpec{flags: flags})
	if err != nil {
		t.Fatalf("start gloomd: %v", err)
	}
	web := d.httpAddr
	t.Cleanup(func() {
		d.httpAddr = ""
		if err := d.end(); err != nil {
			t.Errorf("end of gloomd: %v", err)
		}
		if t.Failed() {
			t.Logf("gloomd (HTTP on %s) wrote:\n%s", web, d.tail())
		}
	})
	return d
}

func TestTLSPeersAreServed(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	b := startTLS(t, ca.flags()...)
	conf := &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS12}
	typ := freshName("tls")
	s, w := submitter{mustDialTLS(t, b.submitAddr, conf)}, worker{mustDialTLS(t, b.workerAddr, conf)}
	w.join(typ)
	t.Run("round trip", func(t *testing.T) {
		for range 20 {
			checkServes(t, s, w, typ)
		}
	})
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			c := mustDialTLS(t, b.submitAddr, &tls.Config{RootCAs: ca.pool, MinVersion: version, MaxVersion: version})
			c.ping()
		})
	}
	t.Run("nothing older", func(t *testing.T) {
		checkRefusesTLS(t, b.submitAddr, &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	})
	t.Run("a body of 4 MiB, both ways", func(t *testing.T) {
		s, w := submitter{&conn{t, s.net, s.in}}, worker{&conn{t, w.net, w.in}}
		body := quote(strings.Repeat("t", 4<<20))
		id := s.submitFresh(typ, body)
		if got, gotBody := w.nextJob(); got != id || gotBody != body {
			t.Fatalf("job %q of %d bytes", got, len(gotBody))
		}
		w.respond(body)
		s.wantResult(id, body)
	})
	t.Run("frames in pieces", func(t *testing.T) {
		c := mustDialTLS(t, b.submitAddr, conf)
		for _, octet := range packFrame(`{"action":"ping"}`) {
			c.writeRaw([]byte{octet})
		}
		c.wantOK()
	})
	t.Run("many frames at once", func(t *testing.T) {
		c := mustDialTLS(t, b.workerAddr, conf)
		c.writeRaw([]byte(strings.Repeat(string(packFrame(`{"action":"ping"}`)), 2000)))
		for range 2000 {
			c.wantOK()
		}
	})
	t.Run("errors and closing", func(t *testing.T) {
		c := mustDialTLS(t, b.submitAddr, conf)
		c.send(`{"action":"submit"}`)
		c.wantError("missing_field")
		c.writeRaw(announceFrame(0x7fffffff))
		c.wantError("size_error")
		c.wantEOF()
	})
	for _, d := range []struct {
		name string
		end  func(c *conn)
	}{
		{"closed", (*conn).close},
		{"cut", func(c *conn) {
			tcpConn := c.net.(*tls.Conn).NetConn().(*net.TCPConn)
			_ = tcpConn.SetLinger(0)
			_ = tcpConn.Close()
		}},
		{"half-closed", (*conn).halfClose},
	} {
		t.Run("worker lost: "+d.name, func(t *testing.T) {
			typ := freshName("tls")
			w := worker{mustDialTLS(t, b.workerAddr, conf)}
			w.join(typ)
			s := submitter{&conn{t, s.net, s.in}}
			id := s.submitFresh(typ, `1`)
			w.wantJob(id)
			d.end(w.conn)
			successor := worker{mustDialTLS(t, b.workerAddr, conf)}
			successor.join(typ)
			successor.wantJob(id)
			successor.respond(`2`)
			s.wantResult(id, `2`)
		})
		t.Run("submitter gone: "+d.name, func(t *testing.T) {
			gone := submitter{mustDialTLS(t, b.submitAddr, conf)}
			id := gone.submitFresh(freshName("tls"), `1`)
			d.end(gone.conn)
			next := submitter{mustDialTLS(t, b.submitAddr, conf)}
			waitFor(t, "the id is free", func() error {
				next.sendSubmit(id, freshName("tls"), `1`, "")
				if f := next.recv(); f.kind() != "ack" {
					return errors.New(f.raw)
				}
				return nil
			})
		})
	}
	t.Run("heartbeats", func(t *testing.T) {
		c := mustDialTLS(t, b.workerAddr, conf)
		c.hello(`,"heartbeat_ms":2000`) // two beats are longer than any stall of the test's process
		wantPing(t, c)
		c.send(`{"action":"pong"}`)
		wantPing(t, c)
		for {
			f, err := c.next(patience)
			if err != nil {
				if !isEnd(err) {
					t.Fatalf("read: %v", err)
				}
				break
			}
			if f.kind() != "ping" {
				t.Fatalf("got %s", f)
			}
		}
	})
	t.Run("a plain client gets nowhere", func(t *testing.T) {
		for _, addr := range []string{b.submitAddr, b.workerAddr} {
			c := dial(t, addr)
			_ = c.write(packFrame(`{"action":"ping"}`))
			_ = c.net.SetReadDeadline(time.Now().Add(patience))
			rest, err := io.ReadAll(c.in)
			if err != nil && !isEnd(err) {
				t.Errorf("read: %v", err)
			}
			if strings.Contains(string(rest), "{") {
				t.Errorf("it was told %q", rest)
			}
		}
	})
	t.Run("a client that trusts another authority", func(t *testing.T) {
		if _, err := dialTLS(b.submitAddr, &tls.Config{RootCAs: newAuthority(t).pool}); err == nil {
			t.Error("the handshake succeeded with a certificate that the client does not trust")
		}
		checkServes(t, s, w, typ)
	})
	t.Run("HTTP", func(t *testing.T) {
		web := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
		res, err := web.Get("https://" + b.httpAddr + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("status %d", res.StatusCode)
		}
	})
	t.Run("a handshake has ten seconds", func(t *testing.T) {
		t.Parallel()
		onBoth(t, b, func(t *testing.T, c *conn) {
			begin := time.Now()
			_ = c.net.SetReadDeadline(begin.Add(scaledTime(20 * time.Second)))
			if _, err := io.ReadAll(c.in); err != nil && !isEnd(err) {
				t.Fatalf("read: %v", err)
			}
			checkNotBefore(t, begin, 9*time.Second, "cut off")
			checkSoonAfter(t, begin, 10*time.Second, "cut off")
		})
	})
	t.Run("many at once, some half way", func(t *testing.T) {
		for range 50 {
			_ = dial(t, b.submitAddr).write([]byte{22, 3, 1, 2, 0, 1})
		}
		checkServes(t, s, w, typ)
		runParallel(t, 20, func(f *parallelT, _ int) {
			c, err := dialTLS(b.submitAddr, conf)
			if err != nil {
				f.Fatalf("TLS: %v", err)
			}
			c.t = f
			c.ping()
			c.close()
		})
	})
}

func TestClientCertificateIsRequired(t *testing.T) {
	t.Parallel()
	ca, foreignCA := newAuthority(t), newAuthority(t)
	b := startTLS(t, append(ca.flags(), "--tls-client-ca="+ca.caFile())...)
	config := &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.clientCertificate()}}
	typ := freshName("mutual")
	s, w := submitter{mustDialTLS(t, b.submitAddr, config)}, worker{mustDialTLS(t, b.workerAddr, config)}
	w.join(typ)
	checkServes(t, s, w, typ)
	expired, err := tls.X509KeyPair(ca.issue(time.Now().Add(-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	for name, certs := range map[string][]tls.Certificate{
		"no certificate": nil, "one of another authority": {foreignCA.clientCertificate()}, "an expired one": {expired},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(name+" "+tls.VersionName(version), func(t *testing.T) {
				for _, addr := range []string{b.submitAddr, b.workerAddr} {
					checkRefusesTLS(t, addr, &tls.Config{RootCAs: ca.pool, MinVersion: version, MaxVersion: version,
						// Send the certificate even if the server does not accept its authority.
						GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
							if certs == nil {
								return &tls.Certificate{}, nil
							}
							return &certs[0], nil
						}})
				}
			})
		}
	}
	checkServes(t, s, w, typ)
}

func TestCertificateIsReloaded(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	b := startTLS(t, ca.flags()...)
	conf := &tls.Config{RootCAs: ca.pool}
	number := func() *big.Int {
		c := mustDialTLS(t, b.submitAddr, conf)
		defer c.close()
		return c.net.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber
	}
	typ := freshName("reload")
	s, w := submitter{mustDialTLS(t, b.submitAddr, conf)}, worker{mustDialTLS(t, b.workerAddr, conf)}
	w.join(typ)
	before := number()
	_ = ca.flags() // write new files under the same names
	b.Signal(syscall.SIGHUP)
	waitFor(t, "the new certificate is shown", func() error {
		if number().Cmp(before) == 0 {
			return errNotYet
		}
		return nil
	})
	checkServes(t, s, w, typ) // open connections are unaffected
	ca.write("cert.pem", []byte("rubbish"))
	b.Signal(syscall.SIGHUP)
	for range 5 {
		number() // the last valid certificate is still in use
	}
	checkServes(t, s, w, typ)
}

func TestBadTLSFlagsAreRefused(t *testing.T) {
	t.Parallel()
	ca, otherCA := newAuthority(t), newAuthority(t)
	flags, others := ca.flags(), otherCA.flags()
	for _, c := range []struct {
		name  string
		flags []string
		names string
	}{
		{"certificate alone", flags[:1], "tls-key"},
		{"key alone", flags[1:], "tls-cert"},
		{"key of another", []string{flags[0], others[1]}, "tls-"},
		{"no file", []string{"--tls-cert=/no/such.pem", flags[1]}, "/no/such.pem"},
		{"no PEM", []string{"--tls-cert=" + ca.write("no.pem", []byte("x")), flags[1]}, "tls-cert"},
		{"authority without certificate", []string{"--tls-client-ca=" + ca.caFile()}, "tls-client-ca"},
		{"authority that is none", append([]string{"--tls-client-ca=" + ca.write("none.pem", []byte("x"))}, flags...), "tls-client-ca"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if text := refusedWith(t, 0, daemonSpec{flags: c.flags}); !strings.Contains(text, c.names) {
				t.Errorf("the error does not name %s:\n%s", c.names, text)
			}
		})
	}
}

// TestTokensWorkOverTLS: tokens work over TLS, and plain listeners work beside TLS.
func TestTokensWorkOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	submit, work := freeAddr(t), freeAddr(t)
	b := startTLS(t, append(ca.flags(), "--token-file="+tokenFile(t, "tok submit,work\n"),
		"--submit-addr=tcp://"+submit, "--worker-addr=tcp://"+work, "--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0")...)
	conf := &tls.Config{RootCAs: ca.pool}
	s := submitter{mustDialTLS(t, b.submitAddr, conf)}
	s.hello(`,"token":"tok"`)
	s.ping()
	stranger := mustDialTLS(t, b.workerAddr, conf)
	stranger.send(`{"action":"ping"}`)
	stranger.wantError("unauthorized")
	stranger.wantEOF()
	typ := freshName("plain")
	w := worker{b.dialWithToken(t, work, "tok")}
	w.join(typ)
	checkServes(t, s, w, typ)
	plain := submitter{b.dialWithToken(t, submit, "tok")}
	checkServes(t, plain, w, typ)
	checkRefusesTLS(t, submit, conf)
	t.Run("the start-up line has what was bound", func(t *testing.T) {
		b := startTLS(t, append(ca.flags(), "--submit-addr=tcp://127.0.0.1:0", "--worker-addr=tcp://127.0.0.1:0", "--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0")...)
		var reply map[string]any
		if err := json.Unmarshal([]byte(b.Ready), &reply); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"submit_also", "worker_also"} {
			addrs, _ := reply[key].([]any)
			if len(addrs) == 0 {
				t.Errorf("%s is not there: %s", key, b.Ready)
				continue
			}
			addr, _ := addrs[0].(string)
			if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
				t.Errorf("%s is %q: %s", key, addr, b.Ready)
				continue
			}
			dial(t, addr).ping()
		}
	})
}

// freeAddr returns a loopback address on which no program listens at the moment.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
