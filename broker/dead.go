package broker

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"gloom/wire"
)

// DeadLetter is a job that failed, kept so that someone can look at it and
// hand it in again. It is never written to once it is kept: others read it
// without the lock.
type DeadLetter struct {
	ID, Type, Body, Headers []byte
	Groups                  [][]byte
	Reason                  string
	Priority                int64
	Attempts                int
	// Retries, Timeout and Backoff are the job's own, for when it is handed in again.
	Retries          int
	Timeout, Backoff time.Duration
	// Submitted and Failed are times of the caller's clock.
	Submitted, Failed int64
	// No tells it from all others; it grows.
	No int
}

const deadOverhead = 256

func (d *DeadLetter) weight() int64 {
	n := len(d.ID) + cap(d.Body) + len(d.Headers) + len(d.Reason)
	for _, name := range d.Groups {
		n += len(name)
	}
	return int64(n) + deadOverhead
}

// letter is the place of a dead letter, nil once that is gone.
type letter struct{ *DeadLetter }

// deadLetters keeps the latest failed jobs: so many per type, so many bytes in
// all, for so long. Types hold their own; this list has all by age.
type deadLetters struct {
	byAge []*letter
	bytes int64
	count int
	last  int // number of the latest letter
}

// keep keeps a copy of failed job r.
func (d *deadLetters) keep(b *Broker, k *jobType, r uint32, j *job, reason string) {
	c := &b.cfg
	if c.DeadLetters <= 0 || c.DeadBytes <= 0 || c.DeadAge <= 0 {
		return
	}
	l := &letter{&DeadLetter{
		No: d.last + 1, ID: bytes.Clone(b.id(j)), Type: k.name,
		Headers: bytes.Clone(b.headers(j)), Groups: b.flows[j.flow].set.names(),
		Reason: reason, Priority: j.prio, Attempts: int(j.attempts),
		Retries: int(j.retries), Submitted: j.at, Failed: b.now,
	}}
	if j.timing != 0 {
		t := b.timings.get(j.timing)
		l.Timeout, l.Backoff = time.Duration(t.timeout), time.Duration(t.backoff)
	}
	if l.Body = b.body(r, j); j.flags&flagBig == 0 {
		l.Body = append(make([]byte, 0, len(l.Body)), l.Body...)
	}
	if l.weight() > c.DeadBytes {
		return
	}
	if len(k.dead) >= c.DeadLetters {
		d.drop(b, k, 0)
	}
	d.last = l.No
	k.dead = append(k.dead, l)
	d.byAge = append(d.byAge, l)
	d.bytes += l.weight()
	d.count++
	for d.bytes > c.DeadBytes {
		d.dropOldest(b)
	}
}

// drop forgets the type's letter number i.
func (d *deadLetters) drop(b *Broker, k *jobType, i int) {
	l := k.dead[i]
	b.wake(k)
	k.dead = append(k.dead[:i], k.dead[i+1:]...)
	b.rest(k)
	d.bytes -= l.weight()
	d.count--
	l.DeadLetter = nil
	d.trim()
}

// trim forgets the letters at the front that are gone.
func (d *deadLetters) trim() {
	n := 0
	for n < len(d.byAge) && d.byAge[n].DeadLetter == nil {
		n++
	}
	d.byAge = d.byAge[n:]
	// Gone ones in the middle are few unless letters are taken out by hand.
	if len(d.byAge) > 2*d.count+64 {
		kept := make([]*letter, 0, d.count)
		for _, l := range d.byAge {
			if l.DeadLetter != nil {
				kept = append(kept, l)
			}
		}
		d.byAge = kept
	}
}

func (d *deadLetters) dropOldest(b *Broker) {
	l := d.byAge[0]
	k := b.typesByName[string(l.Type)]
	for i := range k.dead {
		if k.dead[i] == l {
			d.drop(b, k, i)
			break
		}
	}
}

// age forgets what failed before the given time.
func (d *deadLetters) age(b *Broker, before int64) {
	for n := 0; n < tickTimers && len(d.byAge) > 0 && d.byAge[0].Failed <= before; n++ {
		d.dropOldest(b)
	}
}

// next is when the oldest letter is to be forgotten.
func (d *deadLetters) next(age int64) int64 {
	if len(d.byAge) == 0 {
		return Never
	}
	return d.byAge[0].Failed + age
}

// LetterFilter says which dead letters are meant. What is not set fits all.
type LetterFilter struct {
	ID, Reason string        // parts of the id's value and of the reason
	Older      time.Duration // since it failed, at least
}

func (q *LetterFilter) fits(b *Broker, l *DeadLetter) bool {
	return (q.Older == 0 || b.Since(l.Failed) >= q.Older) && strings.Contains(l.Reason, q.Reason) &&
		(q.ID == "" || strings.Contains(wire.Value(l.ID), q.ID))
}

// upTo is how many of the type's letters have numbers up to no.
func (k *jobType) upTo(no int) int {
	n, found := slices.BinarySearchFunc(k.dead, no, func(l *letter, no int) int { return cmp.Compare(l.No, no) })
	if found {
		n++
	}
	return n
}

// reasonVisit is how much of a reason is looked at in the time of a visit, in bytes.
const reasonVisit = 512

// DeadLetters lists the failed jobs kept of a type that fit (nil: all) like Types
// lists types, latest first. What is kept all the while is listed exactly once.
func (b *Broker) DeadLetters(now int64, name []byte, from, limit int, q *LetterFilter) (found []*DeadLetter, next int) {
	b.now = max(b.now, now)
	k := b.typesByName[string(name)]
	if k == nil {
		return nil, -1
	}
	if q == nil {
		q = &LetterFilter{}
	}
	i := len(k.dead)
	if from > 0 {
		i = k.upTo(from - 1)
	}
	for n := 0; n < lookVisits && i > 0 && len(found) < limit; n++ {
		i--
		l := k.dead[i]
		n += len(l.Reason) / reasonVisit
		if from = l.No; q.fits(b, l.DeadLetter) {
			found = append(found, l.DeadLetter)
		}
	}
	if i == 0 {
		return found, -1
	}
	return found, from
}

// Revive hands the failed job with this id and number in again, detached, and forgets
// the letter; the number 0 means the oldest with the id. It returns UnknownID when no
// such letter is kept, or why the job was refused.
func (b *Broker) Revive(now int64, name, id []byte, no int) ([]Effect, Code, string) {
	b.begin(now)
	k, i := b.letterOf(name, id, no)
	if i < 0 {
		return b.end(), UnknownID, "no failed job with this id is kept"
	}
	c, reason := b.revive(k, i)
	return b.end(), c, reason
}

// DropLetter forgets the failed job that Revive would hand in. It tells whether there
// was one.
func (b *Broker) DropLetter(now int64, name, id []byte, no int) ([]Effect, bool) {
	b.begin(now)
	k, i := b.letterOf(name, id, no)
	if i >= 0 {
		b.dead.drop(b, k, i)
	}
	return b.end(), i >= 0
}

// letterOf finds a letter of a type, or -1. Without a number it looks at all of them.
func (b *Broker) letterOf(name, id []byte, no int) (*jobType, int) {
	k := b.typesByName[string(name)]
	if k == nil {
		return nil, -1
	}
	if no == 0 {
		return k, slices.IndexFunc(k.dead, func(l *letter) bool { return string(l.ID) == string(id) })
	}
	i := k.upTo(no) - 1
	if i < 0 || k.dead[i].No != no || string(k.dead[i].ID) != string(id) {
		return k, -1
	}
	return k, i
}

// revive hands the type's letter number i in again and forgets it.
func (b *Broker) revive(k *jobType, i int) (Code, string) {
	l := k.dead[i]
	s := Submission{
		ID: l.ID, Type: k.name, Body: l.Body, Kept: true, Priority: l.Priority,
		Retries: l.Retries, Timeout: l.Timeout, Backoff: l.Backoff,
		Detach: true, Quiet: true, Groups: l.Groups, Headers: l.Headers,
	}
	var x admission
	c, reason := b.admits(nil, &s, &x)
	if c == 0 {
		b.take(nil, &s, &x)
		b.dead.drop(b, k, i)
	}
	return c, reason
}

// LetterWalk goes through the dead letters of a type that fit, oldest first, a piece
// at a time: those that are there when it begins.
type LetterWalk struct {
	LetterFilter
	// Most is how many it may come to, 0 for all.
	Most int
	// Done counts those handed in again or forgotten, Refused those that were not
	// taken in, Reason is why the first of these was not.
	Done, Refused int
	Reason        string
	begun         bool
	next, last    int // numbers to go on with, and of the latest
}

// walkLetters bounds what one piece of a LetterWalk hands in or forgets.
const walkLetters = 64

// WalkLetters hands those of a piece in again, like Revive, or forgets them, and
// tells whether there is more.
func (b *Broker) WalkLetters(now int64, name []byte, w *LetterWalk, again bool) (fx []Effect, more bool) {
	b.begin(now)
	if !w.begun {
		w.begun, w.last = true, b.dead.last
	}
	for n := 0; n < lookVisits; n++ {
		k := b.typesByName[string(name)]
		if k == nil {
			return b.end(), false
		}
		i := k.upTo(w.next)
		if i == len(k.dead) || k.dead[i].No > w.last || w.Most > 0 && w.Done+w.Refused == w.Most {
			return b.end(), false
		}
		l := k.dead[i]
		w.next = l.No
		n += len(l.Reason) / reasonVisit
		if !w.fits(b, l.DeadLetter) {
			continue
		}
		n += lookVisits / walkLetters
		var c Code
		var reason string
		if again {
			c, reason = b.revive(k, i)
		} else {
			b.dead.drop(b, k, i)
		}
		if c == 0 {
			w.Done++
		} else if w.Refused++; w.Reason == "" {
			w.Reason = reason
		}
	}
	return b.end(), true
}

// DeadCount returns how many failed jobs are kept in all, and their bytes.
func (b *Broker) DeadCount() (int, int64) { return b.dead.count, b.dead.bytes }

// Since converts a time of the core's clock to an age.
func (b *Broker) Since(t int64) time.Duration { return time.Duration(max(0, b.now-t)) }
