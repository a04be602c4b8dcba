// Command gloomd is the Gloom broker.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gloom/broker/admin"
	"gloom/broker/server"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/wire"
)

// exitCut is the status after a drain that a second signal cut short. (The
// hub's is 70.)
const exitCut = 3

// healthTime is how long a broker may take to say that it is well.
const healthTime = 2 * time.Second

func main() {
	opt := server.DefaultOptions()
	opt.Version = cli.Version()
	opt.SubmitSocket, opt.WorkerSocket = wire.SubmitPort.Socket(), wire.WorkerPort.Socket()
	os.Exit(cli.Execute(command(&opt, hostMemory(), func() error { return run(opt) }), os.Args[1:], os.Stderr))
}

func command(opt *server.Options, host int64, run func() error) *cobra.Command {
	var config string
	var check bool
	cmd := &cobra.Command{
		Use:     "gloomd",
		Short:   "The Gloom broker: hands jobs to idle workers, best priority first",
		Long:    longHelp,
		Args:    cobra.NoArgs,
		Version: opt.Version,
	}
	f := cmd.Flags()
	bind(f, opt)
	describeMemory(f)
	var names []string
	f.VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
	f.StringVar(&config, "config", os.Getenv("GLOOM_CONFIG"), "file of options in TOML")
	f.BoolVar(&check, "healthcheck", false, "ask the broker that these options describe whether it is well, and exit")
	f.Lookup("config").DefValue = ""
	cmd.PreRunE = func(*cobra.Command, []string) error {
		set := cli.Settings{Prefix: "GLOOM_", Names: names}
		if config != "" {
			var err error
			if set.File, err = cli.ReadFile(config); err != nil {
				return err
			}
		}
		if err := set.Apply(f); err != nil {
			return err
		}
		if err := settleMemory(f, opt, host); err != nil {
			return fault(err)
		}
		return fault(opt.Validate())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if check {
			return healthcheck(cmd.Context(), opt)
		}
		return run()
	}
	cmd.SetVersionTemplate("gloomd {{.Version}}\n")
	return cmd
}

// fault gives what Validate and Start return its exit status and a hint.
func fault(err error) error {
	var option *server.OptionError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &option):
		return cli.Usagef("%w", err).Advise("%s is the same option in the environment; gloomd --help lists all with their defaults",
			cli.Variable("GLOOM_", option.Flag))
	case errors.Is(err, syscall.EADDRINUSE):
		return cli.Failf(cli.ExitFailed, "%w", err).Advise("another program has this address, perhaps another gloomd: ss -ltnp shows which one")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return cli.Failf(cli.ExitFailed, "%w", err).Advise("this host does not have this address: ip address shows which it has")
	case errors.Is(err, syscall.EACCES):
		return cli.Failf(cli.ExitFailed, "%w", err).Advise("ports below 1024, and directories of others, take rights that this process does not have")
	}
	return err
}

func run(opt server.Options) error {
	log, err := daemon.OpenLog(daemon.LogConfig{LevelConsole: opt.LogLevel, Format: opt.LogFormat}, os.Stderr)
	if err != nil {
		return err
	}
	var srv *server.Server
	started := make(chan struct{})
	signals := daemon.Notify(func() {
		<-started
		reload(srv, log)
	})
	defer signals.Close()
	server.Pace(opt.MaxMemory)
	if srv, err = server.Start(opt, log.Logger); err != nil {
		return fault(err)
	}
	close(started)
	srv.ServeHTTP(admin.New(srv, log.Audit))
	announce(srv, log.Logger)
	select {
	case <-srv.Asked():
	case <-signals.Stop.Done():
	}
	return drain(srv, log.Logger, opt.DrainTimeout, signals)
}

func reload(srv *server.Server, log *daemon.Log) {
	if err := srv.Reload(); err != nil {
		log.Error().Err(err).Msg("reloading failed; what could not be read stays as it was")
		return
	}
	log.Audit.Info().Msg("tokens and certificates are read again")
}

// drain ends gracefully; a second signal ends it at once. A drain may also have
// been asked for over HTTP, and whoever stops the service after that wants no
// job cut: their signal is the first one.
func drain(srv *server.Server, log zerolog.Logger, timeout time.Duration, signals *daemon.Signals) error {
	daemon.Stopping()
	log.Info().Dur("drain_timeout", timeout).Msg("draining: no new jobs; a second signal stops at once")
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
			log.Info().Msg("draining already; one more signal stops at once")
		case <-signals.Kill.Done():
			log.Warn().Msg("stopped at once; what was left is lost")
			return cli.Quiet(exitCut)
		}
	}
}

// healthcheck needs no token, and nobody's word for the certificate: it asks
// this host's own broker, and tells it nothing.
func healthcheck(ctx context.Context, opt *server.Options) error {
	if opt.HTTPAddr == "" {
		return cli.Usagef("--healthcheck asks the HTTP address, and there is none").Advise("--http-addr names it")
	}
	var secure *tls.Config
	if opt.TLSCert != "" {
		own, err := tls.LoadX509KeyPair(opt.TLSCert, opt.TLSKey)
		if err != nil {
			return err
		}
		secure = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{own}}
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	return daemon.Healthy(ctx, opt.HTTPAddr, secure)
}

func texts(addrs []net.Addr) (all []string) {
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return all
}

func announce(srv *server.Server, log zerolog.Logger) {
	o := srv.Options()
	e := log.Info().Str("version", o.Version).
		Str("submit_addr", srv.SubmitAddr().String()).Str("worker_addr", srv.WorkerAddr().String())
	for name, port := range map[string]wire.Port{"submit_also": wire.SubmitPort, "worker_also": wire.WorkerPort} {
		if more := srv.Addrs(port)[1:]; len(more) > 0 {
			e = e.Strs(name, texts(more))
		}
	}
	if a := srv.HTTPAddr(); a != nil {
		e = e.Stringer("http_addr", a)
	}
	e.Bool("tls", o.TLSCert != "").Bool("tokens", o.TokenFile != "").Bool("insecure", o.Insecure).
		Int("loops", o.Loops).Int("max_conns", srv.MaxConns()).Int("max_frame", o.MaxFrame).
		Int64("max_memory", o.MaxMemory).Int("max_jobs", o.MaxJobs).Int64("max_bytes", o.MaxBytes).Int("max_type_jobs", o.MaxTypeJobs).
		Int("max_submitter_jobs", o.MaxSubmitterJobs).Int("max_outbound", o.MaxOutbound).
		Int64("max_inbound", o.MaxInbound).Int("retries", o.Retries).
		Msg("gloomd is ready")
	if o.Insecure && o.Exposed() {
		log.Warn().Msg("--insecure: whoever reaches these addresses may submit, work and administer")
	}
	daemon.Ready()
}
