package gloom

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"
)

// splitAddr parses "host:port", "tls://host:port" and "unix:/path".
func splitAddr(s string) (network, addr string, secure bool, err error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return "", "", false, fmt.Errorf("gloom: address %q: path is empty", s)
		}
		return "unix", path, false, nil
	}
	addr, secure = strings.CutPrefix(s, "tls://")
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
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

var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3},
	Control:         limitUnacked,
}

func (c *config) connectTo(ctx context.Context, broker string) (net.Conn, error) {
	network, addr, secure, err := splitAddr(broker)
	if err != nil {
		return nil, err
	}
	nc, err := c.dial(ctx, network, addr)
	if err != nil || c.tls == nil && !secure {
		return nc, err
	}
	conf := cmp.Or(c.tls, &tls.Config{})
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
