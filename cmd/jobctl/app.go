package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gloom/cmd/internal/cli"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/peer"
)

// app is one run of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	flags     *pflag.FlagSet
	fromFlags config.Jobctl // the settings that flags give
	path      string        // path of the configuration file
	prompt    bool          // ask for the password
	json      bool
	noColor   bool
	timeout   time.Duration

	settings config.Jobctl // the settings of the file, overridden by the flags
	log      zerolog.Logger
	conn     *peer.Conn
}

func (a *app) bind(f *pflag.FlagSet) {
	a.flags = f
	home, _ := os.UserHomeDir()
	f.BoolVar(&a.fromFlags.Master, "master", false, "connect to jobd-master")
	f.StringVar(&a.fromFlags.Host, "host", "127.0.0.1", "`address` of jobd or jobd-master")
	f.IntVar(&a.fromFlags.Port, "port", 0, "`port` (default 7080, with --master 7081)")
	f.StringVar(&a.path, "config", filepath.Join(home, config.DefaultJobctlFile), "path of the configuration `file`")
	f.BoolVar(&a.prompt, "password", false, "ask for the password")
	f.StringVar(&a.fromFlags.LogLevel, "log-level", "warn", "`level`: trace, debug, info, warn or error")
	f.BoolVar(&a.json, "json", false, "print the daemon's answer as JSON")
	f.BoolVar(&a.noColor, "no-color", false, "no colours on a terminal (like NO_COLOR)")
	f.DurationVar(&a.timeout, "timeout", 30*time.Second, "how long to wait for an answer; run-manual and recover wait without a limit")
}

// settle merges the file and the flags, which override it. The file may be absent, unless a flag names it.
func (a *app) settle() error {
	settings := config.DefaultJobctl()
	if _, err := os.Stat(a.path); err == nil || a.flags.Changed("config") {
		if settings, err = config.LoadJobctl(a.path); err != nil {
			return fmt.Errorf("config parsing error: %w", err)
		}
	}
	if a.flags.Changed("master") {
		settings.Master = a.fromFlags.Master
	}
	if a.flags.Changed("host") {
		settings.Host = a.fromFlags.Host
	}
	if a.flags.Changed("port") {
		if settings.Port = a.fromFlags.Port; settings.Port < 1 || settings.Port > 65535 {
			return fmt.Errorf("--port must be between 1 and 65535, got %d", settings.Port)
		}
	}
	if a.timeout <= 0 {
		return fmt.Errorf("--timeout must be more than 0, got %v", a.timeout)
	}
	if a.flags.Changed("log-level") {
		if settings.LogLevel = a.fromFlags.LogLevel; config.CheckLevel(settings.LogLevel) != nil {
			return fmt.Errorf("--log-level: %w", config.CheckLevel(settings.LogLevel))
		}
	}
	if settings.Port == 0 {
		settings.Port = config.WorkerPort
		if settings.Master {
			settings.Port = config.MasterPort
		}
	}
	level, err := zerolog.ParseLevel(settings.LogLevel)
	if err != nil {
		return err
	}
	a.log = zerolog.New(zerolog.ConsoleWriter{Out: a.stderr, TimeFormat: time.TimeOnly, NoColor: true}).Level(level).With().Timestamp().Logger()
	for _, w := range settings.Warnings {
		a.log.Warn().Msg(w)
	}
	a.settings = *settings
	return nil
}

// mode is the kind of daemon that a command needs.
type mode int

const (
	forWorker mode = iota
	forMaster
	forBoth
)

// action returns the function that cobra runs for a command that needs a daemon.
func (a *app) action(m mode, fn func(args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.settle(); err != nil {
			return err
		}
		switch {
		case m == forWorker && a.settings.Master:
			return unsupported(cmd.Name()).SetHint("this is a command for a worker: leave out --master, or use --master=false")
		case m == forMaster && !a.settings.Master:
			return unsupported(cmd.Name()).SetHint("this is a command for the master: add --master")
		}
		if a.prompt {
			var err error
			if a.settings.Password, err = a.promptPassword("Enter password: "); err != nil {
				return err
			}
		}
		return fn(args)
	}
}

func unsupported(command string) *cli.Fault {
	return cli.Failf(cli.ExitFailed, "Unsupported command: '%s'", command)
}

func (a *app) connect() error {
	if a.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(a.timeout, 10*time.Second))
	defer cancel()
	s := a.settings
	conn, err := peer.Dial(ctx, s.Host, s.Port, peer.Options{Password: s.Password, MaxMessage: 1 << 30, Log: a.log}, nil)
	if err != nil {
		daemon := "jobd"
		if s.Master {
			daemon = "jobd-master"
		}
		return cli.Failf(cli.ExitFailed, "Connection failure: %w", err).
			SetHint("check that %s is running, and that --host and --port give its address", daemon)
	}
	a.log.Info().Str("host", s.Host).Int("port", s.Port).Bool("master", s.Master).Msg("connected")
	a.conn = conn
	return nil
}

// request sends a request and waits for the answer, at most for --timeout. If wait is true, there
// is no limit, because the answer comes only when the jobs have ended.
func (a *app) request(typ string, data any, wait bool) (json.RawMessage, error) {
	if err := a.connect(); err != nil {
		return nil, err
	}
	ctx := context.Background()
	if !wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	answer, err := a.conn.Call(ctx, typ, data)
	var refused *peer.RemoteError
	switch {
	case errors.As(err, &refused):
		//lint:ignore ST1005 as in the original program
		return nil, fmt.Errorf("Worker error: %w", refused)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer to %s within %v", typ, a.timeout)
	case errors.Is(err, peer.ErrClosed):
		return nil, fmt.Errorf("the connection was closed before %s was answered", typ)
	}
	return answer, err
}

// send sends a request whose answer is one word, and prints it.
func (a *app) send(typ string, data any) error {
	answer, err := a.request(typ, data, false)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(answer)
	}
	_, err = fmt.Fprintln(a.stdout, eot.String(answer))
	return err
}

func (a *app) printJSON(data json.RawMessage) error {
	if data == nil {
		data = json.RawMessage("null")
	}
	_, err := fmt.Fprintf(a.stdout, "%s\n", data)
	return err
}

func (a *app) close() {
	if a.conn != nil {
		a.conn.Close()
	}
}
