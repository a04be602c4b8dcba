package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gloom/broker/jobd/bridge"
	"gloom/broker/jobd/config"
	"gloom/broker/jobd/control"
)

func openBridge(ctx context.Context, cfg config.Worker, log zerolog.Logger, registry prometheus.Registerer) (control.Daemon, error) {
	return bridge.Open(ctx, cfg, log, registry)
}
