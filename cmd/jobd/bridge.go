package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gloom/cmd/jobd/bridge"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/control"
)

func openBridge(ctx context.Context, cfg config.Worker, log zerolog.Logger, registry prometheus.Registerer, onWait func(error)) (control.Daemon, error) {
	return bridge.Await(ctx, cfg, log, registry, onWait)
}
