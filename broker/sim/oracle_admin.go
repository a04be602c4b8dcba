package sim

import (
	"fmt"
	"slices"
	"strings"

	"gloom/broker"
)

// letter is a dead letter.
type letter struct {
	oracleJob // the job when it failed
	reason    string
	failed    int64
	number    int // the letters are numbered as they come
}

// letterOverhead is the number of bytes that the core counts for a letter besides its id,
// body, headers, groups and reason.
const letterOverhead = 288

func (l *letter) weight() int64 {
	return l.command.weight() - broker.JobOverhead + int64(len(l.reason)) + letterOverhead
}

func (o *oracle) keepLetter(j *oracleJob, reason string) {
	if o.cfg.DeadLetters <= 0 || o.cfg.DeadBytes <= 0 || o.cfg.DeadAge <= 0 {
		return
	}
	if reason == "" {
		var found bool
		if reason, found = o.observed.reason(j); !found {
			// The reason is not known, perhaps because the letter is too large to be kept.
			reason = strings.Repeat("?", 100)
		}
	}
	l := &letter{*j, reason, o.now, o.letterCount + 1}
	if l.weight() > o.cfg.DeadBytes {
		return
	}
	if ofType := o.lettersOf(j.typ); len(ofType) >= o.cfg.DeadLetters {
		o.dropLetter(ofType[0])
	}
	o.letterCount++
	o.letters = append(o.letters, l)
	for o.letterBytes() > o.cfg.DeadBytes {
		o.dropLetter(o.letters[0])
	}
}

func (o *oracle) letterBytes() int64 {
	n := int64(0)
	for _, l := range o.letters {
		n += l.weight()
	}
	return n
}

func (o *oracle) dropLetter(l *letter) {
	o.letters = slices.DeleteFunc(o.letters, func(m *letter) bool { return m == l })
}

// lettersOf returns the letters of a type, the oldest first.
func (o *oracle) lettersOf(typ string) (found []*letter) {
	for _, l := range o.letters {
		if l.typ == typ {
			found = append(found, l)
		}
	}
	return found
}

// forgetTypes drops letters of unused types when types in use need the room. The core chooses which
// unused types lose their letters.
func (o *oracle) forgetTypes() {
	for _, name := range o.names {
		if o.cfg.MaxTypes == 0 || o.used(name) || len(o.names) <= o.cfg.MaxTypes || len(o.observed.letters(name)) > 0 {
			continue
		}
		for _, l := range o.lettersOf(name) {
			o.dropLetter(l)
		}
	}
}

// age forgets letters that are too old.
func (o *oracle) age() {
	for n := 0; n < timersPerTick && len(o.letters) > 0; n++ {
		if l := o.letters[0]; l.failed+int64(o.cfg.DeadAge) <= o.now {
			o.dropLetter(l)
		}
	}
}

// revive submits the oldest letter with this id again, as a detached job.
func (o *oracle) revive(c *command) {
	for _, l := range o.lettersOf(c.typ) {
		if l.id == c.id {
			o.reviveLetter(l)
			return
		}
	}
}

// reviveAll submits the letters of a type again, as far as they are accepted, or forgets all of
// them.
func (o *oracle) reviveAll(c *command) {
	for _, l := range o.lettersOf(c.typ) {
		if c.boolArg {
			o.reviveLetter(l)
		} else {
			o.dropLetter(l)
		}
	}
}

func (o *oracle) reviveLetter(l *letter) {
	submitCommand := command{id: l.id, typ: l.typ, body: l.body, priority: l.priority, retries: l.retries, timeout: l.timeout, backoff: l.backoff, detach: true, headers: l.headers, groups: l.groups}
	if o.jobsByID[l.id] != nil || o.draining {
		return
	}
	// Each letter is refused or accepted by itself.
	o.observed.overloaded = !o.observed.held(l.id)
	if o.wouldExceedLimit(&submitCommand) {
		return
	}
	o.acceptJob(&submitCommand, 0)
	o.dropLetter(l)
}

// forgetType forgets an unused type. If the command says so, it first discards the type's
// jobs and letters.
func (o *oracle) forgetType(c *command) {
	ot := o.types[c.typ]
	if ot == nil {
		return
	}
	jobs := slices.DeleteFunc(slices.Concat(o.jobs, o.borrowed), func(j *oracleJob) bool { return j.typ != c.typ })
	runs := o.active(c.typ) > 0
	if len(jobs)+len(o.lettersOf(c.typ)) > 0 && !c.boolArg || runs || ot.paused || ot.hasSettings() || o.hasWorkerNamed(c.typ) {
		if !o.observed.known {
			o.complaint = fmt.Sprintf("type %q was forgotten although it is in use", c.typ)
		}
		return
	}
	if o.observed.known {
		o.complaint = fmt.Sprintf("type %q was not forgotten although it is not in use", c.typ)
	}
	for _, j := range jobs {
		if j.state != ended {
			ot.Discarded++
			if j.owner != 0 {
				o.sendLast(j, frame{op: broker.OpEnd, code: broker.Cancelled, id: j.id})
			}
		}
		o.forget(j)
	}
	for _, l := range o.lettersOf(c.typ) {
		o.dropLetter(l)
	}
}

// configure changes settings, all of them or none.
func (o *oracle) configure(c *command) {
	settings, newTypes := c.settings(), 0
	for _, c := range settings {
		switch c.verb {
		case limit:
			if c.concurrency < 0 || !(c.rate >= 0 && c.rate <= 1e9) || c.burst > 0 && c.rate == 0 {
				return
			}
			fallthrough
		case setFair, pause:
			newTypes += o.usedTypesDelta(c)
		}
	}
	if o.exceedsTypeLimit(newTypes) {
		return
	}
	for _, c := range settings {
		if c.verb == dropRule {
			o.dropRule(c)
		}
	}
	for _, c := range settings {
		if c.verb == setRule {
			o.setRule(c)
		} else if c.verb != dropRule {
			o.typeNamed(c.typ).apply(c, o.now)
		}
	}
}

// usedTypesDelta returns +1 if a setting brings an unused type into use, and -1 if a type loses the
// setting that alone kept it in use.
func (o *oracle) usedTypesDelta(c *command) int {
	if !o.used(c.typ) {
		return +1
	}
	after := *o.types[c.typ]
	if after.apply(c, o.now); !after.hasSettings() && !o.busy(c.typ) {
		return -1
	}
	return 0
}

// apply changes a setting of a type.
func (ot *oracleType) apply(c *command, now int64) {
	switch c.verb {
	case pause:
		ot.paused = c.boolArg
	case setFair:
		ot.fair = c.boolArg
	case limit:
		ot.concurrency, ot.rate, ot.burst = c.concurrency, c.rate, c.burst
		ot.rateState, ot.rateMayLag = rateState{setAt: now}, false
	}
}

func (o *oracle) drain(*command) { o.draining = true }

// endLeftovers ends all jobs that are left after a drain.
func (o *oracle) endLeftovers(*command) {
	o.draining, o.stopped = true, true
	for _, j := range slices.Concat(o.jobs, o.borrowed) {
		if j.state == ended {
			continue
		}
		if j.state == running {
			// The worker may still answer, but the answer is dropped.
			o.giveUp(j)
			if j.unwanted() {
				o.endUnwanted(j)
				continue
			}
		}
		o.count(j, &o.typeNamed(j.typ).Failed)
		o.end(j, broker.Draining, "")
	}
}
