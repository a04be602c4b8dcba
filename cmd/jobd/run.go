package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/door"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/control"
)

// openFunc starts the engine. If it must wait for the database, it calls onWait with the reason.
type openFunc func(ctx context.Context, cfg config.Worker, log zerolog.Logger, registry prometheus.Registerer, onWait func(error)) (control.Daemon, error)

// stopGrace is the time after shutdown_timeout for killing processes and writing results.
const stopGrace = 20 * time.Second

// maxProbers bounds the connections at http_addr.
const maxProbers = 32

// run runs the daemon until it is stopped or fails. It opens the ports first. So a second daemon
// that was started by mistake fails before it touches a row.
func run(cfg *config.Worker, open openFunc, console io.Writer) error {
	daemon.HoldHangup()
	daemon.LimitMemory()
	log, err := daemon.OpenLog(daemon.LogConfig(cfg.Log), console)
	if err != nil {
		return err
	}
	if cfg.Name == "" {
		cfg.Name = daemon.Hostname()
	}
	for _, w := range cfg.Warnings {
		log.Warn().Msg(w)
	}
	signals := daemon.Notify(log.Reopen)
	defer signals.Close()

	serverConfig := cfg.Server
	var probers int
	serverConfig.MaxConnections, probers, err = guard.DivideFileLimit("max_connections", serverConfig.MaxConnections, maxProbers+door.SpareConns, log.Logger)
	if err != nil {
		return err
	}
	server, err := serverConfig.Listen(log.Logger)
	if err != nil {
		return err
	}
	defer server.Close()
	pending := &pendingEngine{reason: errStarting}
	registry := daemon.NewRegistry()
	httpAddr, closeHTTP, err := serveProbes(cfg.HTTPAddr, probers-door.SpareConns, daemon.NewHealthMux(registry, pending.health), log.Logger)
	if err != nil {
		return err
	}
	defer closeHTTP()
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(pending.serverRoutes()) })
	engine, err := open(signals.Stop, *cfg, log.Logger, registry, func(err error) {
		pending.setReason(err)
		daemon.NotifyReady() // the service counts as started, because a restart would not help
	})
	if err != nil {
		if signals.Stop.Err() != nil {
			return nil // the daemon was told to stop while it was starting
		}
		return err
	}
	pending.setEngine(engine)

	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	if cfg.MasterHost != "" && cfg.MasterPort != 0 {
		link := control.MasterLink{
			Host: cfg.MasterHost, Port: cfg.MasterPort, Name: cfg.Name, Password: cfg.Server.Password,
			MaxPause: cfg.MasterReconnectTimeout, Log: log.With().Str("master", cfg.MasterHost).Logger(),
		}
		wg.Go(func() { link.Run(ctx, engine) })
	}
	log.Announce("jobd is ready", func(e *zerolog.Event) {
		e.Stringer("addr", server.Addr())
		if httpAddr != "" {
			e.Str("http_addr", httpAddr)
		}
	}, func(e *zerolog.Event) {
		e.Str("version", cli.Version()).Str("name", cfg.Name).Int("targets", len(cfg.Targets)).Bool("password", cfg.Server.Password != "")
	})
	daemon.NotifyReady()

	select {
	case <-signals.Stop.Done():
		err = stop(cfg, engine, signals, log.Logger)
	case <-engine.Done():
		err = fmt.Errorf("the bridge has ended: %w", engine.Err())
	}
	// All clients that wait for jobs have their answers by now, including those behind the
	// master.
	shutdownCtx, cancel := context.WithTimeout(signals.Kill, 2*time.Second)
	defer cancel()
	server.Shutdown(shutdownCtx)
	leave()
	wg.Wait()
	log.Info().Err(err).Msg("jobd has stopped")
	return err
}

// serveProbes serves metrics and health on an address, if it is not empty, to at most maxProbers
// connections. It returns the address; stop lets requests in progress finish, for at most a second.
func serveProbes(addr string, maxConns int, probes http.Handler, log zerolog.Logger) (boundAddr string, stop func(), err error) {
	if addr == "" {
		return "", func() {}, nil
	}
	ln, err := daemon.Listen(addr)
	if err != nil {
		return "", nil, err
	}
	d := door.NewOnListener(ln, door.Options{Addr: addr, MaxConns: max(1, maxConns)}, log)
	d.Serve(probes)
	return ln.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = d.Shutdown(ctx)
	}, nil
}

// stop ends the engine. Clients are served meanwhile, so that they can query the status.
func stop(cfg *config.Worker, engine control.Daemon, signals *daemon.Signals, log zerolog.Logger) error {
	daemon.NotifyStopping()
	log.Info().Stringer("shutdown_timeout", cfg.ShutdownTimeout).Msgf("stopping: no new rows; waiting up to %s for running jobs; a second signal stops at once", cfg.ShutdownTimeout)
	ctx, cancel := context.WithTimeout(signals.Kill, cfg.ShutdownTimeout+stopGrace)
	defer cancel()
	err := engine.Shutdown(ctx)
	if errors.Is(err, context.Canceled) {
		return daemon.ErrStopped
	}
	return err
}
