package main

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	"gloom/broker/server"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
)

// healthTime is how long a broker may take to say that it is well.
const healthTime = 2 * time.Second

// healthcheck needs no token, and nobody's word for the certificate: it asks
// this host's own broker, and tells it nothing.
func healthcheck(ctx context.Context, opt *server.Options) error {
	if opt.HTTPAddr == "" {
		return cli.Usagef("--healthcheck asks the HTTP address, and there is none").Advise("--http-addr names it")
	}
	addr, certificate := opt.HTTPAddr, opt.TLSCert != "" && !strings.HasPrefix(opt.HTTPAddr, "unix:")
	if scheme, rest, ok := strings.Cut(addr, "://"); ok {
		addr, certificate = rest, scheme == "tls"
	}
	var secure *tls.Config
	if certificate {
		own, err := tls.LoadX509KeyPair(opt.TLSCert, opt.TLSKey)
		if err != nil {
			return err
		}
		secure = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{own}}
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	return daemon.Healthy(ctx, addr, secure)
}
