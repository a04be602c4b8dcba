package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"gloom/broker/guard"
	"gloom/broker/settings"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/door"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
	"gloom/cmd/serverlessd/web"
)

const longHelp = `serverlessd takes payload lines over HTTP, keeps them in a journal until a store
has them, and runs each with the handler of its type until it succeeds, fails
for good or is out of time.

Every option is also an environment variable (--max-body is GLOOM_SQ_MAX_BODY)
and a key of the file that --config names (TOML: max-body = "1MiB"). A flag
overrides the environment, and the environment overrides the file.

Signals: SIGTERM and SIGINT drain and stop; a second one stops at once. SIGHUP
reloads tokens, certificates and the schedules file.

Exit status: 0 after a drain; 1 if it cannot start; 2 for invalid options; 3 if
a second signal cut a drain short.`

// options holds all options of the daemon.
type options struct {
	engine.Config
	door       door.Options
	workerAddr string
	start      bool
	fsync      bool
	web        web.Options
	langs      string
	schedules  string
	httpAllow  []string

	logLevel, logFormat string
	checks              []func() error // each returns an error for an option out of its range
}

func defaults() *options {
	o := &options{
		start: true, fsync: true, web: web.Options{MaxBody: 16 << 20, MaxLines: 100_000, MaxBodies: 64}, langs: "http,gloom", logLevel: "info", logFormat: "auto",
	}
	o.Broker.Program, o.Broker.SubmitOnly = "serverlessd", true
	o.Dir = "serverlessd-data"
	o.door.Addr = "127.0.0.1:3001"
	o.LockTTL, o.Sweep = time.Minute, 5*time.Second
	o.RetryDelay, o.RetryMax, o.RetryFor = 10*time.Second, 5*time.Minute, 6*time.Hour
	o.KeepDone, o.KeepUnrun = 14*24*time.Hour, 30*24*time.Hour
	o.MaxLineBytes, o.MaxResult, o.JournalMax, o.DiskReserve = 1<<20, 64<<10, 10<<30, 64<<20
	o.Concurrency, o.Batch = 4*runtime.NumCPU(), 10
	o.JobTimeout, o.JobCPU = 2*time.Minute, 30*time.Second
	o.MaxProcesses, o.JobsPerProcess, o.MaxMemory = 32, 1000, 1<<30
	o.Drain = 30 * time.Second
	return o
}

// maxResult is the largest value of --max-result.
const maxResult = 16 << 20

// bindFlags defines a flag for every option, with its range.
func bindFlags(f *pflag.FlagSet, o *options) {
	f.SortFlags = false
	span := func(to *time.Duration, name string, low, high time.Duration, usage string) {
		f.Var((*job.Duration)(to), name, usage)
		o.checks = append(o.checks, func() error { return checkRange(name, job.Duration(*to), job.Duration(low), job.Duration(high)) })
	}
	count := func(to *int, name string, low, high int, usage string) {
		f.IntVar(to, name, *to, usage)
		o.checks = append(o.checks, func() error { return checkRange(name, *to, low, high) })
	}
	o.door.AddFlags(f)
	f.StringVar(&o.Dir, "dir", o.Dir, "`directory` of the journal, the events log and, without --store, the store; only one daemon at a time can use it")
	f.StringArrayVar(&o.Stores, "store", o.Stores, "`store` where jobs are kept: sqlite:PATH or mysql://USER:PASS@HOST:PORT/DB; may be given several times")
	f.BoolVar(&o.fsync, "fsync", o.fsync, "accept jobs only when they are on the disk; false: when the operating system has them")
	f.Var(cli.SizeFlag(&o.JournalMax, 1<<20, 1<<50), "journal-max", "maximum size of what waits in the journal for a store")
	f.Var(cli.SizeFlag(&o.DiskReserve, 0, 1<<50), "disk-reserve", "bytes that adds leave free on the journal's disk, at most a sixteenth of the disk, so that a store on that disk can take the waiting jobs; 0: none")
	span(&o.LockTTL, "lock-ttl", time.Second, store.MaxTTL, "how long a taken job is reserved for a daemon that sends no sign of life")
	span(&o.Sweep, "sweep", 10*time.Millisecond, time.Hour, "pause between checks for expired locks and old jobs")
	f.StringVar(&o.schedules, "schedules", o.schedules, "TOML `file` of schedules, in sections [schedules.CLIENT.NAME]; they can only be changed there, and SIGHUP reads the file again")
	count(&o.Concurrency, "concurrency", 1, 10_000, "batches that run at a time")
	count(&o.ClientConcurrency, "client-concurrency", 0, 10_000, "batches of one client that run at a time; 0: no limit")
	count(&o.Batch, "batch", 1, 10_000, "jobs taken at a time, unless their handler says otherwise")
	span(&o.JobTimeout, "job-timeout", time.Millisecond, 24*time.Hour, "time for a job, unless its handler says otherwise")
	span(&o.JobCPU, "job-cpu", 10*time.Millisecond, 24*time.Hour, "processor time for a job, unless its handler says otherwise")
	f.BoolVar(&o.start, "start", o.start, "hand out jobs from the start; with false, only after POST /start")
	span(&o.Drain, "drain", 0, 24*time.Hour, "how long a stop waits for running jobs")
	span(&o.RetryDelay, "retry-delay", time.Millisecond, 24*time.Hour, "wait before the first retry; it doubles with each further retry")
	span(&o.RetryMax, "retry-max", time.Millisecond, 24*time.Hour, "longest wait before a retry")
	span(&o.RetryFor, "retry-for", 0, maxDuration, "how long after its first run a job is retried")
	span(&o.KeepDone, "keep-done", 0, maxDuration, "how long ended jobs are kept")
	span(&o.KeepUnrun, "keep-unrun", time.Second, maxDuration, "how long jobs that were never run are kept")
	f.StringVar(&o.langs, "langs", o.langs, "`languages` of handlers that may be added and run: any of http, node, php, python, sh and gloom")
	f.StringSliceVar(&o.httpAllow, "http-allow", o.httpAllow, "`networks` that http handlers may call, such as 10.0.0.0/8; by default all except link-local ones")
	f.StringVar(&o.User, "user", o.User, "`user` that handlers' processes run as, if the daemon is root")
	count(&o.MaxProcesses, "contexts", 1, 10_000, "maximum number of processes for jobs, idle or busy")
	count(&o.JobsPerProcess, "context-jobs", 1, 1<<30, "number of jobs after which a process for jobs is replaced")
	f.Var(cli.SizeFlag(&o.MaxMemory, 64<<20, 1<<40), "context-memory", "maximum memory of a process for jobs and all processes that it has started")
	f.Var(cli.SizeFlag(&o.web.MaxBody, 1<<10, 1<<30), "max-body", "largest body of a request")
	count(&o.web.MaxLines, "max-lines", 1, 10_000_000, "maximum number of payloads in a body")
	count(&o.web.MaxBodies, "max-bodies", 1, 10_000, "maximum number of request bodies over 64 KiB that are in memory at a time, and of results that are being written at a time; one client gets at most half of each")
	f.Var(cli.SizeFlag(&o.MaxLineBytes, 1, 1<<28), "max-line", "longest payload")
	f.Var(cli.SizeFlag(&o.MaxResult, 0, maxResult), "max-result", "maximum size of a job's data that is kept")
	o.Broker.AddFlags(f)
	f.StringVar(&o.workerAddr, "worker-addr", o.workerAddr, "`address` where Gloom workers reach the broker inside this process; without it none can connect")
	f.Var(cli.ChoiceFlag(&o.logLevel, "trace", "debug", "info", "warn", "error"), "log-level", "trace, debug, info, warn or error")
	f.Var(cli.ChoiceFlag(&o.logFormat, daemon.LogFormats...), "log-format", daemon.LogFormatHelp)
	cli.SetHeadings(f, map[string]string{
		"addr":        "Address",
		"token-file":  "Security",
		"dir":         "Journal, stores and schedules",
		"concurrency": "Runs",
		"retry-delay": "Retries and ended jobs",
		"langs":       "Handlers and their processes",
		"max-body":    "Limits of requests",
		"broker":      "Broker",
		"log-level":   "Logs and configuration",
	})
}

func optionError(flag string, value any, format string, args ...any) error {
	return &guard.OptionError{Flag: flag, Value: fmt.Sprint(value), Reason: fmt.Sprintf(format, args...)}
}

// validate checks the options, and sets those that depend on others.
func (o *options) validate() error {
	o.Stopped, o.NoSync = !o.start, !o.fsync
	if len(o.Stores) == 0 {
		o.Stores = []string{engine.DefaultStore(o.Dir)}
	}
	for _, check := range append(o.checks, o.parseLanguages, o.parseNetworks, o.Broker.Validate, o.door.Validate, o.checkWorkers) {
		if err := check(); err != nil {
			return err
		}
	}
	if o.web.MaxLineBytes = o.MaxLineBytes; o.MaxLineBytes > o.web.MaxBody {
		return optionError("max-line", cli.FormatBytes(int64(o.MaxLineBytes)), "is more than --max-body, %s", cli.FormatBytes(int64(o.web.MaxBody)))
	}
	return o.openSchedules()
}

// openSchedules reads the file of schedules.
func (o *options) openSchedules() (err error) {
	if o.schedules == "" {
		return nil
	}
	o.Schedules, err = schedule.OpenFile(o.schedules, true, func(key schedule.Key, text json.RawMessage) error {
		_, err := job.ParseScheduled(text, o.MaxLineBytes)
		return cmp.Or(job.CheckClient(key.Client), err)
	})
	if err != nil {
		return optionError("schedules", o.schedules, "%v", err)
	}
	return nil
}

const maxDuration = 100 * 365 * 24 * time.Hour

// checkRange returns an error for an option that is not from low to high.
func checkRange[T cmp.Ordered](flag string, v, low, high T) error {
	if v < low || v > high {
		return optionError(flag, v, "must be from %v to %v", low, high)
	}
	return nil
}

func (o *options) parseLanguages() error {
	for lang := range strings.SplitSeq(o.langs, ",") {
		if lang = strings.TrimSpace(lang); lang == "" {
			continue
		}
		if !slices.Contains(job.Languages, lang) {
			return optionError("langs", lang, "must be one of %s", strings.Join(job.Languages, ", "))
		}
		o.Languages = append(o.Languages, lang)
	}
	return nil
}

func (o *options) parseNetworks() error {
	for _, text := range o.httpAllow {
		n, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return optionError("http-allow", text, "must be a network such as 10.0.0.0/8 or fd00::/8")
		}
		o.HTTPAllow = append(o.HTTPAllow, n.Masked())
	}
	return nil
}

// checkWorkers sets the worker address of the broker inside this process. The rules for the
// daemon's own address apply to it, too.
func (o *options) checkWorkers() error {
	if o.workerAddr == "" {
		return nil
	}
	if o.Broker.SubmitAddr != "" {
		return optionError("worker-addr", o.workerAddr, "is for the broker inside this process, but --broker names a shared one")
	}
	at := o.door.Options
	o.Broker.Configure = func(b *settings.Options) {
		b.WorkerAddr += "," + o.workerAddr
		b.TLSCert, b.TLSKey, b.TLSClientCA, b.Insecure, b.SharedCerts = at.TLSCert, at.TLSKey, at.TLSClientCA, at.Insecure, true
	}
	_, err := at.ParseAddresses("worker-addr", o.workerAddr)
	return err
}
