package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/door"
	"gloom/cmd/internal/link"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/web"
)

const longHelp = `jq-master is a job queue over HTTP. Pushers enqueue jobs with a name, an
argument and a priority; workers register and get jobs pushed to them, or fetch
them; failed jobs are retried with growing waits, and results are kept on
request. Requests are MessagePack or JSON; GET /openapi.yaml describes them all.

Without --redis jobs are in memory only: a restart loses them. Without --broker
the broker that decides the order runs inside this process.

Every option is also an environment variable (--max-jobs is GLOOM_JQ_MAX_JOBS)
and a key of the file that --config names (TOML: max-jobs = 1000). A flag
overrides the environment, and the environment overrides the file.

Signals: SIGTERM and SIGINT drain and stop; a second one stops at once. SIGHUP
reloads tokens, certificates and the schedules file.

Exit status: 0 after a drain; 1 if it cannot start; 2 for invalid options; 3 if
a second signal cut a drain short.`

// options holds all options of the daemon.
type options struct {
	door   door.Options
	broker link.Config
	limits master.Limits

	redis, namespace    string
	brokerHTTP          string
	workerAddr          string // address for Gloom workers at the broker inside this process
	socketWorkers       bool
	workerPort          int
	workerAllow         []string
	allowedPrefixes     []netip.Prefix
	constraints         string
	schedules           string
	file                *schedule.File
	maxBody             int
	drain               time.Duration
	logLevel, logFormat string
}

func defaults() options {
	o := options{
		limits: master.DefaultLimits(), namespace: "default", socketWorkers: true, maxBody: 4 << 20,
		drain: 30 * time.Second, logLevel: "info", logFormat: "auto",
	}
	o.door.Addr = "127.0.0.1:9996"
	o.broker.Program = "jq-master"
	return o
}

// bindFlags defines a flag for every option.
func (o *options) bindFlags(f *pflag.FlagSet) {
	const maxSize = 1 << 50 // of bytes
	limits := &o.limits
	f.SortFlags = false
	o.door.AddFlags(f)
	f.StringVar(&o.redis, "redis", o.redis, "redis://, rediss:// or unix:// `URL` of the Redis that keeps jobs; without it, jobs are only in memory")
	f.StringVar(&o.namespace, "namespace", o.namespace, "`name` of this master's queue, which separates it from others in the same Redis or broker")
	f.StringVar(&o.constraints, "constraints", o.constraints, "JSON `file` in which constraints are kept; only without --redis")
	f.StringVar(&o.schedules, "schedules", o.schedules, "TOML `file` of schedules, in sections [schedules.NAME]; they can only be changed there, and SIGHUP reads the file again")
	f.DurationVar(&limits.StoreWait, "store-wait", limits.StoreWait, "how long reports wait while Redis is away, and how long no run times out after Redis is back")
	o.broker.AddFlags(f)
	f.Lookup("broker").Usage = "submit `address` of a shared broker; without it, a broker runs inside this process"
	f.StringVar(&o.brokerHTTP, "broker-http", o.brokerHTTP, "HTTP `address` of the shared broker; by default its submit address with the next lower port")
	f.DurationVar(&limits.BrokerWait, "broker-wait", limits.BrokerWait, "how long a master that cannot reach its shared broker keeps the lease while a standby can reach one")
	f.StringVar(&o.workerAddr, "worker-addr", o.workerAddr, "`address` where Gloom workers reach the broker inside this process; without it none can connect")
	f.BoolVar(&o.socketWorkers, "socket-workers", o.socketWorkers, "let Gloom workers that join jq.NAME serve jobs with that name, except those with max_retry 0")
	f.IntVar(&o.workerPort, "worker-port", o.workerPort, "port to which jobs are pushed if a worker gives neither url nor port; with 0, such a worker pulls")
	f.StringSliceVar(&o.workerAllow, "worker-allow", nil, "`network` (CIDR) that workers' URLs may name, besides loopback and the address from which a worker registers; may be given several times")
	f.DurationVar(&limits.Heartbeat, "heartbeat", limits.Heartbeat, "interval of heartbeats; a worker that misses three is lost")
	f.DurationVar(&limits.TimeoutGrace, "timeout-grace", limits.TimeoutGrace, "how long after a job's timeout its worker may still report the end")
	f.DurationVar(&limits.BackoffBase, "backoff-base", limits.BackoffBase, "longest wait before the first retry; it doubles with each further retry")
	f.DurationVar(&limits.BackoffCap, "backoff-cap", limits.BackoffCap, "longest wait before any retry")
	f.DurationVar(&limits.Aging, "aging", limits.Aging, "waiting time that counts as one step of priority; 0: waiting does not count")
	f.DurationVar(&o.drain, "drain", o.drain, "how long a graceful stop waits for running jobs")
	f.DurationVar(&limits.ResultTTL, "result-ttl", limits.ResultTTL, "how long a kept result waits to be fetched")
	f.DurationVar(&limits.KeepEnded, "keep-ended", limits.KeepEnded, "how long ended jobs are remembered")
	f.IntVar(&limits.MaxEnded, "max-ended", limits.MaxEnded, "maximum number of ended jobs that are remembered, not counting those of the last minute and those with results; they take at most half of max-bytes")
	f.IntVar(&limits.MaxJobs, "max-jobs", limits.MaxJobs, "maximum number of jobs that have not ended, and of idempotency keys (at least 10000 keys are always allowed)")
	f.Var(cli.SizeFlag(&limits.MaxBytes, 0, maxSize), "max-bytes", "maximum memory for arguments, results, errors, idempotency keys, and names beyond the first 1000 (5 KiB each); an eighth of it is for results alone")
	f.Var(cli.SizeFlag(&o.maxBody, 0, maxSize), "max-body", "largest body of a request")
	f.Var(cli.SizeFlag(&limits.MaxError, 0, maxSize), "max-error", "largest error of a failed job; a longer one is kept as null, and the message says so")
	f.IntVar(&limits.MaxWaiters, "max-waiters", limits.MaxWaiters, "maximum number of requests that wait for a job or for the end of one")
	f.IntVar(&limits.MaxWorkers, "max-workers", limits.MaxWorkers, "maximum number of workers; when one more registers, a worker that pulls and has been silent for ten minutes is forgotten")
	f.IntVar(&limits.MaxConstraints, "max-constraints", limits.MaxConstraints, "maximum number of constraints")
	f.Var(cli.ChoiceFlag(&o.logLevel, "trace", "debug", "info", "warn", "error"), "log-level", "trace, debug, info, warn or error")
	f.Var(cli.ChoiceFlag(&o.logFormat, daemon.LogFormats...), "log-format", daemon.LogFormatHelp)
	cli.SetHeadings(f, map[string]string{
		"addr":          "Address",
		"token-file":    "Security",
		"redis":         "Store and schedules",
		"broker":        "Broker",
		"worker-addr":   "Workers",
		"timeout-grace": "Jobs",
		"result-ttl":    "Ended jobs and results",
		"max-jobs":      "Limits",
		"log-level":     "Logs and configuration",
	})
}

func checkRange[T int | int64 | time.Duration](flag string, v, low, high T) error {
	if v < low || v > high {
		return &guard.OptionError{Flag: flag, Value: fmt.Sprint(v), Reason: fmt.Sprintf("must be from %v to %v", low, high)}
	}
	return nil
}

const (
	day     = 24 * time.Hour
	maxBody = 1 << 30
)

// validate returns an error for the first invalid option.
func (o *options) validate() error {
	limits := &o.limits
	checks := []error{
		checkRange("worker-port", o.workerPort, 0, 65535),
		checkRange("heartbeat", limits.Heartbeat, 100*time.Millisecond, time.Hour),
		checkRange("timeout-grace", limits.TimeoutGrace, 0, time.Hour),
		checkRange("backoff-base", limits.BackoffBase, time.Millisecond, day),
		checkRange("backoff-cap", limits.BackoffCap, limits.BackoffBase, 365*day),
		checkRange("aging", limits.Aging, 0, 7*day),
		checkRange("store-wait", limits.StoreWait, 100*time.Millisecond, time.Hour), // a report waits for the store at least once
		checkRange("broker-wait", limits.BrokerWait, time.Second, time.Hour),
		checkRange("result-ttl", limits.ResultTTL, time.Second, 365*day),
		checkRange("keep-ended", limits.KeepEnded, time.Second, 365*day),
		checkRange("max-ended", limits.MaxEnded, 0, 1<<30),
		checkRange("max-body", o.maxBody, 1<<10, maxBody),
		checkRange("max-error", limits.MaxError, 0, maxBody),
		checkRange("max-jobs", limits.MaxJobs, 1, 1<<28),
		checkRange("max-bytes", limits.MaxBytes, 1<<10, 1<<50),
		checkRange("max-waiters", limits.MaxWaiters, 1, 1<<24),
		checkRange("max-workers", limits.MaxWorkers, 1, 1<<20),
		checkRange("max-constraints", limits.MaxConstraints, 0, 1<<20),
		checkRange("drain", o.drain, 0, day),
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	switch {
	case o.namespace == "" || len(o.namespace) > 100 || !utf8.ValidString(o.namespace) || strings.ContainsAny(o.namespace, "{}*~. ") || strings.ContainsFunc(o.namespace, unicode.IsControl):
		return &guard.OptionError{Flag: "namespace", Value: fmt.Sprintf("%q", o.namespace), Reason: "must be 1 to 100 bytes of UTF-8 without spaces, control characters, dots or any of {}*~"}
	case o.redis != "" && o.constraints != "":
		return &guard.OptionError{Flag: "constraints", Value: o.constraints, Reason: "cannot be combined with --redis, which keeps constraints itself"}
	case o.workerAddr != "" && o.broker.SubmitAddr != "":
		return &guard.OptionError{Flag: "worker-addr", Value: o.workerAddr, Reason: "is for the broker inside this process; the shared broker of --broker has an address of its own"}
	case o.workerAddr != "" && !o.socketWorkers:
		return &guard.OptionError{Flag: "worker-addr", Value: o.workerAddr, Reason: "is for Gloom workers, which --socket-workers=false refuses"}
	case strings.Contains(o.broker.SubmitAddr, ","):
		return &guard.OptionError{Flag: "broker", Value: o.broker.SubmitAddr, Reason: "must be one address: a single broker orders the jobs of a queue"}
	}
	for _, text := range o.workerAllow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return &guard.OptionError{Flag: "worker-allow", Value: text, Reason: "must be a network such as 10.0.0.0/8"}
		}
		o.allowedPrefixes = append(o.allowedPrefixes, p)
	}
	if err := o.broker.Validate(); err != nil {
		return err
	}
	if err := o.door.Validate(); err != nil || o.schedules == "" {
		return err
	}
	var err error
	o.file, err = schedule.OpenFile(o.schedules, false, func(_ schedule.Key, text json.RawMessage) error {
		_, err := web.ReadScheduledJob(text)
		return err
	})
	if err != nil {
		return &guard.OptionError{Flag: "schedules", Value: o.schedules, Reason: err.Error()}
	}
	return nil
}
