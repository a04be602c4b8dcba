// Command gloomd is the Gloom broker.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"gloom/broker/admin"
	"gloom/broker/server"
)

// Exit codes: 0 after a drain, 1 when the broker could not start, 2 for options
// that cannot be, 3 when a second signal cut a drain short. (The hub's is 70.)
const (
	exitFailed = 1
	exitUsage  = 2
	exitCut    = 3
)

func main() {
	opt := server.DefaultOptions()
	opt.Version = version()
	cmd := command(&opt, func() error { return run(opt) })
	err := cmd.Execute()
	code := status(err)
	switch code {
	case exitFailed:
		fmt.Fprintf(os.Stderr, "gloomd: %v\n", err)
	case exitUsage:
		fmt.Fprintf(os.Stderr, "gloomd: %v\n%s\n", err, hint(err))
	}
	os.Exit(code)
}

// status is the process's exit status.
func status(err error) int {
	var exit *exitError
	var option *server.OptionError
	var start *startError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &start) && !errors.As(err, &option):
		return exitFailed
	}
	return exitUsage
}

// startError says why the broker cannot start, though the command line can be.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// exitError ends the process with a status; what there is to say is logged.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

func hint(err error) string {
	var oe *server.OptionError
	if errors.As(err, &oe) {
		return "hint: the same option is GLOOM_" + envName(oe.Flag) + " in the environment; gloomd --help lists all with their defaults"
	}
	return "hint: gloomd --help lists all options"
}

func command(opt *server.Options, run func() error) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "gloomd",
		Short:         "The Gloom broker: hands jobs to idle workers, best priority first",
		Long:          longHelp,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       opt.Version,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := settle(cmd.Flags()); err != nil {
				return err
			}
			return opt.Validate()
		},
		RunE: func(*cobra.Command, []string) error { return run() },
	}
	cmd.SetVersionTemplate("gloomd {{.Version}}\n")
	bind(cmd.Flags(), opt)
	return cmd
}

func run(opt server.Options) error {
	log := logger(opt, os.Stderr)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	srv, err := server.Start(opt, log)
	if err != nil {
		return &startError{err}
	}
	srv.ServeHTTP(admin.New(srv, log))
	announce(srv, log)
	signalled := false
	for waiting := true; waiting; {
		select {
		case <-srv.Asked():
			waiting = false
			continue
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				waiting, signalled = false, true
				continue
			}
		}
		if err := srv.Reload(); err != nil {
			log.Error().Err(err).Msg("reloading failed; what could not be read stays as it was")
		} else {
			log.Info().Msg("tokens and certificates are read again")
		}
	}
	return drain(srv, log, opt.DrainTimeout, signals, signalled)
}

// drain ends gracefully; a second signal ends it at once. signalled says that
// there was a first one: a drain may also be asked for over HTTP, and whoever
// stops the service after that wants no job cut.
func drain(srv *server.Server, log zerolog.Logger, timeout time.Duration, signals <-chan os.Signal, signalled bool) error {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	log.Info().Dur("drain_timeout", timeout).Msg("draining: no new jobs; a second signal stops at once")
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- srv.Shutdown(ctx) }()
	for {
		select {
		case err := <-done:
			log.Info().Err(err).Msg("gloomd has stopped")
			return nil
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				continue
			}
			if !signalled {
				signalled = true
				log.Info().Msg("draining already; one more signal stops at once")
				continue
			}
			log.Warn().Msg("stopped at once; what was left is lost")
			return &exitError{exitCut}
		}
	}
}

func announce(srv *server.Server, log zerolog.Logger) {
	o := srv.Options()
	e := log.Info().Str("version", o.Version).
		Str("submit_addr", srv.SubmitAddr().String()).Str("worker_addr", srv.WorkerAddr().String())
	for name, a := range map[string]net.Addr{
		"http_addr": srv.HTTPAddr(), "plain_submit_addr": srv.PlainSubmitAddr(), "plain_worker_addr": srv.PlainWorkerAddr(),
	} {
		if a != nil {
			e = e.Str(name, a.String())
		}
	}
	e.Bool("tls", o.TLSCert != "").Bool("tokens", o.TokenFile != "").Bool("insecure", o.Insecure).
		Int("loops", o.Loops).Int("max_conns", srv.MaxConns()).Int("max_frame", o.MaxFrame).
		Int("max_jobs", o.MaxJobs).Int64("max_bytes", o.MaxBytes).Int("max_type_jobs", o.MaxTypeJobs).
		Int("max_submitter_jobs", o.MaxSubmitterJobs).Int("max_outbound", o.MaxOutbound).
		Int64("max_inbound", o.MaxInbound).Int("retries", o.Retries).
		Msg("gloomd is ready")
	if o.Insecure && o.Exposed() {
		log.Warn().Msg("--insecure: whoever reaches these addresses may submit, work and administer")
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
}

func logger(opt server.Options, to io.Writer) zerolog.Logger {
	level, _ := zerolog.ParseLevel(opt.LogLevel)
	if opt.LogFormat == "console" {
		to = zerolog.ConsoleWriter{Out: to, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(to).Level(level).With().Timestamp().Logger().
		Hook(newRateLimit(logRate))
}
