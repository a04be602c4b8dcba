package main

import (
	"github.com/spf13/pflag"

	"gloom/broker/settings"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
)

const longHelp = `gloomd hands jobs from submitters to idle workers, highest priority first, and
carries the answers back. It keeps jobs in memory only: a restart loses them.

Every option is also an environment variable (--max-jobs is GLOOM_MAX_JOBS) and
a key of the file that --config names (TOML: max-jobs = 1000). A flag overrides
the environment, and the environment overrides the file.

Signals: SIGTERM and SIGINT drain and stop; a second one stops at once. SIGHUP
reloads tokens, certificates and the file of limits.

Exit status: 0 after a drain; 1 if it cannot start; 2 for invalid options; 3 if
a second signal cut a drain short; 70 after an internal error.`

// bindFlags defines a flag for every option.
func bindFlags(f *pflag.FlagSet, o *settings.Options) {
	const maxBytes = 1 << 50 // bytes, a bound for parsing; Validate has the real limits
	f.SortFlags = false
	f.Var(&addressesFlag{target: &o.SubmitAddr, socketBeside: &o.SubmitSocket}, "submit-addr", "where submitters connect: host:port, tls://host:port, tcp://host:port or unix:/path; may be given several times")
	f.Var(&addressesFlag{target: &o.WorkerAddr, socketBeside: &o.WorkerSocket}, "worker-addr", "where workers connect")
	f.StringVar(&o.HTTPAddr, "http-addr", o.HTTPAddr, "`address` where operators connect (web page, metrics, health, /v1); empty: no address")
	f.IntVar(&o.Retries, "retries", o.Retries, "how often a job is retried, unless the job sets its own number")
	f.StringVar(&o.DefaultType, "default-type", o.DefaultType, "`type` of submits without one; empty refuses them")
	f.StringVar(&o.LimitsFile, "limits", o.LimitsFile, "`file` of limits on types and groups (TOML); SIGHUP reads it again")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "how long a graceful stop waits for jobs to end")
	f.StringVar(&o.TokenFile, "token-file", o.TokenFile, "`file` of tokens, a line each: TOKEN SCOPES [TYPES]")
	f.StringVar(&o.TLSCert, "tls-cert", o.TLSCert, "`file` of the certificate (PEM), which turns TLS on for all addresses of the form host:port and tls://host:port")
	f.StringVar(&o.TLSKey, "tls-key", o.TLSKey, "`file` of the key of --tls-cert (PEM)")
	f.StringVar(&o.TLSClientCA, "tls-client-ca", o.TLSClientCA, "`file` of CA certificates (PEM); clients must have a certificate that one of these CAs has signed")
	f.StringVar(&o.HTTPHosts, "http-hosts", o.HTTPHosts, "further `names`, separated by commas, that the HTTP address accepts as Host")
	f.BoolVar(&o.Insecure, "insecure", o.Insecure, "allow addresses that other hosts can reach, without tokens or client certificates, and NATS servers on other hosts without TLS or credentials")
	f.Var(cli.ChoiceFlag(&o.LogLevel, "trace", "debug", "info", "warn", "error"), "log-level", "trace, debug, info, warn or error")
	f.Var(cli.ChoiceFlag(&o.LogFormat, daemon.LogFormats...), "log-format", daemon.LogFormatHelp)
	f.BoolVar(&o.Pprof, "pprof", o.Pprof, "serve profiles under /debug/pprof on the HTTP address")
	f.StringSliceVar(&o.PageLinks, "page-link", o.PageLinks, "`NAME=URL` of another web page, such as a door's, to link to from the broker's web page; may be given several times")
	f.Var(cli.SizeFlag(&o.MaxMemory, 0, maxBytes), "max-memory", "memory limit of the whole broker; other limits on bytes are shares of it unless they are set")
	f.Var(cli.SizeFlag(&o.MaxBytes, 0, maxBytes), "max-bytes", "maximum memory for all jobs; 0 means no limit")
	f.Var(cli.SizeFlag(&o.MaxTypeBytes, 0, maxBytes), "max-type-bytes", "maximum memory for the jobs of one type; 0 means no limit")
	f.Var(cli.SizeFlag(&o.MaxSubmitterBytes, 0, maxBytes), "max-submitter-bytes", "maximum memory for the jobs of one submitter; 0 means no limit")
	f.Var(cli.SizeFlag(&o.MaxOutbound, 0, maxBytes), "max-outbound", "maximum unread output of one connection; above half of it, the connection may not submit and gets no jobs; beyond it, the connection is closed")
	f.Var(cli.SizeFlag(&o.MaxUnread, 0, maxBytes), "max-unread", "maximum memory for the unread output of all connections; beyond it, the connection with the most unread output is closed")
	f.Var(cli.SizeFlag(&o.MaxInbound, 0, maxBytes), "max-inbound", "maximum memory for the unfinished frames of all connections; beyond it, the connection with the most unfinished bytes is closed")
	f.Var(cli.SizeFlag(&o.MaxFrame, 0, maxBytes), "max-frame", "largest frame")
	f.IntVar(&o.MaxJobs, "max-jobs", o.MaxJobs, "maximum number of jobs; 0 means no limit")
	f.IntVar(&o.MaxTypeJobs, "max-type-jobs", o.MaxTypeJobs, "maximum number of jobs of one type; 0 means no limit")
	f.IntVar(&o.MaxSubmitterJobs, "max-submitter-jobs", o.MaxSubmitterJobs, "maximum number of jobs of one submitter; 0 means no limit")
	f.IntVar(&o.MaxPrefetch, "max-prefetch", o.MaxPrefetch, "maximum number of jobs that one worker connection holds at a time")
	f.IntVar(&o.MaxTypes, "max-types", o.MaxTypes, "maximum number of types in use or configured at a time; by default fewer if max-memory is below 1.6GiB")
	f.IntVar(&o.MaxGroups, "max-groups", o.MaxGroups, "maximum number of groups with jobs at a time")
	f.IntVar(&o.MaxConns, "max-conns", o.MaxConns, "maximum number of connections; 0: as many as the limit on open files allows")
	f.IntVar(&o.MaxHTTPConns, "max-http-conns", o.MaxHTTPConns, "maximum number of connections on the HTTP address; beyond it, the one that has been idle longest is closed")
	f.IntVar(&o.DeadLetters, "dead-letters", o.DeadLetters, "maximum number of failed jobs that are kept of one type; 0 keeps none")
	f.Var(cli.SizeFlag(&o.DeadBytes, 0, maxBytes), "dead-bytes", "maximum memory for the failed jobs of all types; 0 keeps none")
	f.DurationVar(&o.DeadAge, "dead-age", o.DeadAge, "how long failed jobs are kept")
	f.Var(cli.SizeFlag(&o.History, 0, maxBytes), "history", "maximum memory for the history of ended jobs, up to a quarter of max-memory; 0 keeps none")
	f.IntVar(&o.HistoryTypes, "history-types", o.HistoryTypes, "keep the last day's rates of this many types, the busiest; those of the others are added up")
	f.StringVar(&o.Fleet.Servers, "fleet", o.Fleet.Servers, "NATS `servers`, separated by commas, of a fleet of brokers that lend each other jobs: nats://host:4222")
	f.StringVar(&o.Fleet.Name, "fleet-name", o.Fleet.Name, "`name` of this broker in its fleet; by default the host's name and the port of submitters")
	f.StringVar(&o.Fleet.Creds, "fleet-creds", o.Fleet.Creds, "`file` of NATS credentials")
	f.StringVar(&o.Fleet.CA, "fleet-ca", o.Fleet.CA, "`file` of the CA certificates (PEM) that have signed the certificates of the NATS servers")
	f.StringVar(&o.Fleet.Cert, "fleet-cert", o.Fleet.Cert, "`file` of the client certificate (PEM) for the NATS servers")
	f.StringVar(&o.Fleet.Key, "fleet-key", o.Fleet.Key, "`file` of the key of --fleet-cert (PEM)")
	f.StringVar(&o.Fleet.Prefix, "fleet-prefix", o.Fleet.Prefix, "first `words` of the fleet's NATS subjects: brokers with another prefix form another fleet")
	f.IntVar(&o.Loops, "loops", o.Loops, "number of event loops; 0: one per four processors, at least one")
	cli.SetHeadings(f, map[string]string{
		"submit-addr":  "Addresses",
		"retries":      "Jobs",
		"token-file":   "Security",
		"log-level":    "Logs, profiles and web page",
		"max-memory":   "Limits of memory",
		"max-frame":    "Limits of jobs and connections",
		"dead-letters": "Failed jobs and history",
		"fleet":        "Fleet",
		"loops":        "Process and configuration",
	})
}

// setDefaultTexts sets the defaults that --help shows for options whose default depends on others
// or on the host.
func setDefaultTexts(f *pflag.FlagSet) {
	for name, text := range map[string]string{
		"submit-addr":         "127.0.0.1:9998 and $XDG_RUNTIME_DIR/gloom/submit.sock; for root or without that variable /run/gloom/submit.sock",
		"worker-addr":         "127.0.0.1:9999 and worker.sock beside submit.sock",
		"max-memory":          "half of what the host or its cgroup has",
		"max-bytes":           "1/2 of max-memory",
		"max-submitter-bytes": "1/4 of max-memory",
		"max-outbound":        "1/32 of max-memory, at most 64MiB",
		"max-unread":          "1/8 of max-memory",
		"max-inbound":         "1/8 of max-memory",
		"dead-bytes":          "1/16 of max-memory",
		"history":             "64MiB, at most 1/4 of max-memory",
	} {
		f.Lookup(name).DefValue = text
	}
}

// addressesFlag is a flag for several addresses, which replace the default address and the socket beside
// it.
type addressesFlag struct {
	target, socketBeside *string
	isSet                bool
}

func (a *addressesFlag) String() string {
	if a.target == nil {
		return ""
	}
	return *a.target
}

func (a *addressesFlag) Set(v string) error {
	if a.isSet {
		v = *a.target + "," + v
	}
	*a.target, *a.socketBeside, a.isSet = v, "", true
	return nil
}

func (*addressesFlag) Type() string { return "address" }
