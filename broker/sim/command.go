package sim

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"gloom/broker"
)

// verb says what a command does.
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
	endLeftovers
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
	addBorrower
	addLender
	allot
	borrow
	unwant
	follow
	giveBack
	numVerbs
)

// senders is a set of kinds of peers. It is 0 for verbs of operators and of the core's caller.
type senders uint8

const (
	submitters senders = 1 << iota
	workers
	lenders
	borrowers
	newcomers // peers that the verb connects
)

type effects = []broker.Effect

// verbs holds for each verb its name, who sends it, and how the oracle and the core carry it out.
var verbs = [numVerbs]struct {
	name string
	from senders
	do   func(*oracle, *command)
	core func(*driver, *command) effects
}{
	addSubmitter: {"submitter", newcomers, (*oracle).connect, (*driver).connect},
	addWorker:    {"worker", newcomers, (*oracle).connect, (*driver).connect},
	submit:       {"submit", submitters, (*oracle).submit, func(d *driver, c *command) effects { return d.core.Submit(c.now, d.peer(c), d.submission(c)) }},
	cancel:       {"cancel", submitters, (*oracle).cancel, func(d *driver, c *command) effects { return d.core.Cancel(c.now, d.peer(c), d.lend(c.id)) }},
	join:         {"join", workers, (*oracle).join, (*driver).join},
	respond: {"respond", workers | borrowers, (*oracle).respond, func(d *driver, c *command) effects {
		return d.core.Respond(c.now, d.peer(c), d.lend(c.id), d.bodyOf(c), c.stable)
	}},
	fail: {"fail", workers | borrowers, (*oracle).fail, (*driver).fail},
	progress: {"progress", workers | borrowers, (*oracle).progress, func(d *driver, c *command) effects {
		return d.core.Progress(c.now, d.peer(c), d.lend(c.id), d.bodyOf(c), c.stable)
	}},
	leave:    {"leave", workers, (*oracle).leave, func(d *driver, c *command) effects { return d.core.Leave(c.now, d.peer(c)) }},
	gone:     {"gone", submitters | workers | lenders | borrowers, (*oracle).gone, func(d *driver, c *command) effects { return d.core.RemovePeer(c.now, d.peer(c)) }},
	expelled: {"expelled", submitters | workers, (*oracle).gone, func(d *driver, c *command) effects { return d.core.ExpelPeer(c.now, d.peer(c), c.reason) }},
	tick:     {"tick", 0, (*oracle).tick, func(d *driver, c *command) effects { return d.core.Tick(c.now) }},
	pause:    {"pause", 0, (*oracle).configure, (*driver).configure},
	limit:    {"limit", 0, (*oracle).configure, (*driver).configure},
	drain:    {"drain", 0, (*oracle).drain, func(d *driver, c *command) effects { d.core.Drain(); return nil }},
	endLeftovers: {"expel", 0, (*oracle).endLeftovers, func(d *driver, c *command) effects {
		return d.all(func() (effects, bool) { return d.core.EndLeftovers(c.now) })
	}},
	revoke:    {"revoke", 0, (*oracle).revoke, func(d *driver, c *command) effects { fx, _ := d.core.Revoke(c.now, d.lend(c.id), c.boolArg); return fx }},
	revokeAll: {"revoke-all", 0, (*oracle).revokeAll, (*driver).revokeAll},
	revive:    {"revive", 0, (*oracle).revive, (*driver).revive},
	reviveAll: {"revive-all", 0, (*oracle).reviveAll, (*driver).reviveAll},
	attach: {"attach", submitters, (*oracle).attach, func(d *driver, c *command) effects {
		return d.core.Attach(c.now, d.peer(c), d.lend(c.id), c.progress, c.room)
	}},
	written:     {"written", 0, (*oracle).outcomeWritten, func(d *driver, c *command) effects { return d.core.OutcomeWritten(c.now, d.outcomes[c.id]) }},
	change:      {"change", submitters, (*oracle).change, func(d *driver, c *command) effects { return d.core.Change(c.now, d.peer(c), d.changing(c)) }},
	amend:       {"amend", 0, (*oracle).change, (*driver).amend},
	release:     {"release", workers | borrowers, (*oracle).release, (*driver).release},
	setRule:     {"rule", 0, (*oracle).configure, (*driver).configure},
	dropRule:    {"drop-rule", 0, (*oracle).configure, (*driver).configure},
	setFair:     {"fair", 0, (*oracle).configure, (*driver).configure},
	credit:      {"credit", workers, (*oracle).credit, func(d *driver, c *command) effects { return d.core.SetCredit(c.now, d.peer(c), int64(c.room)) }},
	forget:      {"forget", 0, (*oracle).forgetType, (*driver).forget},
	addBorrower: {"borrower", newcomers, (*oracle).connect, (*driver).connect},
	addLender:   {"lender", newcomers, (*oracle).connect, (*driver).connect},
	allot:       {"allot", borrowers, (*oracle).allot, func(d *driver, c *command) effects { return d.core.Allot(c.now, d.peer(c), c.room) }},
	borrow:      {"borrow", lenders, (*oracle).borrow, (*driver).borrow},
	unwant: {"unwant", lenders, (*oracle).unwant, func(d *driver, c *command) effects {
		return d.core.MarkUnwanted(c.now, d.peer(c), d.run(c.run), c.boolArg)
	}},
	follow: {"follow", lenders, (*oracle).follow, func(d *driver, c *command) effects {
		d.core.SetWantsProgress(d.peer(c), d.run(c.run), c.boolArg)
		return nil
	}},
	giveBack: {"return", borrowers, (*oracle).release, (*driver).release},
}

func (v verb) String() string { return verbs[v].name }

// command is one step of a run. It is complete in itself, so that a run can be repeated without
// some of its commands.
type command struct {
	verb verb
	now  int64
	// peer is the number that the run gives to a connection. If no earlier command has
	// introduced the number, the core does not know the connection.
	peer int

	id, typ  string
	body     []byte
	stable   bool
	priority int64

	delay, timeout, backoff, expires time.Duration
	retries                          int
	detach, quiet, progress          bool
	keep                             time.Duration
	token                            uint64 // the owner of the submitter (SetOwner), as a number
	room                             int    // how many bytes (attach, credit) or jobs (allot) there is room for
	age                              time.Duration
	headers                          []byte
	setPriority, setGroups           bool // of a change
	groups                           []string
	rule                             broker.Rule // for the groups that match id

	prefetch int
	notices  bool
	// types and except replace typ if types is not nil. allow, unless it is empty, holds the types
	// that the worker's token allows. The name of each of them is one letter.
	types, except []string
	allow         string
	wantHeaders   bool

	reason    string
	noRetry   bool
	lost      bool // a borrower fails the run because its worker was lost or closed
	failDelay int64

	boolArg     bool // the argument of verbs that take a bool
	concurrency int
	rate        float64
	burst       int
	run         int // the number of a borrowed job, in the command that borrows it and in later ones about it
	// others are settings that are changed together with this setting.
	others []*command
}

// settings returns all settings that a command changes together.
func (c *command) settings() []*command { return append([]*command{c}, c.others...) }

// nonZero returns the names and values of the fields of a struct that are not zero.
func nonZero(structure any) string {
	var text strings.Builder
	s := reflect.New(reflect.TypeOf(structure)).Elem()
	s.Set(reflect.ValueOf(structure))
	for f, v := range s.Fields() {
		if v.IsZero() || v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			continue
		}
		// This also reads fields that are not exported.
		x := reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem().Interface()
		switch y := x.(type) {
		case []byte:
			x = fmt.Sprintf("%.12q… %d bytes", y, len(y))
		case [][]byte:
			x = fmt.Sprintf("%q", y)
		case broker.Op:
			x = opNames[y]
		case broker.Code:
			x = codeNames[y]
		}
		fmt.Fprintf(&text, " %s=%+v", f.Name, x)
	}
	return text.String()
}

// String returns the command's line in a trace.
func (c *command) String() string {
	display := *c
	display.verb, display.now = 0, 0
	return fmt.Sprintf("%-12v %-9v", time.Duration(c.now), c.verb) + nonZero(display)
}
