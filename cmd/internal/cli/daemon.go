package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Daemon is how a daemon starts. Its options come from flags, the environment
// and a file, in this order; Settle checks them, and then Run has them, or
// Healthy where it is only asked whether the daemon of these options is well.
type Daemon struct {
	Prefix  string // of variables, GLOOM_ for one
	Settle  func() error
	Healthy func(context.Context) error
	Run     func() error
}

// Command makes a command, whose options are bound, that of the daemon.
func (d Daemon) Command(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	set := Settings{Prefix: d.Prefix}
	f.VisitAll(func(fl *pflag.Flag) { set.Names = append(set.Names, fl.Name) })
	var config string
	var check bool
	f.StringVar(&config, "config", os.Getenv(d.Prefix+"CONFIG"), "file of options in TOML")
	f.Lookup("config").DefValue = ""
	f.BoolVar(&check, "healthcheck", false, "ask the daemon that these options describe whether it is well, and exit")
	cmd.Args = cobra.NoArgs
	cmd.SetVersionTemplate(cmd.Name() + " {{.Version}}\n")
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if config != "" {
			if set.File, err = ReadFile(config); err != nil {
				return err
			}
		}
		if err := set.Apply(f); err != nil {
			return err
		}
		return d.Settle()
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if check {
			return d.Healthy(cmd.Context())
		}
		return d.Run()
	}
	return cmd
}
