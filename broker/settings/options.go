// Package settings has the settings of a broker: its options, and the limits of types and
// groups that a file and operators set. It validates them.
package settings

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"gloom/broker/fleet/driver"
	"gloom/broker/guard"
	"gloom/wire"
)

// Options are all options of a broker. The zero value is not usable; start from Default.
type Options struct {
	// SubmitAddr and WorkerAddr are where submitters and workers connect, each one
	// address or several, separated by commas: "host:port" (port 0 takes a free
	// one), which has TLS when there is a certificate, "tls://host:port",
	// "tcp://host:port" without TLS, "unix:/path". HTTPAddr is where operators
	// connect: one address, or "" for none.
	SubmitAddr, WorkerAddr, HTTPAddr string
	// SubmitSocket and WorkerSocket are paths of further unix sockets, "" for none. If a socket cannot
	// be opened, the broker logs the error and continues.
	SubmitSocket, WorkerSocket string

	// MaxMemory is the memory, in bytes, from which the limits on memory are derived; 0 means unknown.
	// Code that sets MaxMemory must set these limits, too; only the limit on TLS connections, an
	// eighth of MaxMemory, needs no setting.
	MaxMemory int64
	// MaxFrame bounds the payload of a frame in bytes.
	MaxFrame int
	// MaxJobs, MaxTypeJobs and MaxSubmitterJobs bound the jobs in all, of a type, and of a
	// submitter; 0 means no limit.
	MaxJobs, MaxTypeJobs, MaxSubmitterJobs int
	// MaxBytes, MaxTypeBytes and MaxSubmitterBytes bound the memory of these jobs; 0 is no
	// limit.
	MaxBytes, MaxTypeBytes, MaxSubmitterBytes int64
	// MaxTypes bounds the types that are in use or configured at a time.
	MaxTypes int
	// MaxGroups bounds the groups that jobs are in at a time.
	MaxGroups int
	// MaxJobGroups bounds the groups of one job; 0 is the protocol's limit. A program that
	// embeds the broker may raise it.
	MaxJobGroups int
	// MaxConns bounds connections; 0 stands for as many as the limit on open files allows.
	MaxConns int
	// MaxHTTPConns bounds the connections of operators. Beyond the bound, the connection that has been
	// idle longest is closed or, if no connection is idle, the connection whose request has run
	// longest.
	MaxHTTPConns int
	// PageLinks are other pages that the broker's page links to, each NAME=URL.
	PageLinks []string
	// MaxOutbound bounds the bytes that one connection has not read.
	MaxOutbound int
	// MaxUnread bounds the memory of everything that connections have not read; 0 is no
	// limit. Beyond it, the connections with the most unread bytes are closed.
	MaxUnread int64
	// MaxInbound bounds the bytes of frames that have not fully arrived, of all connections
	// together. Beyond it, the connections that hold the most of these bytes are closed.
	MaxInbound int64
	// MaxPrefetch bounds the jobs that one connection may hold.
	MaxPrefetch int
	// Retries is the default number of a job's retries: the runs that may follow its first run.
	Retries int
	// DefaultType is the type of submits without one; "" refuses them.
	DefaultType string
	// DrainTimeout is how long a graceful shutdown waits for jobs to end.
	DrainTimeout time.Duration
	// DeadLetters, DeadBytes and DeadAge bound the dead letters: their number per type, their
	// bytes in all, and their age.
	DeadLetters int
	DeadBytes   int64
	DeadAge     time.Duration
	// History bounds the memory for the history of ended jobs, at most a quarter of MaxMemory;
	// 0 keeps no history. HistoryTypes is the number of types whose rates over the last day are
	// kept separately.
	History      int64
	HistoryTypes int
	// Loops is the number of event loops, 1 to 256. If it is 0, EventLoops chooses.
	Loops int
	// Options say who may connect.
	guard.Options
	// LimitsFile is the path of the file of limits, and Limits holds its contents. Both are
	// empty if there is no file.
	LimitsFile string
	Limits     FileLimits
	// Fleet says which fleet the broker joins.
	Fleet driver.Options
	// Pprof makes the HTTP address serve profiles of the process.
	Pprof bool
	// LogLevel and LogFormat configure the daemon's log.
	LogLevel, LogFormat string
	// Version is the version in hello and in the start-up line.
	Version string
}

// Default returns options that suit most brokers.
func Default() Options {
	return Options{
		SubmitAddr:        "127.0.0.1:9998",
		WorkerAddr:        "127.0.0.1:9999",
		HTTPAddr:          "127.0.0.1:9997",
		MaxFrame:          16 << 20,
		MaxJobs:           10_000_000,
		MaxSubmitterJobs:  5_000_000,
		MaxBytes:          4 << 30,
		MaxSubmitterBytes: 2 << 30,
		MaxTypes:          100_000,
		MaxHTTPConns:      256,
		PageLinks:         []string{},
		MaxOutbound:       64 << 20,
		MaxUnread:         512 << 20,
		MaxInbound:        256 << 20,
		MaxGroups:         1_000_000,
		MaxPrefetch:       wire.DefaultMaxPrefetch,
		Retries:           3,
		DefaultType:       "default",
		DrainTimeout:      30 * time.Second,
		DeadLetters:       10_000,
		DeadBytes:         64 << 20,
		DeadAge:           24 * time.Hour,
		History:           64 << 20,
		HistoryTypes:      1000,
		Fleet:             driver.Options{Prefix: driver.Prefix},
		LogLevel:          "info",
		LogFormat:         "auto",
		Version:           "devel",
	}
}

func checkRange[T int | int64 | time.Duration](flag string, v, low, high T) error {
	if v < low || v > high {
		return &guard.OptionError{Flag: flag, Value: fmt.Sprint(v), Reason: fmt.Sprintf("must be from %v to %v", low, high)}
	}
	return nil
}

// Validate returns a *guard.OptionError for the first invalid option.
func (o *Options) Validate() error {
	const maxBytes = 1 << 40
	checks := []error{
		checkRange("max-frame", o.MaxFrame, 1<<10, 1<<30),
		checkRange("max-jobs", o.MaxJobs, 0, 1<<30),
		checkRange("max-type-jobs", o.MaxTypeJobs, 0, 1<<30),
		checkRange("max-submitter-jobs", o.MaxSubmitterJobs, 0, 1<<30),
		checkRange("max-bytes", o.MaxBytes, 0, maxBytes),
		checkRange("max-type-bytes", o.MaxTypeBytes, 0, maxBytes),
		checkRange("max-submitter-bytes", o.MaxSubmitterBytes, 0, maxBytes),
		checkRange("max-types", o.MaxTypes, 1, 1<<24),
		checkRange("max-groups", o.MaxGroups, 1, 1<<24),
		checkRange("max-conns", o.MaxConns, 0, 1<<24),
		checkRange("max-http-conns", o.MaxHTTPConns, 1, 1<<16),
		checkRange("max-outbound", o.MaxOutbound, 1<<10, 1<<40),
		checkRange("max-unread", o.MaxUnread, 0, maxBytes),
		checkRange("max-inbound", o.MaxInbound, 1<<10, maxBytes), o.checkMaxInbound(),
		checkRange("max-job-groups", o.MaxJobGroups, 0, 1<<12),
		checkRange("max-prefetch", o.MaxPrefetch, 1, 1<<20),
		checkRange("retries", o.Retries, 0, wire.MaxRetries),
		checkRange("drain-timeout", o.DrainTimeout, 0, 24*time.Hour),
		checkRange("dead-letters", o.DeadLetters, 0, 1<<20),
		checkRange("dead-bytes", o.DeadBytes, 0, maxBytes),
		checkRange("dead-age", o.DeadAge, 0, 365*24*time.Hour),
		checkRange("history", o.History, 0, maxBytes),
		checkRange("history-types", o.HistoryTypes, 0, 1<<20),
		checkRange("loops", o.Loops, 0, 256),
		o.checkDefaultType(), o.checkPageLinks(), o.CheckTLS(),
	}
	o.Fleet.Insecure = o.Insecure
	checks = append(checks, o.Fleet.Validate())
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	_, err := o.allAddresses()
	return err
}

func (o *Options) checkMaxInbound() error {
	if o.MaxInbound < int64(o.MaxFrame) {
		return &guard.OptionError{Flag: "max-inbound", Value: fmt.Sprint(o.MaxInbound),
			Reason: fmt.Sprintf("must be at least max-frame, %d, or a frame of that size could never arrive whole", o.MaxFrame)}
	}
	return nil
}

func (o *Options) checkDefaultType() error {
	if len(o.DefaultType) > wire.MaxNameBytes {
		return &guard.OptionError{Flag: "default-type", Value: fmt.Sprintf("%.20q…", o.DefaultType),
			Reason: fmt.Sprintf("has %d bytes; at most %d are allowed", len(o.DefaultType), wire.MaxNameBytes)}
	}
	return nil
}

func (o *Options) checkPageLinks() error {
	for _, v := range o.PageLinks {
		name, to, _ := strings.Cut(v, "=")
		u, err := url.Parse(to)
		if name == "" || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return &guard.OptionError{Flag: "page-link", Value: fmt.Sprintf("%.200q", v), Reason: "must be NAME=URL, the URL with http:// or https:// and a host"}
		}
	}
	return nil
}

// allAddresses returns all addresses of all options.
func (o *Options) allAddresses() (addresses []guard.Address, err error) {
	for _, l := range []struct{ flag, values string }{
		{"submit-addr", o.SubmitAddr}, {"worker-addr", o.WorkerAddr}, {"http-addr", o.HTTPAddr},
	} {
		if l.flag == "http-addr" && l.values == "" {
			continue
		}
		a, err := o.ParseAddresses(l.flag, l.values)
		if err != nil {
			return nil, err
		}
		if l.flag == "http-addr" && len(a) > 1 {
			return nil, &guard.OptionError{Flag: l.flag, Value: fmt.Sprintf("%.64q", l.values), Reason: "must be one address"}
		}
		addresses = append(addresses, a...)
	}
	return addresses, nil
}

// IsExposed reports whether other hosts can reach an address without a token or a certificate.
func (o *Options) IsExposed() bool {
	addresses, _ := o.allAddresses()
	return slices.ContainsFunc(addresses, o.Options.IsExposed)
}

// EventLoops returns Loops or, if Loops is 0, a quarter of the number of processors, rounded down,
// but at least one and at most 256. A job whose submitter and worker are on different loops costs a
// third more, so another loop is worth it only if one loop cannot do the work.
func (o *Options) EventLoops(processors int) int {
	if o.Loops > 0 {
		return o.Loops
	}
	return min(max(1, processors/4), 256)
}
