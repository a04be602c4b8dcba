// Command jobd-master is the central daemon of a fleet of jobd workers.
package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/door"
	"gloom/cmd/jobd-master/master"
	"gloom/cmd/jobd-master/web"
	"gloom/cmd/jobd/config"
)

const help = `jobd-master knows which jobd serves which target. Applications and jobctl send
it polls, run-manual and send-signal, and it passes them on.

--check reads the configuration and lists all errors with their lines.

Signals: SIGTERM and SIGINT stop it. SIGHUP opens log_file again.

Exit status: 0 after a stop; 1 if it cannot start or the configuration is wrong.`

func main() {
	var cfg *config.Master
	os.Exit(daemon.Program{
		Name:       "jobd-master",
		Short:      "Pass polls and requests on to the workers that serve a target",
		Long:       help,
		ConfigPath: config.DefaultMasterPath,
		Load:       func(path string) (err error) { cfg, err = config.LoadMaster(path); return err },
		Warnings:   func() []string { return cfg.Warnings },
		Run:        func() error { return run(cfg) },
	}.Main(os.Args[1:], os.Stdout, os.Stderr))
}

// baseMemory is the memory that the daemon needs besides unfinished messages, in bytes.
const baseMemory = 32 << 20

func run(cfg *config.Master) error {
	daemon.HoldHangup()
	log, err := daemon.OpenLog(daemon.LogConfig(cfg.Log), os.Stdout)
	if err != nil {
		return err
	}
	// By default, garbage may grow as large as the memory in use before it is collected. This
	// limit makes the collector free the memory of closed connections earlier.
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(int64(cfg.Server.MaxUnfinished) + baseMemory)
	}
	for _, w := range cfg.Warnings {
		log.Warn().Msg(w)
	}
	signals := daemon.Notify(log.Reopen)
	defer signals.Close()
	serverConfig := cfg.Server
	var pageConns int
	serverConfig.MaxConnections, pageConns, err = guard.DivideFileLimit("max_connections", serverConfig.MaxConnections, serverConfig.MaxConnections+door.SpareConns, log.Logger)
	if err != nil {
		return err
	}
	server, err := serverConfig.Listen(log.Logger)
	if err != nil {
		return err
	}
	defer server.Close()
	registry := daemon.NewRegistry()
	m := master.New(master.Options{
		PingInterval: cfg.PingInterval, PokeThrottle: cfg.PokeThrottleInterval,
		WorkerTimeout: cfg.WorkerTimeout, MaxAnswer: cfg.Server.MaxUnfinished / 2, Log: log.Logger, Metrics: registry,
	})
	defer m.Close()
	httpAddr, closeHTTP, err := serveHTTP(cfg, max(1, pageConns-door.SpareConns), m, registry, log.Logger)
	if err != nil {
		return err
	}
	defer closeHTTP()
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(m.Routes())
	}()
	log.Announce("jobd-master is ready", func(e *zerolog.Event) {
		e.Stringer("addr", server.Addr())
		if httpAddr != "" {
			e.Str("http_addr", httpAddr)
		}
	}, func(e *zerolog.Event) {
		e.Str("version", cli.Version()).Bool("password", cfg.Server.Password != "")
	})
	daemon.NotifyReady()

	<-signals.Stop.Done()
	daemon.NotifyStopping()
	log.Info().Msg("stopping")
	// Workers do not close their connections, so do not wait long: only answers that are being
	// sent are completed.
	ctx, cancel := context.WithTimeout(signals.Kill, 500*time.Millisecond)
	defer cancel()
	server.Shutdown(ctx)
	<-served
	log.Info().Msg("jobd-master has stopped")
	return nil
}

// serveHTTP serves metrics, health and the page at http_addr, to at most maxConns connections. It returns
// the address; stop lets requests in progress finish, for at most a second.
func serveHTTP(cfg *config.Master, maxConns int, m *master.Master, registry *prometheus.Registry, log zerolog.Logger) (boundAddr string, stop func(), err error) {
	if cfg.HTTPAddr == "" {
		return "", func() {}, nil
	}
	ln, err := daemon.Listen(cfg.HTTPAddr)
	if err != nil {
		return "", nil, err
	}
	d := door.NewOnListener(ln, door.Options{
		Addr: cfg.HTTPAddr, MaxConns: maxConns,
		Password: cfg.Server.Password, TrustLocal: cfg.Server.Password == "" || cfg.Server.AlwaysAllowLocalhost,
	}, log, web.Scopes...)
	webServer := web.New(web.Config{
		Master: m, Door: d, Log: log,
		Probes: daemon.NewHealthMux(registry, func() error { return nil }),
	})
	d.Serve(webServer)
	go webServer.Watch(nil) // never stopped: it runs as long as the process
	return ln.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = d.Shutdown(ctx)
	}, nil
}
