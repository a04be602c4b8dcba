// Command jq-master is a job queue over HTTP. Pushers enqueue jobs; the master pushes them to
// workers, or workers fetch them. The master retries failed jobs, enforces limits, and keeps
// results.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
)

func main() {
	opt := defaults()
	os.Exit(cli.Execute(command(&opt, func() error { return run(&opt) }), os.Args[1:], os.Stderr))
}

func command(opt *options, run func() error) *cobra.Command {
	cmd := &cobra.Command{Use: "jq-master", Short: "A job queue over HTTP, with MessagePack or JSON", Long: longHelp}
	opt.bindFlags(cmd.Flags())
	return cli.Daemon{
		EnvPrefix: "GLOOM_JQ_",
		Validate:  opt.validate,
		CheckHealth: func(ctx context.Context) error {
			return daemon.CheckLocalHealth(ctx, opt.door.Addr, opt.door.TLSCert, opt.door.TLSKey)
		},
		Run: run,
	}.Command(cmd)
}
