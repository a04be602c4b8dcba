package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPingReport: a short time has digits enough, and an address that was not given is marked beside
// one that was.
func TestPingReport(t *testing.T) {
	for _, c := range []struct {
		submit, http string
		elapsed      time.Duration
		want         string
	}{
		{"", defaultHTTPAddr, 84 * time.Microsecond, "worker  127.0.0.1:9999  answers in 0.084 ms\n"},
		{"h:1", defaultHTTPAddr, 2340 * time.Microsecond, "worker  127.0.0.1:9999 (the default)  answers in 2.3 ms\n"},
		{"", "h:2", 1234 * time.Millisecond, "worker  127.0.0.1:9999 (the default)  answers in 1234.0 ms\n"},
	} {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		p := &pingCommand{tool: &tool{stdout: out}}
		if p.conn.httpAddr = c.http; c.submit != "" {
			p.conn.submitAddrs = []string{c.submit}
		}
		err = p.report("worker", "127.0.0.1:9999", "worker-addr", c.elapsed, nil)
		if got, _ := os.ReadFile(out.Name()); err != nil || string(got) != c.want {
			t.Errorf("%q, %v; want %q", got, err, c.want)
		}
	}
}
