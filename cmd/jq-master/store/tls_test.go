package store

import (
	"crypto/tls"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/redistest"
	"gloom/cmd/internal/testing/proxytest"
)

// TestIdleTLSConnections: a proxy that closes idle connections with TLS, which the pools do not see,
// makes nobody take Redis for away.
func TestIdleTLSConnections(t *testing.T) {
	t.Parallel()
	gate := redistest.NewGate(t, shared.Addr())
	certs := t.TempDir()
	if err := throwaway.WriteCerts(certs); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(certs, "server.pem"), filepath.Join(certs, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	proxytest.Serve(t, l, strings.TrimPrefix(gate.URL(), "redis://"), nil)
	r := open(t, shared)
	r = reopen(t, "rediss://"+l.Addr().String()+"/0?skip_verify=true", r.opt.Namespace)
	var outages atomic.Int64
	r.Watch(func(awayErr error) {
		if awayErr != nil {
			outages.Add(1)
		}
	})
	acquire(t, r)
	seq := uint64(0)
	for range 2 {
		for _, wait := range []time.Duration{0, leaseRenew + time.Second} { // an enqueueing comes first, or a renewal
			gate.Cut()
			time.Sleep(wait + 100*time.Millisecond)
			seq++
			add(t, r, newJob(seq))
		}
	}
	if n := outages.Load(); n != 0 {
		t.Errorf("Redis was away %d times", n)
	}
}
