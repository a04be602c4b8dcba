package gloom_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gloom "gloom/clients/go"
	"gloom/wire"
)

func TestHelloSendsOptions(t *testing.T) {
	f := newFakeBroker(t)
	done := make(chan *gloom.Submitter, 1)
	go func() {
		s, err := gloom.Dial(waitContext(t), gloom.Addrs(f.addr()), gloom.Token("s3\"cret"), gloom.ClientName("test/1"),
			gloom.Heartbeat(time.Hour), gloom.MaxFrame(4096))
		if err != nil {
			t.Error(err)
		}
		done <- s
	}()
	broker := f.accept()
	broker.expect(`{"action":"hello","token":"s3\"cret","client":"test/1","heartbeat_ms":3600000}` + "\n")
	select {
	case <-done:
		t.Fatal("dialled before the reply to hello")
	default:
	}
	broker.send(`{"ok":true,"server":"gloomd/1","limits":{"max_frame":100,"max_id":1024,"max_prefetch":9}}`)
	s := receive(t, done, "dial")
	defer s.Close()
	_, err := s.Submit(waitContext(t), gloom.Job{Body: []byte(`"` + strings.Repeat("x", 100) + `"`)})
	wantError(t, err, gloom.ErrSizeError)
	broker.send(`{"action":"ping"}`)
	broker.expect(`{"action":"pong"}`)
	submit(t, s, gloom.Job{ID: "a"})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
}

func TestRefusedHelloEndsDial(t *testing.T) {
	f := newFakeBroker(t)
	go func() {
		broker := f.accept()
		broker.read()
		broker.send(`{"error":"unauthorized","reason":"unknown token"}`)
		broker.close()
	}()
	_, err := gloom.Dial(waitContext(t), gloom.Addrs(f.addr()), gloom.Token("x"))
	wantError(t, err, gloom.ErrUnauthorized)
}

func TestRefusedHelloEndsSubmits(t *testing.T) {
	f := newFakeBroker(t)
	var open atomic.Bool
	go func() {
		for {
			nc, err := f.ln.Accept()
			if err != nil {
				return
			}
			if _, err := readFrame(nc); err != nil {
				return
			}
			if !open.Load() {
				nc.Write(encodeFrames(`{"error":"unauthorized","reason":"unknown token"}`))
				nc.Close()
				continue
			}
			nc.Write(encodeFrames(`{"ok":true,"server":"s","limits":{}}`))
			go echoJobs(nc)
		}
	}()
	s, err := gloom.NewSubmitter(gloom.Addrs(f.addr()), gloom.Token("x"), quickBackoff)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Submit(context.Background(), gloom.Job{})
	wantError(t, err, gloom.ErrUnauthorized)
	open.Store(true)
	eventually(t, "connected", func() bool {
		_, err := s.Do(waitContext(t), gloom.Job{})
		return err == nil
	})
}

func TestUnansweredHelloTimesOut(t *testing.T) {
	f := newFakeBroker(t)
	_, err := gloom.Dial(waitContext(t), gloom.Addrs(f.addr()), gloom.Token("x"), gloom.DialTimeout(20*time.Millisecond))
	wantError(t, err, context.DeadlineExceeded)
	f.ln.Close()
	f = newFakeBroker(t)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { f.accept().read(); cancel() }()
	_, err = gloom.Dial(ctx, gloom.Addrs(f.addr()), gloom.Token("x"))
	wantError(t, err, context.Canceled)
}

func TestSilentBrokerIsLost(t *testing.T) {
	f := newFakeBroker(t)
	go func() {
		broker := f.accept()
		broker.expect(`{"action":"hello","heartbeat_ms":100}` + "\n")
		broker.send(`{"ok":true,"server":"s","limits":{}}`)
	}()
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(f.addr()), gloom.Heartbeat(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := time.Now()
	p := submit(t, s, gloom.Job{ID: "a"})
	wantError(t, resultError(t, p), gloom.ErrLost)
	if d := time.Since(start); d < 200*time.Millisecond {
		t.Errorf("given up after %v", d)
	}
}

func TestUnixSocketCanBeDialled(t *testing.T) {
	f := newUnixFakeBroker(t)
	s, broker := dial(t, f)
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.send(okReply("a"), resultFrame("a", "1"))
	wantResult(t, p, "1")
}

func TestDialerOptionIsUsed(t *testing.T) {
	ours, theirs := net.Pipe()
	var network, addr string
	s, err := gloom.Dial(waitContext(t), gloom.Addrs("unix:/somewhere"), gloom.Dialer(
		func(_ context.Context, n, a string) (net.Conn, error) {
			network, addr = n, a
			return ours, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if network != "unix" || addr != "/somewhere" {
		t.Errorf("dialled %s %s", network, addr)
	}
	broker := newPeer(t, theirs)
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	broker.send(okReply("a"), resultFrame("a", "1"))
	wantResult(t, p, "1")
}

// Without an address, each attempt to connect uses the socket of this host's broker if
// that accepts connections.
func TestDefaultAddress(t *testing.T) {
	local, tcp := newUnixFakeBroker(t), newFakeBroker(t)
	var open atomic.Bool
	var n notices
	dialer := gloom.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		switch {
		case network == "unix" && addr == wire.SubmitPort.Socket() && open.Load():
			return d.DialContext(ctx, network, local.ln.Addr().String())
		case network == "unix":
			return nil, fs.ErrNotExist
		case network == "tcp" && addr == gloom.DefaultSubmitAddr:
			return d.DialContext(ctx, network, tcp.addr())
		}
		return nil, fmt.Errorf("dialled %s %s", network, addr)
	})
	s, err := gloom.Dial(waitContext(t), dialer, quickBackoff, n.option())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tcpConn := tcp.accept()
	if notice, _ := n.find(gloom.EventConnected); notice.Addr != gloom.DefaultSubmitAddr {
		t.Errorf("connected to %s", notice.Addr)
	}
	open.Store(true)
	tcpConn.close()
	broker := local.accept()
	p := submit(t, s, gloom.Job{ID: "a"})
	broker.expect(`{"action":"submit","id":"a","backoff_ms":1000,"body":null}`)
	broker.close()
	var lost *gloom.LostError
	if err := resultError(t, p); !errors.As(err, &lost) || lost.Addr != "unix:"+wire.SubmitPort.Socket() {
		t.Error(err)
	}

	// If TLS is required, nothing is sent in the clear.
	tlsSubmitter, err := gloom.Dial(waitContext(t), dialer, gloom.TLS(&tls.Config{}), gloom.DialTimeout(20*time.Millisecond))
	if err == nil {
		tlsSubmitter.Close()
		t.Fatal("connected")
	}
	if !strings.Contains(err.Error(), gloom.DefaultSubmitAddr) {
		t.Error(err)
	}
}

func TestTLSIsUsed(t *testing.T) {
	cert, pool := selfSigned(t)
	f := newFakeBroker(t)
	f.ln = &deadlineListener{tls.NewListener(f.ln, &tls.Config{Certificates: []tls.Certificate{cert}}), f.ln}
	go func() {
		for {
			nc, err := f.ln.Accept()
			if err != nil {
				return
			}
			go echoJobs(nc)
		}
	}()
	tlsOption := gloom.TLS(&tls.Config{RootCAs: pool})
	for _, addr := range []string{f.addr(), "tls://" + f.addr()} {
		s, err := gloom.Dial(waitContext(t), gloom.Addrs(addr), tlsOption)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r, err := s.Do(waitContext(t), gloom.Job{Body: []byte(`"over tls"`)})
		if err != nil || string(r.Body) != `"over tls"` {
			t.Fatalf("%s, %v", r.Body, err)
		}
	}
	// The scheme alone requires TLS and a certificate that the system trusts.
	_, err := gloom.Dial(waitContext(t), gloom.Addrs("tls://"+f.addr()))
	var authorityErr x509.UnknownAuthorityError
	if !errors.As(err, &authorityErr) {
		t.Errorf("error is %v", err)
	}
}

func TestUnknownCertificateIsRefused(t *testing.T) {
	cert, _ := selfSigned(t)
	f := newFakeBroker(t)
	ln := tls.NewListener(f.ln, &tls.Config{Certificates: []tls.Certificate{cert}})
	go func() {
		if nc, err := ln.Accept(); err == nil {
			nc.(*tls.Conn).Handshake()
			nc.Close()
		}
	}()
	_, err := gloom.Dial(waitContext(t), gloom.Addrs(f.addr()), gloom.TLS(&tls.Config{}))
	var authorityErr x509.UnknownAuthorityError
	if !errors.As(err, &authorityErr) {
		t.Errorf("error is %v", err)
	}
}

type deadlineListener struct {
	net.Listener
	listener net.Listener
}

func (l *deadlineListener) SetDeadline(at time.Time) error {
	return l.listener.(*net.TCPListener).SetDeadline(at)
}

// selfSigned returns a self-signed certificate for 127.0.0.1, and a pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gloom test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestBadOptionsAreRefused(t *testing.T) {
	for message, o := range map[string]gloom.Option{
		"no broker address":     gloom.Addrs(),
		`address "localhost"`:   gloom.Addrs("localhost"),
		`address "unix:"`:       gloom.Addrs("unix:"),
		`address "tls://host"`:  gloom.Addrs("tls://host"),
		`address "host:"`:       gloom.Addrs("host:"),
		`address "host:99999"`:  gloom.Addrs("host:99999"),
		"window 0":              gloom.Window(0),
		"max frame 10":          gloom.MaxFrame(10),
		"heartbeat 1ms":         gloom.Heartbeat(time.Millisecond),
		"backoff 2s … 1s":       gloom.Backoff(2*time.Second, time.Second),
		"dial timeout 0s":       gloom.DialTimeout(0),
		"token and client name": gloom.Token("\xff"),
	} {
		_, err := gloom.NewSubmitter(o)
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("error is %v, want one that says %q", err, message)
		}
	}
}
