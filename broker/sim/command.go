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
	addBorrower
	addLender
	allot
	borrow
	unwant
	follow
	giveBack
	numVerbs
)

// verbs holds the name of each verb, and the method with which the oracle carries it out.
var verbs = [numVerbs]struct {
	name string
	do   func(*oracle, *command)
}{
	addSubmitter: {"submitter", (*oracle).connect},
	addWorker:    {"worker", (*oracle).connect},
	submit:       {"submit", (*oracle).submit},
	cancel:       {"cancel", (*oracle).cancel},
	join:         {"join", (*oracle).join},
	respond:      {"respond", (*oracle).respond},
	fail:         {"fail", (*oracle).fail},
	progress:     {"progress", (*oracle).progress},
	leave:        {"leave", (*oracle).leave},
	gone:         {"gone", (*oracle).gone},
	expelled:     {"expelled", (*oracle).gone},
	tick:         {"tick", (*oracle).tick},
	pause:        {"pause", (*oracle).pause},
	limit:        {"limit", (*oracle).configure},
	drain:        {"drain", (*oracle).drain},
	expel:        {"expel", (*oracle).expel},
	revoke:       {"revoke", (*oracle).revoke},
	revokeAll:    {"revoke-all", (*oracle).revokeAll},
	revive:       {"revive", (*oracle).revive},
	reviveAll:    {"revive-all", (*oracle).reviveAll},
	attach:       {"attach", (*oracle).attach},
	written:      {"written", (*oracle).written},
	change:       {"change", (*oracle).change},
	amend:        {"amend", (*oracle).change},
	release:      {"release", (*oracle).release},
	setRule:      {"rule", (*oracle).configure},
	dropRule:     {"drop-rule", (*oracle).configure},
	setFair:      {"fair", (*oracle).configure},
	credit:       {"credit", (*oracle).credit},
	forget:       {"forget", (*oracle).forgetType},
	addBorrower:  {"borrower", (*oracle).connect},
	addLender:    {"lender", (*oracle).connect},
	allot:        {"allot", (*oracle).allot},
	borrow:       {"borrow", (*oracle).borrow},
	unwant:       {"unwant", (*oracle).unwant},
	follow:       {"follow", (*oracle).follow},
	giveBack:     {"return", (*oracle).release},
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

	flag        bool
	concurrency int
	rate        float64
	burst       int
	run         int // the number of a borrowed job, in the command that borrows it and in later ones about it
	// others are settings that are changed together with this one.
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
	shown := *c
	shown.verb, shown.now = 0, 0
	return fmt.Sprintf("%-12v %-9v", time.Duration(c.now), c.verb) + nonZero(shown)
}
