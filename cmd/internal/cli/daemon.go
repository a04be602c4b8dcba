package cli

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Daemon is the command line of a daemon. Its options come from flags, the environment and a file,
// in this order of precedence. Validate checks them; then Run runs with them, or CheckHealth only
// checks whether the daemon with these options is healthy. An error with a method Option is about
// the option that this method returns.
type Daemon struct {
	EnvPrefix   string // prefix of environment variables, for example GLOOM_
	Validate    func() error
	CheckHealth func(context.Context) error
	Run         func() error
}

// Command makes cmd a command that starts the daemon. The command's flags must be bound already.
func (d Daemon) Command(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	set := Settings{EnvPrefix: d.EnvPrefix}
	f.VisitAll(func(fl *pflag.Flag) { set.Names = append(set.Names, fl.Name) })
	var config string
	var check bool
	f.StringVar(&config, "config", os.Getenv(d.EnvPrefix+"CONFIG"), "`file` of options in TOML")
	f.Lookup("config").DefValue = ""
	f.BoolVar(&check, "healthcheck", false, "check whether the daemon with these options is healthy, and exit")
	cmd.Args = cobra.NoArgs
	cmd.SetVersionTemplate(cmd.Name() + " {{.Version}}\n")
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if config != "" {
			var at *FileError
			if set.File, err = ReadFile(config); errors.As(err, &at) && at.Line == 0 {
				return Usagef("--config %w", err)
			} else if err != nil {
				return err
			}
		}
		if err := set.Apply(f); err != nil {
			return err
		}
		if check {
			return nil // the running daemon does not use a changed file yet
		}
		WarnMisspelt(cmd.ErrOrStderr(), cmd.Name(), d.EnvPrefix, append(set.Names, "config"))
		return d.explain(cmd, d.Validate())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if check {
			return d.CheckHealth(cmd.Context())
		}
		return d.explain(cmd, d.Run())
	}
	return cmd
}

// explain gives an error of the options or of the start an exit status and a hint.
func (d Daemon) explain(cmd *cobra.Command, err error) error {
	var fault *Fault
	var about interface{ Option() string }
	switch {
	case err == nil || errors.As(err, &fault):
		return err
	case errors.As(err, &about):
		if fl := cmd.Flags().Lookup(about.Option()); fl != nil && len(fl.Annotations[sourceAnnotation]) > 0 {
			return Usagef("%w (from %s)", err, fl.Annotations[sourceAnnotation][0]).SetHint(namesHint, EnvVariable(d.EnvPrefix, about.Option()), about.Option())
		}
		return Usagef("%w", err).SetHint("%s --help lists the options with their defaults", cmd.Name())
	case errors.Is(err, syscall.EADDRINUSE):
		return Failf(ExitFailed, "%w", err).SetHint("another program has this address, perhaps another %s: ss -ltnp shows which one", cmd.Name())
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return Failf(ExitFailed, "%w", err).SetHint("this host does not have this address: ip address lists its addresses")
	case errors.Is(err, syscall.EACCES):
		return Failf(ExitFailed, "%w", err).SetHint("not permitted: ports below 1024 and other users' directories need root")
	}
	return err
}
