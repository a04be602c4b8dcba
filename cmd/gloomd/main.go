// Command gloomd is the Gloom broker.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"gloom/broker/admin"
	"gloom/broker/memory"
	"gloom/broker/server"
	"gloom/broker/settings"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/wire"
)

func main() {
	opt := settings.Default()
	opt.Version = cli.Version()
	opt.SubmitSocket, opt.WorkerSocket = wire.SubmitPort.Socket(), wire.WorkerPort.Socket()
	os.Exit(cli.Execute(newCommand(&opt, memory.OfHost(), func() error { return run(opt) }), os.Args[1:], os.Stderr))
}

func newCommand(opt *settings.Options, host int64, run func() error) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "gloomd",
		Short:   "The Gloom broker: hands jobs to idle workers, highest priority first",
		Long:    longHelp,
		Version: opt.Version,
	}
	cli.SetWordHint(cmd, "start", "gloomd without arguments starts a broker")
	cli.SetWordHint(cmd, "stop", "gloom drain, SIGTERM or Ctrl-C stops the broker gracefully")
	f := cmd.Flags()
	bindFlags(f, opt)
	setDefaultTexts(f)
	return cli.Daemon{
		EnvPrefix: "GLOOM_",
		Validate: func() error {
			if err := divideMemory(f, opt, host); err != nil {
				return err
			}
			if opt.LimitsFile != "" {
				var err error
				if opt.Limits, err = readLimits(opt.LimitsFile); err != nil {
					return cli.Usagef("%w", err)
				}
			}
			return opt.Validate()
		},
		CheckHealth: func(ctx context.Context) error { return checkHealth(ctx, opt) },
		Run:         run,
	}.Command(cmd)
}

func run(opt settings.Options) error {
	daemon.HoldHangup()
	log, err := daemon.OpenLog(daemon.LogConfig{LevelConsole: opt.LogLevel, Format: opt.LogFormat}, os.Stderr)
	if err != nil {
		return err
	}
	var srv *server.Server
	startDone := make(chan struct{})
	signals := daemon.Notify(func() {
		<-startDone
		reload(srv, log, opt.LimitsFile)
	})
	defer signals.Close()
	memory.SetPace(opt.MaxMemory)
	if srv, err = server.Start(opt, log.Logger); err != nil {
		return addLineOfFile(opt.LimitsFile, err)
	}
	close(startDone)
	srv.ServeHTTP(admin.New(srv, log.Audit))
	announce(srv, log)
	select {
	case <-srv.DrainAsked():
	case <-signals.Stop.Done():
	}
	return drain(srv, log.Logger, opt.DrainTimeout, signals)
}
