package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/server"
	"gloom/broker/wording"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
)

// drain stops gracefully; a second signal stops at once. A drain that was requested over HTTP does
// not count as a signal: a service manager that stops the daemon after such a drain must not cut
// jobs short.
func drain(srv *server.Server, log zerolog.Logger, timeout time.Duration, signals *daemon.Signals) error {
	daemon.NotifyStopping()
	srv.Drain() // before the log says so
	waits := ""
	if leftovers := srv.Leftovers(); leftovers != (wording.Leftovers{}) {
		waits = fmt.Sprintf("; waiting up to %s for %s; a second signal stops at once", timeout, leftovers)
	}
	log.Info().Stringer("drain_timeout", timeout).Msg("draining: no new jobs" + waits)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- srv.Shutdown(ctx) }()
	var first <-chan struct{}
	if signals.Stop.Err() == nil {
		first = signals.Stop.Done()
	}
	for {
		select {
		case err := <-done:
			log.Info().Err(err).Msg("gloomd has stopped")
			return nil
		case <-first:
			first = nil
			log.Info().Msg("already draining; one more signal stops at once")
		case <-signals.Kill.Done():
			log.Warn().Msgf("stopped at once; lost: %s", srv.Leftovers())
			return cli.SilentExit(cli.ExitAborted)
		}
	}
}
