// Command jq-master is a job queue over HTTP: pushers enqueue, workers get jobs
// pushed or fetch them, and the master retries, limits, and keeps results.
package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
)

func main() {
	opt := defaults()
	os.Exit(cli.Execute(command(&opt, func() error { return run(&opt) }), os.Args[1:], os.Stderr))
}

func command(opt *options, run func() error) *cobra.Command {
	var config string
	var check bool
	cmd := &cobra.Command{
		Use:   "jq-master",
		Short: "A job queue over HTTP, with MessagePack or JSON",
		Long:  longHelp,
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	opt.bind(f)
	var names []string
	f.VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
	f.StringVar(&config, "config", os.Getenv("GLOOM_JQ_CONFIG"), "file of options in TOML")
	f.BoolVar(&check, "healthcheck", false, "ask the master that these options describe whether it is well, and exit")
	f.Lookup("config").DefValue = ""
	cmd.PreRunE = func(*cobra.Command, []string) error {
		set := cli.Settings{Prefix: "GLOOM_JQ_", Names: names}
		if config != "" {
			var err error
			if set.File, err = cli.ReadFile(config); err != nil {
				return err
			}
		}
		if err := set.Apply(f); err != nil {
			return err
		}
		return fault(opt.validate())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if check {
			return daemon.HealthyOwn(cmd.Context(), opt.door.Addr, opt.door.TLSCert, opt.door.TLSKey)
		}
		return fault(run())
	}
	cmd.SetVersionTemplate("jq-master {{.Version}}\n")
	return cmd
}

// fault gives an error of options its exit status and a hint.
func fault(err error) error {
	var option *guard.OptionError
	if errors.As(err, &option) {
		return cli.Usagef("%w", err).Advise("%s is the same option in the environment; jq-master --help lists all with their defaults",
			cli.Variable("GLOOM_JQ_", option.Flag))
	}
	return err
}
