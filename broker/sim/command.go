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

// command is one step of a run, complete in itself, so that a run can be repeated
// without some of its commands.
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
	token                            uint64 // the submitter that it belongs to
	room                             int    // of an attach, or a credit
	age                              time.Duration
	headers                          []byte
	setPriority, setGroups           bool // of a change
	groups                           []string
	rule                             broker.Rule // for groups that fit id

	prefetch int
	notices  bool
	// types and except replace typ, if they are not nil; allow has the types that the
	// worker's token allows, each a letter, if it is not empty.
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

// settings are all settings that a command changes together.
func (c *command) settings() []*command { return append([]*command{c}, c.also...) }

// line is a line of a trace.
type line struct{ strings.Builder }

func (l *line) opt(name string, set bool, v any) {
	if set {
		fmt.Fprintf(l, " %s=%v", name, v)
	}
}

func (l *line) flag(name string, set bool) {
	if set {
		l.WriteString(" " + name)
	}
}

// String is the line of the command in a trace.
func (c *command) String() string {
	var s line
	fmt.Fprintf(&s, "%-12v %-9v", time.Duration(c.now), c.verb)
	switch c.verb {
	case tick, drain, expel, pause, limit, revoke, revokeAll, revive, reviveAll, written, amend, setRule, dropRule, setFair, forget:
	default:
		fmt.Fprintf(&s, " p%d", c.peer)
	}
	s.opt("id", c.id != "", c.id)
	s.opt("type", c.typ != "", c.typ)
	switch c.verb {
	case addSubmitter:
		s.opt("token", c.token != 0, c.token)
	case attach:
		s.opt("room", true, c.room)
		s.flag("progress", c.progress)
	case submit:
		s.opt("keep", c.keep > 0, c.keep)
		s.opt("age", c.age > 0, c.age)
		s.opt("groups", c.groups != nil, c.groups)
		s.opt("headers", c.headers != nil, string(c.headers))
		s.opt("priority", c.priority != 0, c.priority)
		s.opt("delay", c.delay > 0, c.delay)
		s.opt("timeout", c.timeout > 0, c.timeout)
		s.opt("backoff", c.backoff > 0, c.backoff)
		s.opt("expires", c.expires > 0, c.expires)
		s.opt("retries", c.retries >= 0, c.retries)
		s.flag("detach", c.detach)
		s.flag("quiet", c.quiet)
		s.flag("progress", c.progress)
		s.opt("body", true, fmt.Sprintf("%d bytes", len(c.body)))
		s.flag("kept", c.kept)
	case respond, progress:
		s.opt("body", true, fmt.Sprintf("%d bytes", len(c.body)))
		s.flag("kept", c.kept)
	case join:
		s.opt("prefetch", c.prefetch > 0, c.prefetch)
		s.flag("notices", c.notices)
		s.opt("types", c.types != nil, c.types)
		s.opt("except", c.except != nil, c.except)
		s.opt("allow", c.allow != "", c.allow)
		s.flag("headers", c.wantHeaders)
	case change, amend:
		s.opt("priority", c.setPriority, c.priority)
		s.opt("delay", c.delay >= 0, c.delay)
		s.opt("groups", c.setGroups, c.groups)
	case setRule:
		s.opt("rule", true, c.rule)
	case setFair:
		s.opt("on", true, c.on)
	case credit:
		s.opt("room", true, c.room)
	case revoke, revokeAll:
		s.opt("groups", c.groups != nil, c.groups)
		s.flag("running", c.on)
	case forget:
		s.flag("discard", c.on)
	case reviveAll:
		s.opt("again", true, c.on)
	case release:
		s.opt("delay", c.delay > 0, c.delay)
	case fail:
		s.flag("no-retry", c.noRetry)
		s.opt("delay", c.failDelay >= 0, time.Duration(c.failDelay))
	case expelled:
		s.opt("reason", true, c.reason)
	case pause:
		s.opt("on", true, c.on)
	case limit:
		s.opt("concurrency", true, c.concurrency)
		s.opt("rate", true, c.rate)
	}
	for _, x := range c.also {
		_, what, _ := strings.Cut(x.String(), " ")
		fmt.Fprintf(&s, " and %s", strings.TrimSpace(what))
	}
	return s.String()
}
