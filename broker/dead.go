package broker

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"gloom/broker/container"
	"gloom/wire"
)

// DeadLetter is a failed job, kept so that an operator can look at it and submit it again. It
// never changes, because it is read without the lock.
type DeadLetter struct {
	Submission // what ResubmitLetter will submit
	Reason     Reason
	Attempts   int
	// SubmittedAt and FailedAt are times of the caller's clock.
	SubmittedAt, FailedAt int64
	// Number is the letter's number, which identifies it. Later letters have larger numbers.
	Number int
}

// letterOverhead is the size of a letter, in bytes, without its id, headers, body, reason and group
// names.
const letterOverhead = 288

func (d *DeadLetter) weight() int64 {
	n := len(d.ID) + cap(d.Body) + len(d.Headers) + len(d.Reason.Text)
	for _, name := range d.Groups {
		n += len(name)
	}
	return int64(n) + letterOverhead
}

// letter is a dead letter and its place among all of them by age.
type letter struct {
	DeadLetter
	ageLink container.Link[letter]
}

// letterList holds the letters of a type, sorted by number. They are in blocks, so that the cost of
// removing a letter does not depend on its place or on the number of letters.
type letterList struct {
	blocks [][]*letter // no block is empty
	n      int
}

const maxBlockLetters = 256

func (s *letterList) add(l *letter) {
	if last := len(s.blocks) - 1; last >= 0 && len(s.blocks[last]) < maxBlockLetters {
		s.blocks[last] = append(s.blocks[last], l)
	} else {
		s.blocks = append(s.blocks, []*letter{l})
	}
	s.n++
}

// find returns the place of the first letter with at least this number; block is len(s.blocks) if
// there is no such letter.
func (s *letterList) find(number int) (block, i int) {
	byNo := func(l *letter, number int) int { return cmp.Compare(l.Number, number) }
	block, _ = slices.BinarySearchFunc(s.blocks, number, func(letters []*letter, number int) int { return byNo(letters[len(letters)-1], number) })
	if block < len(s.blocks) {
		i, _ = slices.BinarySearchFunc(s.blocks[block], number, byNo)
	}
	return block, i
}

// firstFrom returns the first letter with at least this number, or nil.
func (s *letterList) firstFrom(number int) *letter {
	block, i := s.find(number)
	if block == len(s.blocks) {
		return nil
	}
	return s.blocks[block][i]
}

// lastBefore returns the last letter with a smaller number, or nil.
func (s *letterList) lastBefore(number int) *letter {
	block, i := s.find(number)
	switch {
	case i > 0:
		return s.blocks[block][i-1]
	case block > 0:
		letters := s.blocks[block-1]
		return letters[len(letters)-1]
	}
	return nil
}

func (s *letterList) remove(l *letter) {
	block, i := s.find(l.Number)
	letters := s.blocks[block]
	if i == 0 {
		letters[0] = nil
		letters = letters[1:]
	} else {
		letters = slices.Delete(letters, i, i+1)
	}
	s.n--
	if block+1 < len(s.blocks) && len(letters)+len(s.blocks[block+1]) <= maxBlockLetters/2 {
		letters = append(letters, s.blocks[block+1]...)
		s.blocks = slices.Delete(s.blocks, block+1, block+2)
	}
	s.blocks[block] = letters
	if len(letters) == 0 {
		s.blocks = slices.Delete(s.blocks, block, block+1)
	}
}

// deadLetters keeps the latest failed jobs, within limits on their number per type, their bytes
// in all, and their age. Each type has its own letters; this list has all of them by age.
type deadLetters struct {
	byAge container.Ring[letter]
	bytes int64
	// droppedLetters counts letters that were dropped, or not kept at all, for lack of room.
	droppedLetters uint64
	lastNumber     int // the number of the latest letter
}

// add adds a copy of job j, which has failed.
func (d *deadLetters) add(b *Broker, jt *jobType, rec uint32, j *job, reason Reason) {
	cfg := &b.cfg
	if cfg.DeadLetters <= 0 || cfg.DeadBytes <= 0 || cfg.DeadAge <= 0 {
		return
	}
	l := &letter{DeadLetter: DeadLetter{
		Number: d.lastNumber + 1, Reason: reason, Attempts: int(b.attempts(j)), SubmittedAt: j.submittedAt, FailedAt: b.now,
		Submission: Submission{
			ID: bytes.Clone(b.id(j)), Type: jt.name, Headers: bytes.Clone(b.headers(j)), Groups: b.holdingOf(j).queue.groupSet.names(),
			Priority: b.priority(j), Retries: int32(j.retries), Detach: true, NoAck: true, StableBody: true,
		},
	}}
	if j.timing != 0 {
		t := b.timing(j)
		l.Timeout, l.Backoff = time.Duration(t.timeout), time.Duration(t.backoff)
	}
	l.Body = b.body(rec, j)
	if j.flags&flagBig == 0 {
		l.Body = append(make([]byte, 0, len(l.Body)), l.Body...)
	}
	if l.weight() > cfg.DeadBytes {
		d.droppedLetters++
		return
	}
	if jt.letters.n >= cfg.DeadLetters {
		d.droppedLetters++
		d.drop(b, jt, jt.letters.firstFrom(0))
	}
	d.lastNumber = l.Number
	jt.letters.add(l)
	d.byAge.Push(&l.ageLink, l)
	d.bytes += l.weight()
	for d.bytes > cfg.DeadBytes {
		d.droppedLetters++
		d.dropOldest(b)
	}
}

// drop forgets a letter of a type.
func (d *deadLetters) drop(b *Broker, jt *jobType, l *letter) {
	jt.letters.remove(l)
	b.updateUnusedRing(jt)
	d.byAge.Remove(&l.ageLink)
	d.bytes -= l.weight()
}

func (d *deadLetters) dropOldest(b *Broker) {
	l := d.byAge.First()
	d.drop(b, b.typesByName[string(l.Type)], l)
}

// expireBefore forgets letters of jobs that failed before the given time.
func (d *deadLetters) expireBefore(b *Broker, before int64) {
	for n := 0; n < maxTickTimers && d.byAge.Len() > 0 && d.byAge.First().FailedAt <= before; n++ {
		d.dropOldest(b)
	}
}

// LetterFilter selects dead letters. A field that is not set matches all.
type LetterFilter struct {
	ID                  string // part of the id's value
	Reason              func(*Reason) bool
	MinTimeSinceFailure time.Duration // the minimum time since it failed
}

func (f *LetterFilter) matches(b *Broker, l *DeadLetter) bool {
	return (f.MinTimeSinceFailure == 0 || b.Since(l.FailedAt) >= f.MinTimeSinceFailure) && (f.Reason == nil || f.Reason(&l.Reason)) &&
		(f.ID == "" || strings.Contains(wire.Value(l.ID), f.ID))
}

// reasonBytesPerVisit is the number of bytes of a reason that count as one visit when they are
// searched (see lookVisits).
const reasonBytesPerVisit = 512

// DeadLetters lists the dead letters of a type that match the filter (all, if it is nil), the
// latest first. Like Types, it does so piece by piece. A letter that exists during the whole
// listing is listed exactly once.
func (b *Broker) DeadLetters(now int64, name []byte, from, limit int, filter *LetterFilter) (letters []*DeadLetter, next int) {
	b.now = max(b.now, now)
	jt := b.typesByName[string(name)]
	if jt == nil {
		return nil, -1
	}
	if filter == nil {
		filter = &LetterFilter{}
	}
	if from == 0 {
		from = math.MaxInt
	}
	for n := 0; n < lookVisits && len(letters) < limit; n++ {
		l := jt.letters.lastBefore(from)
		if l == nil {
			break
		}
		n += len(l.Reason.Text) / reasonBytesPerVisit
		from = l.Number
		if filter.matches(b, &l.DeadLetter) {
			letters = append(letters, &l.DeadLetter)
		}
	}
	if jt.letters.lastBefore(from) == nil {
		return letters, -1
	}
	return letters, from
}

// ResubmitLetter submits the dead letter with this id and number again, as a detached job, and
// forgets the letter. Number 0 means the oldest letter with the id. It returns UnknownID if there
// is no such letter, and an error if the job was refused.
func (b *Broker) ResubmitLetter(now int64, name, id []byte, number int) ([]Effect, Code, Reason) {
	b.begin(now)
	jt, l := b.findLetter(name, id, number)
	if l == nil {
		return b.end(), UnknownID, Reason{Why: WhyNoLetter}
	}
	code, reason := b.resubmit(jt, l)
	return b.end(), code, reason
}

// DropLetter forgets the dead letter that ResubmitLetter would submit, and reports whether there
// was such a letter.
func (b *Broker) DropLetter(now int64, name, id []byte, number int) ([]Effect, bool) {
	b.begin(now)
	jt, l := b.findLetter(name, id, number)
	if l != nil {
		b.deadLetters.drop(b, jt, l)
	}
	return b.end(), l != nil
}

// findLetter returns a letter of a type, or nil. If the number is 0, it searches all letters of
// the type.
func (b *Broker) findLetter(name, id []byte, number int) (*jobType, *letter) {
	jt := b.typesByName[string(name)]
	if jt == nil {
		return nil, nil
	}
	if number != 0 {
		if l := jt.letters.firstFrom(number); l != nil && l.Number == number && string(l.ID) == string(id) {
			return jt, l
		}
		return jt, nil
	}
	for _, letters := range jt.letters.blocks {
		for _, l := range letters {
			if string(l.ID) == string(id) {
				return jt, l
			}
		}
	}
	return jt, nil
}

// resubmit submits a letter of a type again and forgets it.
func (b *Broker) resubmit(jt *jobType, l *letter) (Code, Reason) {
	var found admission
	code, reason := b.admit(nil, &l.Submission, &found)
	if code == 0 {
		b.accept(nil, &l.Submission, &found)
		b.deadLetters.drop(b, jt, l)
	}
	return code, reason
}

// LetterWalk goes through the matching dead letters of a type, the oldest first, piece by
// piece. Letters that are added after it has begun are left out.
type LetterWalk struct {
	LetterFilter
	// Limit bounds how many letters it handles; 0 means all.
	Limit int
	// Handled counts the letters that were submitted again or forgotten, Refused counts the refused
	// letters. Reason is the reason of the first refusal.
	Handled, Refused int
	Reason           Reason
	started          bool
	next, last       int // the numbers to continue from and to end at
}

// maxWalkLetters bounds how many letters one piece of a LetterWalk handles.
const maxWalkLetters = 64

// WalkLetters handles one piece of a LetterWalk: it submits the letters again, like
// ResubmitLetter, or forgets them. It reports whether there is more to do.
func (b *Broker) WalkLetters(now int64, name []byte, walk *LetterWalk, resubmit bool) (effects []Effect, more bool) {
	b.begin(now)
	if !walk.started {
		walk.started, walk.last = true, b.deadLetters.lastNumber
	}
	for n := 0; n < lookVisits; n++ {
		jt := b.typesByName[string(name)]
		if jt == nil {
			return b.end(), false
		}
		l := jt.letters.firstFrom(walk.next)
		if l == nil || l.Number > walk.last || walk.Limit > 0 && walk.Handled+walk.Refused == walk.Limit {
			return b.end(), false
		}
		walk.next = l.Number + 1
		n += len(l.Reason.Text) / reasonBytesPerVisit
		if !walk.matches(b, &l.DeadLetter) {
			continue
		}
		n += lookVisits / maxWalkLetters
		var code Code
		var reason Reason
		if resubmit {
			code, reason = b.resubmit(jt, l)
		} else {
			b.deadLetters.drop(b, jt, l)
		}
		if code == 0 {
			walk.Handled++
		} else if walk.Refused++; walk.Refused == 1 {
			walk.Reason = reason
		}
	}
	return b.end(), true
}

// LetterCount returns the number and the bytes of the dead letters that are kept.
func (b *Broker) LetterCount() (int, int64) { return b.deadLetters.byAge.Len(), b.deadLetters.bytes }

// DroppedLetters returns how many failed jobs were dropped from the dead letters, or never kept,
// because DeadLetters or DeadBytes was reached.
func (b *Broker) DroppedLetters() uint64 { return b.deadLetters.droppedLetters }

// Since returns the time that has passed since t, on the core's clock.
func (b *Broker) Since(t int64) time.Duration { return time.Duration(max(0, b.now-t)) }
