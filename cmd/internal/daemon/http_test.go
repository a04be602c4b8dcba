package daemon

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// TestAddress: an address may be written as a browser shows it, and the health check takes the
// same text.
func TestAddress(t *testing.T) {
	const free = "127.0.0.1:0"
	for _, given := range []string{free, "http://" + free, "http://" + free + "/"} {
		ln, err := Listen(given)
		if err != nil {
			t.Fatalf("%s: %v", given, err)
		}
		web := &http.Server{Handler: Probes(NewRegistry(), func() error { return errors.New("not ready") })}
		go func() { _ = web.Serve(ln) }()
		addr := ln.Addr().String()
		if err := HealthyOwn(t.Context(), strings.Replace(given, free, addr, 1), "cert of another address", "key"); err != nil && given != free {
			t.Errorf("%s: %v", given, err)
		}
		if err := Healthy(t.Context(), addr, nil); err != nil {
			t.Errorf("%s: %v", given, err)
		}
		web.Close()
	}
	if _, err := Listen("https://" + free); err == nil || !strings.Contains(err.Error(), "no TLS") {
		t.Errorf("https is refused with %v", err)
	}
}
