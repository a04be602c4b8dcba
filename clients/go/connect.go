package gloom

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// splitAddr parses "host:port", "tls://host:port" and "unix:/path".
func splitAddr(s string) (network, addr string, secure bool, err error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok && path != "" {
		return "unix", path, false, nil
	}
	addr, secure = strings.CutPrefix(s, "tls://")
	_, port, err := net.SplitHostPort(addr)
	if _, badPort := net.LookupPort("tcp", port); err != nil || badPort != nil || port == "" {
		return "", "", false, fmt.Errorf("gloom: address %q: want host:port, tls://host:port or unix:/path", s)
	}
	return "tcp", addr, secure, nil
}

// connect opens a connection and returns its address. If no address was given, it tries the
// socket of this host's broker first.
func (c *config) connect(ctx context.Context, broker string) (net.Conn, string, error) {
	if local := "unix:" + c.socket; c.socket != "" && c.tls == nil {
		if nc, err := c.connectTo(ctx, local); err == nil {
			return nc, local, nil
		}
	}
	nc, err := c.connectTo(ctx, broker)
	return nc, broker, err
}

var dialer = net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}}

func (c *config) connectTo(ctx context.Context, broker string) (net.Conn, error) {
	network, addr, secure, err := splitAddr(broker)
	conf := cmp.Or(c.tls, &tls.Config{})
	if err == nil && conf.GetConfigForClient != nil {
		conf, err = conf.GetConfigForClient(nil)
	}
	if err != nil {
		return nil, err
	}
	nc, err := c.dialFunc(ctx, network, addr)
	if err != nil || c.tls == nil && !secure {
		return nc, err
	}
	if conf.ServerName == "" && network == "tcp" {
		conf = conf.Clone()
		conf.ServerName, _, _ = net.SplitHostPort(addr)
	}
	tc := tls.Client(nc, conf)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return tc, nil
}

// newRetry spaces attempts to connect: exponential backoff with full jitter. The returned function
// reports n and waits until the next attempt is due, or stop is closed.
func (c *config) newRetry() func(n Notice, stop <-chan struct{}) (stopped bool) {
	limit, waitEndedAt := c.backoffBase, time.Now() // the limit of the next wait, and when the last one ended
	return func(n Notice, stop <-chan struct{}) bool {
		if n.Event == EventLost && time.Since(waitEndedAt) >= c.backoffMax {
			limit = c.backoffBase
		}
		n.Wait = rand.N(limit)
		limit += min(limit, c.backoffMax-limit)
		c.notify(n)
		select {
		case <-time.After(n.Wait):
			waitEndedAt = time.Now()
			return false
		case <-stop:
			return true
		}
	}
}

// isPermanent reports whether another attempt would only get the same refusal.
func isPermanent(err error) bool {
	r, ok := errors.AsType[*RefusedError](err)
	return ok && r.Code != ErrOverloaded && r.Code != ErrDraining && r.Code != ErrInvalidState
}
