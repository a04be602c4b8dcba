package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"gloom/broker/guard"
	"gloom/broker/settings"
	"gloom/cmd/internal/cli"
)

const (
	minMemory = 16 << 20
	// minDefaultMemory is the smallest default of --max-memory, for hosts so small that half of their
	// memory is too little.
	minDefaultMemory = 64 << 20
)

// typeMemory estimates the bytes of a type that is in use because of a single job: its record and
// its queue, the figures that the page shows, a finding, and garbage. Types may take a quarter of
// --max-memory, unless --max-types says otherwise.
const typeMemory = 4 << 10

// memoryShare is a limit that defaults to a part of --max-memory.
type memoryShare struct {
	flag       string
	limit      *int64
	sixteenths int64 // of --max-memory
}

// memoryShares returns the limits that share --max-memory; 3/16 of it is left for connections, records and
// uncollected garbage.
func memoryShares(o *settings.Options) []memoryShare {
	return []memoryShare{
		{"max-bytes", &o.MaxBytes, 8},
		{"max-unread", &o.MaxUnread, 2},
		{"max-inbound", &o.MaxInbound, 2},
		{"dead-bytes", &o.DeadBytes, 1},
	}
}

// divideMemory divides --max-memory, less the limits that are set, among the limits that are not.
// Each unset limit gets at least a quarter of its full share. The default of --max-memory is the
// memory that the host allows, or the memory that the set limits need.
func divideMemory(f *pflag.FlagSet, o *settings.Options, host int64) error {
	var sum, open int64
	var set []string
	for _, s := range memoryShares(o) {
		if !cli.IsSet(f, s.flag) {
			open += s.sixteenths
			continue
		}
		if *s.limit == 0 && s.flag != "dead-bytes" && cli.IsSet(f, "max-memory") {
			return &guard.OptionError{Flag: s.flag, Value: "0", Reason: "means no limit, which contradicts --max-memory"}
		}
		sum += *s.limit
		set = append(set, fmt.Sprintf("--%s %s", s.flag, cli.FormatBytes(*s.limit)))
	}
	frame := int64(o.MaxFrame)
	if !cli.IsSet(f, "max-memory") {
		o.MaxMemory = max(host/2, minDefaultMemory, sum, 4*frame)
	}
	budget := o.MaxMemory
	text := cli.FormatBytes(budget)
	switch {
	case budget < minMemory:
		return &guard.OptionError{Flag: "max-memory", Value: text, Reason: "must be at least " + cli.FormatBytes(minMemory)}
	case sum > budget:
		return &guard.OptionError{Flag: "max-memory", Value: text, Reason: "is less than " + strings.Join(set, " and ")}
	case frame > budget/4:
		return &guard.OptionError{Flag: "max-frame", Value: cli.FormatBytes(frame),
			Reason: fmt.Sprintf("must be at most a quarter of --max-memory %s, %dKiB", text, budget/4>>10)}
	}
	for _, s := range memoryShares(o) {
		if !cli.IsSet(f, s.flag) {
			fullShare := budget * s.sixteenths / 16
			*s.limit = max(min(fullShare, (budget-sum)*s.sixteenths/open), fullShare/4)
		}
	}
	if !cli.IsSet(f, "history") {
		o.History = min(o.History, budget/4)
	} else if o.History > budget/4 {
		return &guard.OptionError{Flag: "history", Value: cli.FormatBytes(o.History), Reason: "must be at most a quarter of --max-memory " + text}
	}
	if !cli.IsSet(f, "max-types") {
		o.MaxTypes = int(min(int64(o.MaxTypes), budget/4/typeMemory))
	}
	if !cli.IsSet(f, "max-inbound") {
		o.MaxInbound = max(o.MaxInbound, frame)
	}
	if !cli.IsSet(f, "max-submitter-bytes") {
		o.MaxSubmitterBytes = budget / 4
	}
	if !cli.IsSet(f, "max-outbound") {
		o.MaxOutbound = int(min(int64(o.MaxOutbound), budget/32))
	}
	return nil
}
