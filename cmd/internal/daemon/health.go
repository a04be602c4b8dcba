package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"gloom/broker/guard"
)

// healthTimeout bounds the wait for a daemon's answer.
const healthTimeout = 2 * time.Second

// CheckLocalHealth is like CheckHealth, but asks this host's own daemon at its configured address,
// with the daemon's certificate, if any. It sends nothing secret, so it needs no token and does not
// verify the certificate.
func CheckLocalHealth(ctx context.Context, addr, cert, key string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	certificate := cert != "" && !strings.HasPrefix(addr, "unix:")
	if rest, scheme := guard.CutHTTP(addr); scheme != "" {
		addr, certificate = rest, scheme == "https"
	} else if scheme, rest, ok := strings.Cut(addr, "://"); ok {
		addr, certificate = rest, scheme == "tls"
	}
	if !certificate {
		return CheckHealth(ctx, addr, nil)
	}
	tlsConfig := &tls.Config{InsecureSkipVerify: true}
	// While certificate and key are being replaced, one may be missing: the daemon still has the
	// old pair.
	if pair, err := guard.LoadKeyPair(cert, key); err == nil {
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	return CheckHealth(ctx, addr, tlsConfig)
}

// CheckHealth asks a daemon's HTTP address, "host:port" or "unix:/path", for /healthz, with TLS if
// tlsConfig is not nil. A nil error means that the daemon is healthy. A daemon that refuses our
// certificate has answered, and so is healthy.
func CheckHealth(ctx context.Context, addr string, tlsConfig *tls.Config) error {
	network, scheme := "tcp", "http"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	if tlsConfig != nil {
		scheme = "https"
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   tlsConfig,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	var op *net.OpError
	switch {
	case tlsConfig != nil && errors.As(err, &op) && op.Op == "remote error":
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer in time", addr)
	case errors.As(err, &op):
		return fmt.Errorf("%s: %w", addr, op.Err)
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	defer context.AfterFunc(ctx, func() { resp.Body.Close() })() // after 101 the library does not end reading with ctx
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("%s answers %s: %s", addr, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// JoinReasons returns an error with the texts of all errs that are not nil, or nil if there are
// none.
func JoinReasons(errs ...error) (all error) {
	for _, err := range errs {
		switch {
		case all == nil:
			all = err
		case err != nil:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
