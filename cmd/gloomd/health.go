package main

import (
	"context"

	"gloom/broker/settings"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
)

func checkHealth(ctx context.Context, opt *settings.Options) error {
	if opt.HTTPAddr == "" {
		return cli.Usagef("--healthcheck needs an HTTP address, but there is none").SetHint("--http-addr names it")
	}
	return daemon.CheckLocalHealth(ctx, opt.HTTPAddr, opt.TLSCert, opt.TLSKey)
}
