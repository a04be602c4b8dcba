// Command serverlessd is a durable job queue over HTTP: clients add lines, and handlers run them.
package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/door"
	"gloom/cmd/internal/launch"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/web"
)

// envPrefix is the prefix of the environment variables that set options.
const envPrefix = "GLOOM_SQ_"

func main() {
	launch.Main()
	os.Exit(cli.Execute(command(), os.Args[1:], os.Stderr))
}

func command() *cobra.Command {
	opt := defaults()
	cmd := &cobra.Command{Use: "serverlessd", Short: "A durable job queue over HTTP: lines come in, handlers run them", Long: longHelp}
	bindFlags(cmd.Flags(), opt)
	cmd.AddCommand(ingestCommand())
	return cli.Daemon{
		EnvPrefix: envPrefix,
		Validate:  opt.validate,
		CheckHealth: func(ctx context.Context) error {
			return daemon.CheckLocalHealth(ctx, opt.door.Addr, opt.door.TLSCert, opt.door.TLSKey)
		},
		Run: func() error { return run(opt) },
	}.Command(cmd)
}

// filesPerRun is the number of files that the daemon has open for a handler's process: the pipes to
// the process, and the files through which the daemon watches it.
const filesPerRun = 8

// run runs the daemon until it has stopped.
func run(opt *options) error {
	daemon.HoldHangup()
	log, err := daemon.OpenLog(daemon.LogConfig{LevelConsole: opt.logLevel, Format: opt.logFormat}, os.Stderr)
	if err != nil {
		return err
	}
	daemon.LimitMemory()
	opt.door.ReservedFiles = filesPerRun * opt.Concurrency
	d, err := door.Listen(opt.door, log.Logger, true, web.ScopeNames...)
	if err != nil {
		return err
	}
	signals := d.Signals(log.Audit, opt.Schedules.Reload)
	defer signals.Close()
	registry := daemon.NewRegistry()
	e, err := engine.Open(opt.Config, log.Logger, registry)
	if err != nil {
		return err
	}
	quitRequested := make(chan struct{})
	opt.web.JournalMax, opt.web.Languages, opt.web.Concurrency, opt.web.MaxProcesses = opt.JournalMax, opt.Languages, opt.Concurrency, opt.MaxProcesses
	opt.web.Version, opt.web.Quit = cli.Version(), sync.OnceFunc(func() { close(quitRequested) })
	opt.web.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	webHandler := web.New(e, d, opt.web)
	d.Serve(webHandler)
	go webHandler.Watch(nil) // it watches for as long as the process runs
	announce(opt, d, log)
	select {
	case <-quitRequested:
	case <-signals.Stop.Done():
	}
	return stop(e, d, opt.Drain, signals, log.Logger)
}

func announce(opt *options, d *door.Door, log *daemon.Log) {
	log.Announce("serverlessd is ready", func(e *zerolog.Event) { e.Stringer("addr", d.Addr()) }, func(e *zerolog.Event) {
		e.Str("version", cli.Version()).Str("dir", opt.Dir).Int("stores", len(opt.Stores)).
			Bool("tls", d.HasTLS()).Bool("tokens", opt.door.TokenFile != "").Strs("langs", opt.Languages).
			Int("concurrency", opt.Concurrency).Bool("handing_out", opt.start)
	})
	if d.IsExposed() {
		log.Warn().Msg("--insecure: any client that reaches this address may add jobs and handlers")
	}
	daemon.NotifyReady()
}

// answerTimeout bounds how long the daemon still answers requests after the engine has ended.
const answerTimeout = 2 * time.Second

// stop stops the daemon. Meanwhile it still answers requests.
func stop(e *engine.Engine, d *door.Door, drain time.Duration, signals *daemon.Signals, log zerolog.Logger) error {
	daemon.NotifyStopping()
	log.Info().Stringer("drain", drain).Msgf("stopping: nothing more is handed out; waiting up to %s for running jobs; a second signal stops at once", drain)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Shutdown(signals.Kill)
		last, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		_ = d.Shutdown(last)
	}()
	select {
	case <-done:
		log.Info().Msg("serverlessd has stopped")
		return nil
	case <-signals.Kill.Done():
		log.Warn().Msg("stopped at once; running jobs will run again")
		return cli.SilentExit(cli.ExitAborted)
	}
}
