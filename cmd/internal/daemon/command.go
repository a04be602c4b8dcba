package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Exit codes of the daemons.
const (
	exitOK     = 0
	exitFailed = 1
)

// Program is one daemon as its command line shows it.
type Program struct {
	Name   string
	Short  string
	Config string // path of the file that is read when none is named

	// Load reads the configuration. Its error is told as one of the
	// configuration, anything else as it is.
	Load func(path string) error
	// Run does the work until it is told to stop.
	Run func() error
}

// Main runs the program and returns its exit code.
func (p Program) Main(args []string, stdout, stderr io.Writer) int {
	var path string
	var check bool
	cmd := &cobra.Command{
		Use: p.Name, Short: p.Short, Args: cobra.NoArgs, Version: Version(),
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			if err := p.Load(path); err != nil {
				return fmt.Errorf("config parsing error: %w", err)
			}
			if check {
				_, err := fmt.Fprintf(stdout, "%s: no errors\n", path)
				return err
			}
			return p.Run()
		},
	}
	cmd.Flags().StringVar(&path, "config", p.Config, "path of the configuration `file`")
	cmd.Flags().BoolVar(&check, "check", false, "read the configuration, say whether it is right, and exit")
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	return exitOK
}

// ErrStopped ends a program that a second signal has stopped before its time;
// there is nothing more to say about it.
var ErrStopped = errors.New("stopped before everything had ended")

// Hostname is the name of this host, for those that have none configured.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// Version is that of the build.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
