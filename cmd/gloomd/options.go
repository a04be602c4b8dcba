package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"gloom/broker/server"
)

const longHelp = `gloomd hands jobs from submitters to idle workers, best priority first, and
carries the answers back. It keeps jobs in memory only: a restart loses them.

Every option is also an environment variable (--max-jobs is GLOOM_MAX_JOBS) and
a key of the file that --config names (TOML: max-jobs = 1000). A flag wins over
the environment, the environment over the file.

Signals: SIGTERM and SIGINT drain and stop, a second one stops at once; SIGHUP
reads tokens and certificates again.

Exit status: 0 after a drain, 1 when it cannot start, 2 for options that cannot
be, 3 when a second signal cut a drain short, 70 when it finds itself broken.`

// bind makes a flag of every option.
func bind(f *pflag.FlagSet, o *server.Options) {
	f.SortFlags = false
	f.StringVar(&o.SubmitAddr, "submit-addr", o.SubmitAddr, "where submitters connect: host:port or unix:/path")
	f.StringVar(&o.WorkerAddr, "worker-addr", o.WorkerAddr, "where workers connect")
	f.StringVar(&o.HTTPAddr, "http-addr", o.HTTPAddr, "where operators connect (metrics, health, /v1); empty for nowhere")
	f.StringVar(&o.PlainSubmitAddr, "plain-submit-addr", o.PlainSubmitAddr, "a further address for submitters, without TLS")
	f.StringVar(&o.PlainWorkerAddr, "plain-worker-addr", o.PlainWorkerAddr, "a further address for workers, without TLS")
	f.Var(newSize(&o.MaxFrame), "max-frame", "largest frame")
	f.IntVar(&o.MaxJobs, "max-jobs", o.MaxJobs, "most jobs held in all; 0 is no limit, as for the five below")
	f.Var(newSize(&o.MaxBytes), "max-bytes", "most memory for jobs in all")
	f.IntVar(&o.MaxTypeJobs, "max-type-jobs", o.MaxTypeJobs, "most jobs held of one type")
	f.Var(newSize(&o.MaxTypeBytes), "max-type-bytes", "most memory for jobs of one type")
	f.IntVar(&o.MaxSubmitterJobs, "max-submitter-jobs", o.MaxSubmitterJobs, "most jobs held of one submitter")
	f.Var(newSize(&o.MaxSubmitterBytes), "max-submitter-bytes", "most memory for jobs of one submitter")
	f.IntVar(&o.MaxTypes, "max-types", o.MaxTypes, "most types in use or configured at a time")
	f.IntVar(&o.MaxConns, "max-conns", o.MaxConns, "most connections; 0 is what the limit on open files allows")
	f.Var(newSize(&o.MaxOutbound), "max-outbound", "most bytes that wait for one connection to read them; from half of it on it may not submit, beyond it it is closed")
	f.Var(newSize(&o.MaxInbound), "max-inbound", "most bytes of unfinished frames, of all connections together")
	f.IntVar(&o.MaxPrefetch, "max-prefetch", o.MaxPrefetch, "most jobs out on one connection at a time")
	f.IntVar(&o.Retries, "retries", o.Retries, "how often a job is handed out again, unless it says otherwise")
	f.StringVar(&o.DefaultType, "default-type", o.DefaultType, "type of submits without one; empty refuses them")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "how long a graceful stop waits for jobs to end")
	f.IntVar(&o.DeadLetters, "dead-letters", o.DeadLetters, "failed jobs kept per type; 0 keeps none")
	f.Var(newSize(&o.DeadBytes), "dead-bytes", "most memory for failed jobs in all")
	f.DurationVar(&o.DeadAge, "dead-age", o.DeadAge, "how long failed jobs are kept")
	f.IntVar(&o.Loops, "loops", o.Loops, "event loops")
	f.StringVar(&o.TokenFile, "token-file", o.TokenFile, "file of tokens, a line each: TOKEN SCOPES [TYPES]")
	f.StringVar(&o.TLSCert, "tls-cert", o.TLSCert, "certificate in PEM form: TLS on all addresses but the plain ones")
	f.StringVar(&o.TLSKey, "tls-key", o.TLSKey, "its key")
	f.StringVar(&o.TLSClientCA, "tls-client-ca", o.TLSClientCA, "authority whose certificates clients must have")
	f.BoolVar(&o.Insecure, "insecure", o.Insecure, "allow addresses beyond this host without tokens or client certificates")
	f.StringVar(&o.HTTPHosts, "http-hosts", o.HTTPHosts, "further names, separated by commas, under which the HTTP address may be asked to change something")
	f.BoolVar(&o.Pprof, "pprof", o.Pprof, "serve profiles under /debug/pprof on the HTTP address")
	f.Var(newChoice(&o.LogLevel, "trace", "debug", "info", "warn", "error"), "log-level", "trace, debug, info, warn or error")
	f.Var(newChoice(&o.LogFormat, "json", "console"), "log-format", "json or console")
	f.String("config", "", "file of options in TOML")
}

func envName(flag string) string {
	return strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// settle sets what no flag has set from the environment, or else from the
// config file.
func settle(f *pflag.FlagSet) error {
	path, _ := f.GetString("config")
	if path == "" {
		path = os.Getenv("GLOOM_CONFIG")
	}
	file, err := readConfig(f, path)
	if err != nil {
		return err
	}
	var failed error
	f.VisitAll(func(fl *pflag.Flag) {
		if fl.Changed || failed != nil || fl.Name == "config" || fl.Name == "help" || fl.Name == "version" {
			return
		}
		name := "GLOOM_" + envName(fl.Name)
		if v, ok := os.LookupEnv(name); ok {
			if err := fl.Value.Set(v); err != nil {
				failed = &server.OptionError{Flag: fl.Name, Value: strconv.Quote(v), Reason: err.Error() + " (from " + name + ")"}
			}
		} else if v, ok := file[fl.Name]; ok {
			if err := fl.Value.Set(v); err != nil {
				failed = &server.OptionError{Flag: fl.Name, Value: strconv.Quote(v), Reason: err.Error() + " (from " + path + ")"}
			}
		}
	})
	return failed
}

func readConfig(f *pflag.FlagSet, path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &server.OptionError{Flag: "config", Value: path, Reason: err.Error()}
	}
	var raw map[string]any
	if err := toml.Unmarshal(data, &raw); err != nil {
		return nil, &server.OptionError{Flag: "config", Value: path, Reason: err.Error()}
	}
	out := map[string]string{}
	for k, v := range raw {
		if f.Lookup(k) == nil || k == "config" || k == "help" || k == "version" {
			return nil, &server.OptionError{Flag: "config", Value: path, Reason: fmt.Sprintf("knows no option %q", k)}
		}
		switch v.(type) {
		case string, bool, int64, float64:
			out[k] = fmt.Sprint(v)
		default:
			return nil, &server.OptionError{Flag: "config", Value: path, Reason: fmt.Sprintf("option %q must be a string, a number or true or false", k)}
		}
	}
	return out, nil
}

// size is a flag for bytes: 16MiB, 64k, 1000000.
type size[T int | int64] struct{ to *T }

func newSize[T int | int64](to *T) pflag.Value { return size[T]{to} }

func (s size[T]) String() string {
	if s.to == nil || *s.to == 0 {
		return "0"
	}
	if *s.to%(1<<10) == 0 {
		return strings.ReplaceAll(humanize.IBytes(uint64(*s.to)), " ", "")
	}
	return strconv.FormatInt(int64(*s.to), 10)
}

func (s size[T]) Set(v string) error {
	n, err := humanize.ParseBytes(v)
	if err != nil || n > 1<<50 {
		return fmt.Errorf("is no size in bytes such as 16MiB or 1000000")
	}
	*s.to = T(n)
	return nil
}

func (size[T]) Type() string { return "bytes" }

// choice is a flag for one of a few words.
type choice struct {
	to    *string
	words []string
}

func newChoice(to *string, words ...string) pflag.Value { return choice{to, words} }

func (c choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

func (c choice) Set(v string) error {
	for _, w := range c.words {
		if v == w {
			*c.to = v
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(c.words, ", "))
}

func (choice) Type() string { return "word" }

// version is the module's, or the commit's.
func version() string {
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
