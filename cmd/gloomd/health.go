package main

import (
	"context"
	"time"

	"gloom/broker/server"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
)

// healthTime is how long a broker may take to say that it is well.
const healthTime = 2 * time.Second

func healthcheck(ctx context.Context, opt *server.Options) error {
	if opt.HTTPAddr == "" {
		return cli.Usagef("--healthcheck asks the HTTP address, and there is none").Advise("--http-addr names it")
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	return daemon.HealthyOwn(ctx, opt.HTTPAddr, opt.TLSCert, opt.TLSKey)
}
