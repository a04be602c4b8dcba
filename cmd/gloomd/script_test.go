package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gloom/bench/throwaway"
)

// TestMain lets the test binary also run as gloomd, for the transcripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gloomd": main})
}

// TestScripts runs the transcripts in testdata. Besides the usual commands there
// are
//
//	status N CMD…    runs a command that must exit with N
//	taken VAR        sets VAR to an address that somebody else listens on
//	certs            writes cert.pem and key.pem, and other.pem with other.key
//	broker FLAGS…    starts gloomd with HTTP on a free port, $HTTP
//	signal NAME      sends the broker HUP or TERM
//	said TEXT        waits until the broker's log, or the console, says so
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			b := &runningBroker{}
			env.Values[brokerKey{}] = b
			env.Defer(b.kill)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": cmdStatus, "taken": cmdTaken, "certs": cmdCerts,
			"broker": cmdBroker, "signal": cmdSignal, "said": cmdSaid,
		},
	})
}

func cmdStatus(ts *testscript.TestScript, _ bool, args []string) {
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit status %d, want %s", code, args[0])
	}
}

func cmdTaken(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

func cmdCerts(ts *testscript.TestScript, _ bool, _ []string) {
	for _, name := range []string{"cert.pem key.pem", "other.pem other.key"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		ts.Check(err)
		tmpl := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			DNSNames: []string{"broker.example"}, IsCA: true, BasicConstraintsValid: true,
		}
		cert, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
		ts.Check(err)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		ts.Check(err)
		certFile, keyFile, _ := strings.Cut(name, " ")
		ts.Check(os.WriteFile(ts.MkAbs(certFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
		ts.Check(os.WriteFile(ts.MkAbs(keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	}
}

// brokerKey is the key under which a script keeps its broker.
type brokerKey struct{}

// runningBroker is a gloomd in its own process; Daemon is nil until it is started.
type runningBroker struct{ *throwaway.Daemon }

func (b *runningBroker) kill() {
	if b.Daemon != nil {
		b.Kill()
	}
}

func cmdBroker(ts *testscript.TestScript, _ bool, args []string) {
	b := ts.Value(brokerKey{}).(*runningBroker)
	b.kill()
	cmd := exec.Command("gloomd", append([]string{
		"--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0",
	}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "HOME="+ts.MkAbs("."))
	var err error
	b.Daemon, err = throwaway.Start(cmd, "gloomd is ready")
	ts.Check(err)
	ts.Setenv("HTTP", b.Field("http_addr"))
}

func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	sig := map[string]syscall.Signal{"HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM}[args[0]]
	ts.Value(brokerKey{}).(*runningBroker).Signal(sig)
}

func cmdSaid(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Value(brokerKey{}).(*runningBroker).Log.Await(args[0]))
}
