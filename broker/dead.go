package broker

import (
	"bytes"
	"time"
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
	// Submitted and Failed are times of the caller's clock.
	Submitted, Failed int64
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
}

// keep keeps a copy of failed job r.
func (d *deadLetters) keep(b *Broker, k *jobType, r uint32, j *job, reason string) {
	c := &b.cfg
	if c.DeadLetters <= 0 || c.DeadBytes <= 0 || c.DeadAge <= 0 {
		return
	}
	l := &letter{&DeadLetter{
		ID: bytes.Clone(b.id(j)), Type: k.name,
		Headers: bytes.Clone(b.headers(j)), Groups: b.flows[j.flow].set.names(),
		Reason: reason, Priority: j.prio, Attempts: int(j.attempts),
		Submitted: j.at, Failed: b.now,
	}}
	if l.Body = b.body(r, j); j.flags&flagBig == 0 {
		l.Body = append(make([]byte, 0, len(l.Body)), l.Body...)
	}
	if l.weight() > c.DeadBytes {
		return
	}
	if len(k.dead) >= c.DeadLetters {
		d.drop(b, k, 0)
	}
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

// DeadLetters lists the failed jobs kept of a type like Types lists types,
// latest first.
func (b *Broker) DeadLetters(name []byte, from, limit int) (found []*DeadLetter, next int) {
	k := b.typesByName[string(name)]
	if k == nil {
		return nil, -1
	}
	for end := from + min(limit, lookVisits); from < min(end, len(k.dead)); from++ {
		found = append(found, k.dead[len(k.dead)-1-from].DeadLetter)
	}
	return found, following(from, len(k.dead))
}

// Revive hands a failed job in again, detached, and forgets the letter. It
// returns UnknownID when no such letter is kept, or why the job was refused.
func (b *Broker) Revive(now int64, name, id []byte) ([]Effect, Code, string) {
	b.begin(now)
	k := b.typesByName[string(name)]
	if k == nil {
		return b.end(), UnknownID, "no failed job of this type is kept"
	}
	for i, l := range k.dead {
		if string(l.ID) != string(id) {
			continue
		}
		s := Submission{
			ID: l.ID, Type: k.name, Body: l.Body, Kept: true, Priority: l.Priority,
			Retries: -1, Detach: true, Quiet: true, Groups: l.Groups, Headers: l.Headers,
		}
		var x admission
		if c, reason := b.admits(nil, &s, &x); c != 0 {
			return b.end(), c, reason
		}
		b.take(nil, &s, &x)
		b.dead.drop(b, k, i)
		return b.end(), 0, ""
	}
	return b.end(), UnknownID, "no failed job with this id is kept"
}

// DeadCount returns how many failed jobs are kept in all, and their bytes.
func (b *Broker) DeadCount() (int, int64) { return b.dead.count, b.dead.bytes }

// Since converts a time of the core's clock to an age.
func (b *Broker) Since(t int64) time.Duration { return time.Duration(max(0, b.now-t)) }
