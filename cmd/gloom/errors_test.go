package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gloom/cmd/internal/cli"
	"gloom/wire"
)

// TestNoBroker: without an address, the error names the socket and the port that were tried.
func TestNoBroker(t *testing.T) {
	for flag, want := range map[string]string{
		"submit-addr": wire.SubmitPort.Socket() + " or 127.0.0.1:9998: connection refused",
		"worker-addr": wire.WorkerPort.Socket() + " or 127.0.0.1:9999: connection refused",
	} {
		err := unreachableFault(nil, flag, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		if want = "no broker reached at " + want; err.Error() != want || !strings.HasPrefix(want, "no broker reached at /") {
			t.Errorf("%s: %q, want %q", flag, err, want)
		}
	}
}

// TestUnknownHost: if no name server knows the host, the hint asks about the name, and not about
// TLS.
func TestUnknownHost(t *testing.T) {
	err := unreachableFault([]string{"nosuch:9998"}, "submit-addr", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nosuch"}})
	var f *cli.Fault
	if !errors.As(err, &f) || f.Hint != "is the name of the host right? --submit-addr names another address" {
		t.Errorf("%v", err)
	}
}

// TestAnotherProtocol: a program that switches to another protocol and then says nothing is
// neither a broker nor a door, and gloom does not wait for it.
func TestAnotherProtocol(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				io.Copy(io.Discard, c)
			}()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, flag := range []string{"--http-addr", "--door"} {
		text, err := exec.CommandContext(ctx, filepath.Join(bin, "gloom"), "ls", flag, ln.Addr().String()).CombinedOutput()
		if err == nil || ctx.Err() != nil || !strings.Contains(string(text), "101") {
			t.Errorf("%s: %v, it says %q", flag, err, text)
		}
	}
}

// TestCutChange: if a daemon is lost while it changes jobs, the error does not say that it was not
// reached.
func TestCutChange(t *testing.T) {
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"name":"jq-master"}`)
	}))
	defer daemon.Close()
	c := connection{doorAddr: strings.TrimPrefix(daemon.URL, "http://")}
	err := c.operator().call(t.Context(), http.MethodPost, "/v1/types/mail/jobs/cancel", struct{}{}, nil)
	want := "the connection to " + c.doorAddr + " broke: the daemon closed the connection; some jobs may have been changed before that"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestCutBulk: if a broker is lost, or Ctrl-C comes, while it changes jobs, the error says that some may
// have been changed.
func TestCutBulk(t *testing.T) {
	asked := make(chan struct{})
	for name, want := range map[string]string{
		"lost":   "gloom: the connection to %s broke: the broker closed the connection; some jobs may have been changed before that\nhint: the same command changes those that are left\n",
		"Ctrl-C": "gloom: interrupted; some jobs may have been changed before that\n",
	} {
		broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			switch {
			case r.URL.RawQuery == "count=true":
				_, _ = io.WriteString(w, `{"before":2}`)
			case r.Method == http.MethodDelete && r.URL.RawQuery == "":
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, `{"error":"not_empty","reason":"it has jobs"}`)
			case name == "lost":
				panic(http.ErrAbortHandler)
			default:
				asked <- struct{}{}
				<-r.Context().Done()
			}
		}))
		defer broker.Close()
		addr := strings.TrimPrefix(broker.URL, "http://")
		for _, args := range []string{"purge mail --yes", "dead retry mail --all", "forget mail --jobs --yes"} {
			var stderr strings.Builder
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(bin, "gloom"), append(strings.Fields(args), "--http-addr", addr)...)
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if name == "Ctrl-C" {
				select {
				case <-asked:
					_ = cmd.Process.Signal(os.Interrupt)
				case <-ctx.Done():
				}
			}
			_ = cmd.Wait()
			if want := strings.ReplaceAll(want, "%s", addr); stderr.String() != want {
				t.Errorf("%s, %s: %q, want %q", name, args, stderr.String(), want)
			}
		}
	}
}
