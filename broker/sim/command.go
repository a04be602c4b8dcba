package sim

import (
	"fmt"
	"strings"
	"time"

	"gloom/broker"
)

// verb is the kind of a command.
type verb uint8

const (
	addSubmitter verb = iota
	addWorker
	submit
	cancel
	join
	respond
	fail
	progress
	leave
	gone
	expelled
	tick
	pause
	limit
	drain
	expel
	revoke
	revokeAll
	revive
	reviveAll
	attach
	written
	change
	amend
	release
	setRule
	dropRule
	setFair
	credit
	forget
	verbs
)

var verbNames = [verbs]string{
	"submitter", "worker", "submit", "cancel", "join", "respond", "fail", "progress", "leave",
	"gone", "expelled", "tick", "pause", "limit", "drain", "expel", "revoke", "revoke-all", "revive", "revive-all", "attach", "written",
	"change", "amend", "release",
	"rule", "drop-rule", "fair", "credit", "forget",
}

func (v verb) String() string { return verbNames[v] }

// command is one step of a run, complete in itself: any part of a run can be
// run again without the rest.
type command struct {
	verb verb
	now  int64
	// peer is the run's own number of a connection. A number that no earlier command
	// introduced is a connection that the core never saw.
	peer int

	id, typ  string
	body     []byte
	kept     bool
	priority int64

	delay, timeout, backoff, expires time.Duration
	retries                          int
	detach, quiet, progress          bool
	keep                             time.Duration
	token                            uint64 // whose submitter it is
	room                             int    // of an attach, or a credit
	age                              time.Duration
	headers                          []byte
	setPriority, setGroups           bool // of a change
	groups                           []string
	rule                             broker.Rule // for groups that fit id

	prefetch int
	notices  bool
	// types and except replace typ, if they are not nil; allow has the types that
	// the worker's token allows, each a letter, if it is not empty.
	types, except []string
	allow         string
	wantHeaders   bool

	reason    string
	noRetry   bool
	failDelay int64

	on          bool
	concurrency int
	rate        float64
	// also are settings that are changed together with this one.
	also []*command
}

// settings are all that a command changes together.
func (c *command) settings() []*command { return append([]*command{c}, c.also...) }

// String is the line of the command in a trace.
func (c *command) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-12v %-9v", time.Duration(c.now), c.verb)
	switch c.verb {
	case tick, drain, expel, pause, limit, revoke, revokeAll, revive, reviveAll, written, amend, setRule, dropRule, setFair, forget:
	default:
		fmt.Fprintf(&s, " p%d", c.peer)
	}
	opt := func(name string, set bool, v any) {
		if set {
			fmt.Fprintf(&s, " %s=%v", name, v)
		}
	}
	flag := func(name string, set bool) {
		if set {
			s.WriteString(" " + name)
		}
	}
	opt("id", c.id != "", c.id)
	opt("type", c.typ != "", c.typ)
	switch c.verb {
	case addSubmitter:
		opt("token", c.token != 0, c.token)
	case attach:
		opt("room", true, c.room)
		flag("progress", c.progress)
	case submit:
		opt("keep", c.keep > 0, c.keep)
		opt("age", c.age > 0, c.age)
		opt("groups", c.groups != nil, c.groups)
		opt("headers", c.headers != nil, string(c.headers))
		opt("priority", c.priority != 0, c.priority)
		opt("delay", c.delay > 0, c.delay)
		opt("timeout", c.timeout > 0, c.timeout)
		opt("backoff", c.backoff > 0, c.backoff)
		opt("expires", c.expires > 0, c.expires)
		opt("retries", c.retries >= 0, c.retries)
		flag("detach", c.detach)
		flag("quiet", c.quiet)
		flag("progress", c.progress)
		opt("body", true, fmt.Sprintf("%d bytes", len(c.body)))
		flag("kept", c.kept)
	case respond, progress:
		opt("body", true, fmt.Sprintf("%d bytes", len(c.body)))
		flag("kept", c.kept)
	case join:
		opt("prefetch", c.prefetch > 0, c.prefetch)
		flag("notices", c.notices)
		opt("types", c.types != nil, c.types)
		opt("except", c.except != nil, c.except)
		opt("allow", c.allow != "", c.allow)
		flag("headers", c.wantHeaders)
	case change, amend:
		opt("priority", c.setPriority, c.priority)
		opt("delay", c.delay >= 0, c.delay)
		opt("groups", c.setGroups, c.groups)
	case setRule:
		opt("rule", true, c.rule)
	case setFair:
		opt("on", true, c.on)
	case credit:
		opt("room", true, c.room)
	case revoke, revokeAll:
		opt("groups", c.groups != nil, c.groups)
		flag("running", c.on)
	case forget:
		flag("discard", c.on)
	case reviveAll:
		opt("again", true, c.on)
	case release:
		opt("delay", c.delay > 0, c.delay)
	case fail:
		flag("no-retry", c.noRetry)
		opt("delay", c.failDelay >= 0, time.Duration(c.failDelay))
	case expelled:
		opt("reason", true, c.reason)
	case pause:
		opt("on", true, c.on)
	case limit:
		opt("concurrency", true, c.concurrency)
		opt("rate", true, c.rate)
	}
	for _, x := range c.also {
		_, what, _ := strings.Cut(x.String(), " ")
		fmt.Fprintf(&s, " and %s", strings.TrimSpace(what))
	}
	return s.String()
}
