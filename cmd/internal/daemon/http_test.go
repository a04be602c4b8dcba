package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAddressAsBrowserShowsIt: an address may be written as a browser shows it, and the health
// check accepts the same text.
func TestAddressAsBrowserShowsIt(t *testing.T) {
	const free = "127.0.0.1:0"
	for _, given := range []string{free, "http://" + free, "http://" + free + "/"} {
		ln, err := Listen(given)
		if err != nil {
			t.Fatalf("%s: %v", given, err)
		}
		web := &http.Server{Handler: NewHealthMux(NewRegistry(), func() error { return errors.New("not ready") })}
		go func() { _ = web.Serve(ln) }()
		addr := ln.Addr().String()
		if err := CheckLocalHealth(t.Context(), strings.Replace(given, free, addr, 1), "cert of another address", "key"); err != nil && given != free {
			t.Errorf("%s: %v", given, err)
		}
		if err := CheckHealth(t.Context(), addr, nil); err != nil {
			t.Errorf("%s: %v", given, err)
		}
		web.Close()
	}
	if _, err := Listen("https://" + free); err == nil || !strings.Contains(err.Error(), "https is not supported") {
		t.Errorf("https is refused with %v", err)
	}
}

// TestHealthOfAnotherProtocol: a program that switches to another protocol and then says nothing is
// not healthy, and the check ends in time.
func TestHealthOfAnotherProtocol(t *testing.T) {
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		io.Copy(io.Discard, c)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := CheckHealth(ctx, ln.Addr().String(), nil); err == nil || !strings.Contains(err.Error(), "101") {
		t.Errorf("the check says %v", err)
	}
}
