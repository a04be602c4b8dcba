// Command gloomd is the Gloom broker.
package main

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"gloom/broker/admin"
	"gloom/broker/server"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/wire"
)

func main() {
	opt := server.DefaultOptions()
	opt.Version = cli.Version()
	opt.SubmitSocket, opt.WorkerSocket = wire.SubmitPort.Socket(), wire.WorkerPort.Socket()
	os.Exit(cli.Execute(command(&opt, hostMemory(), func() error { return run(opt) }), os.Args[1:], os.Stderr))
}

func command(opt *server.Options, host int64, run func() error) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "gloomd",
		Short:   "The Gloom broker: hands jobs to idle workers, best priority first",
		Long:    longHelp,
		Version: opt.Version,
	}
	f := cmd.Flags()
	bind(f, opt)
	describe(f)
	return cli.Daemon{
		Prefix: "GLOOM_",
		Settle: func() error {
			if err := settleMemory(f, opt, host); err != nil {
				return fault(err)
			}
			if opt.LimitsFile != "" {
				var err error
				if opt.Limits, err = readLimits(opt.LimitsFile); err != nil {
					return cli.Usagef("%w", err)
				}
			}
			return fault(opt.Validate())
		},
		Healthy: func(ctx context.Context) error { return healthcheck(ctx, opt) },
		Run:     run,
	}.Command(cmd)
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
		reload(srv, log, opt.LimitsFile)
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
