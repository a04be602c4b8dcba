package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
)

// Program is a daemon that reads one configuration file, as a command line. All its errors,
// even those of usage, end in exit status 1.
type Program struct {
	Name       string
	Short      string
	Long       string // the beginning of --help
	ConfigPath string // default path of the file

	// Load reads the configuration. Its error is reported as a configuration error;
	// other errors are reported as they are.
	Load func(path string) error
	// Warnings returns the keys of the file that are ignored; it may be nil.
	Warnings func() []string
	// Run does the work until a signal stops it.
	Run func() error
}

// Main runs the program and returns its exit code.
func (p Program) Main(args []string, stdout, stderr io.Writer) int {
	var path string
	var check bool
	cmd := &cobra.Command{
		Use: p.Name, Short: p.Short, Long: p.Long, Args: cobra.NoArgs, Version: cli.Version(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.Load(path); err != nil {
				if _, e := os.Stat(path); os.IsNotExist(e) && !cmd.Flags().Changed("config") {
					return fmt.Errorf("config parsing error: %w\nhint: %s", err, p.configHint())
				}
				var faults interface{ All() []string }
				if check && errors.As(err, &faults) {
					return errors.New(strings.Join(faults.All(), "\n"))
				}
				return fmt.Errorf("config parsing error: %w", err)
			}
			if check {
				if p.Warnings != nil {
					for _, w := range p.Warnings() {
						fmt.Fprintln(stderr, w)
					}
				}
				_, err := fmt.Fprintf(stdout, "%s: no errors\n", path)
				return err
			}
			return p.Run()
		},
	}
	cmd.Flags().StringVar(&path, "config", p.ConfigPath, "path of the configuration `file`")
	cmd.Flags().BoolVar(&check, "check", false, "read the configuration, list its errors, and exit")
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cli.Prepare(cmd)
	if err := cli.Run(cmd); err != nil {
		var f *cli.Fault
		if !errors.As(err, &f) || f.Err != nil {
			fmt.Fprintln(stderr, err)
		}
		return cli.ExitFailed
	}
	return 0
}

// configHint says what to do if the default configuration file does not exist.
func (p Program) configHint() string {
	name := filepath.Base(p.ConfigPath)
	example := "cmd/jobd/config/examples/" + name + " in the repository"
	if self, err := os.Executable(); err == nil {
		installed := filepath.Join(self, "../../share/doc/gloom/examples", name)
		if _, err := os.Stat(installed); err == nil {
			example = installed
		}
	}
	return fmt.Sprintf("copy the example, %s, or name another file with --config; %s --help says more", example, p.Name)
}

// ErrStopped ends a program that a second signal has stopped early; it is not reported
// again.
var ErrStopped = errors.New("stopped before all work had ended")

// Hostname returns the name of this host, the default where none is configured.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
