package broker

import (
	"bytes"
	"slices"
	"time"

	"gloom/broker/container"
)

// Looks from outside are taken in pieces, since they hold up everybody else:
// lookVisits is how many things in memory one piece visits at most, or little
// more. With cold caches that takes about a tenth of a millisecond.
const lookVisits = 1024

// TypeInfo is what can be seen of a type.
type TypeInfo struct {
	Name []byte
	Ledger
	// Kept: the type is never forgotten (Config.KeptTypes).
	Kept   bool
	Limits TypeLimits
	Paused bool
	Fair   bool // groups take turns
	// Workers and Idle, those with room, are the ones that serve this type
	// alone, and Oldest, Held and Submitters are 0, until Survey.Complete.
	Workers    int
	Idle       int
	Oldest     time.Duration // age of the oldest queued job, 0 if there is none
	Held       int           // queued jobs that a rule of a group holds back
	Submitters int           // that are connected and have jobs of it
	Bytes      int64
	Dead       int
	kind       *jobType
}

func (b *Broker) typeInfo(k *jobType) TypeInfo {
	return TypeInfo{
		Name: k.name, Ledger: k.Ledger, Kept: b.kept(k), Limits: k.limits, Paused: k.paused, Fair: k.fair,
		Workers: int(k.workers - k.borrowers), Idle: b.idleHere(k),
		Bytes: k.bytes, Dead: k.dead.n, kind: k,
	}
}

// Type returns what is known of a type.
func (b *Broker) Type(name []byte) (TypeInfo, TypeStats, bool) {
	k := b.typesByName[string(name)]
	if k == nil {
		return TypeInfo{}, TypeStats{}, false
	}
	return b.typeInfo(k), k.stats, true
}

// Types calls fn for up to limit types from the place where an earlier call
// left off (0 at first), and returns the place to go on from, or -1 at the end.
// It may call fn less often, even never, before the end. What fn is given must
// not be kept.
func (b *Broker) Types(from, limit int, fn func(t *TypeInfo, s *TypeStats)) int {
	for end := from + lookVisits; limit > 0 && from < min(end, len(b.types.All())); from++ {
		if k := b.types.All()[from]; k != nil {
			limit--
			t := b.typeInfo(k)
			fn(&t, &k.stats)
		}
	}
	return following(from, len(b.types.All()))
}

// following is the place to go on from in a listing of n places.
func following(from, n int) int {
	if from < n {
		return from
	}
	return -1
}

// OtherStats returns the durations of all types that are not kept, known or
// forgotten.
func (b *Broker) OtherStats() *TypeStats { return &b.otherStats }

// Survey adds up what is spread over many places: the age of each type's oldest
// queued job, the workers that serve it among other types, and its submitters.
type Survey struct {
	now int64
	// What to go on with: a queue, a pair, a peer and one of its holdings.
	queue    int
	pair     uint32
	peer, at int
	of       map[*jobType]surveyed
}

type surveyed struct {
	queued        bool
	oldest        int64 // when its oldest queued job was submitted
	workers, idle int
	held          int // jobs that rules of groups hold back
	submitters    int
	last          Peer // the submitter counted last
}

// Survey looks at one piece and tells whether there is more. A job that is
// queued all the while is not missed, whatever happens between calls.
func (b *Broker) Survey(now int64, s *Survey) (more bool) {
	b.now = max(b.now, now)
	if s.of == nil {
		s.of = map[*jobType]surveyed{}
	}
	s.now = b.now
	if b.sweepAll() {
		return true
	}
	n := 0
	for ; n < lookVisits && s.queue < len(b.queues.All()); s.queue++ {
		n++
		q := b.queues.All()[s.queue]
		if q == nil || q.n == 0 {
			continue
		}
		n += len(q.lanes)
		x, at := s.of[q.kind], b.oldest(q)
		if !x.queued || at < x.oldest {
			x.queued, x.oldest = true, at
		}
		if q.heldBy() != nil {
			x.held += q.n
		}
		s.of[q.kind] = x
	}
	last := b.pairs.End()
	for ; n < lookVisits && s.pair < last; s.pair++ {
		n++
		if !b.pairs.Has(s.pair) {
			s.pair = b.pairs.Behind(s.pair) - 1
		} else if p := b.pairs.Get(s.pair); p.live {
			k, crew := b.types.At(p.kind), b.pools.At(p.pool)
			x := s.of[k]
			x.workers, x.idle = x.workers+crew.workers, x.idle+crew.idle.Len()
			s.of[k] = x
		}
	}
	for n < lookVisits && s.peer < len(b.peers) {
		n++
		sub := b.peers[s.peer].sub
		if sub == nil || sub.lends || s.at >= len(sub.holdings) {
			s.peer, s.at = s.peer+1, 0
			continue
		}
		h := sub.holdings[s.at]
		if x := s.of[h.kind]; h.held() > 0 && x.last != sub.id {
			x.submitters, x.last = x.submitters+1, sub.id
			s.of[h.kind] = x
		}
		s.at++
	}
	return s.queue < len(b.queues.All()) || s.pair < last || s.peer < len(b.peers)
}

// Complete adds to a type what the survey found.
func (s *Survey) Complete(t *TypeInfo) {
	x := s.of[t.kind]
	t.Workers, t.Idle, t.Held, t.Submitters = t.Workers+x.workers, t.Idle+x.idle, x.held, x.submitters
	if x.queued {
		t.Oldest = time.Duration(max(0, s.now-x.oldest))
	}
}

// TypeOf returns the type of the job with this id that submitter p may cancel or
// change, or nil: of other people's jobs it tells nothing.
func (b *Broker) TypeOf(p Peer, id []byte) []byte {
	sub, r := b.submitter(p), b.find(b.index.Hash(id), id)
	if sub == nil || r == 0 {
		return nil
	}
	j := b.jobs.Get(r)
	h := b.holder(j)
	if !b.reaches(sub, h, j) {
		return nil
	}
	return h.kind.name
}

// JobInfo explains where a job stands.
type JobInfo struct {
	ID, Type []byte
	// State is delayed, queued, running or, of a kept outcome, ended.
	State string
	// Unwanted: it runs, but nobody waits for it.
	Unwanted bool
	Priority int64
	Attempts int
	Retries  int
	Bytes    int
	Age      time.Duration
	// In is how long it has been in this state.
	In time.Duration
	// Due is when its timer comes, from now, if it has one: the end of a delay,
	// the timeout of a run, the deadline. Expires is when its deadline is, if it has one.
	Due       time.Duration
	Expires   time.Duration
	Detached  bool
	Keep      time.Duration // how long its outcome is kept; 0 not
	Submitter Peer
	Worker    Peer
	Broker    string // that the worker is, "" if it is none
	// Releases is how often it was given back by a worker.
	Releases int
	// Groups are those of the job; HeldBy is the one that holds it back, by the
	// rule for the pattern HeldRule.
	Groups           [][]byte
	HeldBy, HeldRule []byte
	// Hold is what a waiting job waits for: until Ready, from now, or for what of its
	// type the Limits are.
	Hold   Hold
	Ready  time.Duration
	Limits TypeLimits
	// Outcome is how an ended one ended, 0 with an answer; Reason is why, if not.
	Outcome Code
	Reason  Reason
}

// Hold is what a waiting job waits for.
type Hold uint8

const (
	HeldByDelay        Hold = iota + 1 // or backoff
	HeldBeyondDeadline                 // by a delay or backoff that lasts longer
	HeldByPause
	HeldByRule // HeldRule, of the group HeldBy
	HeldByConcurrency
	HeldByRate
	HeldForJoin // of a worker that serves its type
	HeldByWork  // of all workers of its type
)

// Explain says where the job with this id stands.
func (b *Broker) Explain(now int64, id []byte) (JobInfo, bool) {
	b.now = max(b.now, now)
	r := b.find(b.index.Hash(id), id)
	if r == 0 {
		return JobInfo{}, false
	}
	return b.jobInfo(r, b.jobs.Get(r)), true
}

func (b *Broker) jobInfo(r uint32, j *job) JobInfo {
	h := b.holder(j)
	k := h.kind
	x := JobInfo{
		ID: append([]byte(nil), b.id(j)...), Type: k.name, Priority: j.prio, Limits: k.limits,
		Attempts: int(j.attempts), Retries: int(j.retries), Bytes: len(b.body(r, j)),
		Age: b.Since(j.at), In: b.Since(j.since), Releases: int(j.releases), Detached: j.flags&flagDetached != 0,
	}
	x.Groups = h.queue.set.names()
	if h.sub != nil && !h.sub.gone {
		x.Submitter = h.sub.id
	}
	if j.timing != 0 {
		t := b.timings.Get(j.timing)
		if x.Keep = time.Duration(t.keep); t.pos >= 0 {
			x.Due = time.Duration(max(0, int64(b.timers.At(int(t.pos)).A)-b.now))
		}
		if t.expires != 0 && j.state != stEnded {
			x.Expires = time.Duration(max(1, t.expires-b.now))
		}
	}
	x.State = j.state.String()
	switch {
	case j.state == stDelayed:
		t := b.timings.Get(j.timing)
		x.Hold, x.Ready = HeldByDelay, time.Duration(t.delay-b.now)
		if t.expires != 0 && t.expires <= t.delay {
			x.Hold = HeldBeyondDeadline
		}
	case j.state == stRunning:
		x.Unwanted = b.unwanted(j)
		x.Worker, x.Broker = b.peers[j.worker].id, b.peers[j.worker].wrk.name
	case j.state == stEnded:
		l := b.outcome(r, j)
		x.Outcome, x.Reason = l.code, l.reason
	default:
		if g := h.queue.heldBy(); g != nil {
			by, _ := b.closed(g)
			if x.HeldBy = g.name; by != nil {
				x.HeldRule = by.Pattern
			}
		}
		x.Hold = b.holds(k, &x)
	}
	return x
}

// Content returns copies of the body and the headers (nil: none) of the job with
// this id; of a kept outcome the answer, nil if it has none.
func (b *Broker) Content(id []byte) (body, headers []byte) {
	r := b.find(b.index.Hash(id), id)
	if r == 0 {
		return nil, nil
	}
	j := b.jobs.Get(r)
	if j.state == stEnded && b.timings.Get(j.timing).code != 0 {
		return nil, nil
	}
	if body = b.body(r, j); j.flags&flagBig == 0 { // nobody writes to a big one
		body = bytes.Clone(body)
	}
	return body, bytes.Clone(b.headers(j))
}

func (b *Broker) holds(k *jobType, x *JobInfo) Hold {
	switch {
	case k.paused:
		return HeldByPause
	case x.HeldBy != nil:
		return HeldByRule
	case k.limits.Concurrency > 0 && k.active() >= k.limits.Concurrency:
		return HeldByConcurrency
	case k.limits.Rate > 0 && k.timer >= 0:
		return HeldByRate
	case k.workers == k.borrowers && k.pairs == 0:
		return HeldForJoin
	}
	return HeldByWork
}

// Place is a job's place in line: Ahead ready jobs of its type come before it,
// counted up to mostAhead. Where groups take turns those are the jobs of larger
// priority, and those that have the same turn; what a group holds back does not count.
type Place struct {
	Ahead int
	next  int             // the queue to go on with
	last  container.Entry // the job of its lanes to go on behind, if any
	more  bool            // others may come before it, too: who can tell when
}

const mostAhead = 10_000

// Exact is false where at least so many jobs are ahead.
func (p *Place) Exact() bool { return p.Ahead < mostAhead && !p.more }

// Place looks at one piece of the line before a queued job and tells whether
// there is more.
func (b *Broker) Place(id []byte, p *Place) (more bool) {
	if b.sweepAll() {
		return true
	}
	r := b.find(b.index.Hash(id), id)
	if r == 0 {
		return false
	}
	j := b.jobs.Get(r)
	if j.state != stQueued && j.state != stSpilled {
		return false
	}
	mine := b.holder(j).queue
	me := j.standing(r)
	held := mine.heldBy()
	p.more = p.more || held != nil
	for n := 0; n < lookVisits && p.next < len(b.queues.All()); n++ {
		q := b.queues.All()[p.next]
		if q != nil && q.kind == mine.kind && q.n > 0 && b.leads(q, &me, mine, held, p) {
			limit := me
			if q.tenant != mine.tenant {
				limit = container.Entry{A: me.A}
			}
			before := p.Ahead
			whole := b.countAhead(q, &limit, j, p)
			if p.Ahead == mostAhead {
				return false
			}
			if !whole {
				return true
			}
			n += p.Ahead - before
		}
		p.next, p.last = p.next+1, container.Entry{}
	}
	return p.next < len(b.queues.All())
}

// leads: jobs of a queue come before the one with key x of the queue mine, which the
// group held, if any, holds back.
func (b *Broker) leads(q *queue, x *container.Entry, mine *queue, held *group, p *Place) bool {
	best := b.best(q)
	turns := q.tenant != mine.tenant && best.A <= x.A
	if by := q.heldBy(); by != nil && by != held && (turns || best.Before(x)) {
		p.more = true
		return false
	}
	p.more = p.more || turns
	return turns && best.A < x.A || !turns && best.Before(x)
}

// heldBy is the group that holds the jobs of a queue back, or nil.
func (q *queue) heldBy() *group {
	if q.set == nil {
		return nil
	}
	return q.set.shutGroup()
}

// sweepAll frees a piece of what waited when its submitter went, which is not to be
// counted, and tells whether there was any.
func (b *Broker) sweepAll() bool {
	if b.unswept == 0 {
		return false
	}
	b.do(&b.lazy, lookVisits)
	return true
}

// countAhead counts the jobs of q before j, whose key is me. After lookVisits of
// those in lanes, which lie far apart in memory, it tells that there are more.
func (b *Broker) countAhead(q *queue, me *container.Entry, j *job, p *Place) (whole bool) {
	l, r := len(q.lanes)-1, uint32(0)
	if p.last.Ref != 0 {
		o, ok := b.lastAhead(p)
		if !ok { // nobody knows how many of those behind it were counted
			p.more = true
			return true
		}
		l, _ = q.laneOf(o.prio)
		if r = o.next; r == 0 {
			l--
		}
	}
	for n := 0; l >= 0 && q.lanes[l].prio >= j.prio; l, r = l-1, 0 {
		if r == 0 {
			r = q.lanes[l].head
		}
		for ; r != 0; n++ {
			o := b.jobs.Get(r)
			x := o.standing(r)
			if !x.Before(me) {
				break
			}
			if p.Ahead++; p.Ahead == mostAhead {
				return true
			}
			if n == lookVisits {
				p.last = x
				return false
			}
			r = o.next
		}
	}
	if q.spilled() {
		q.out.spill.EachBefore(0, me, func(*container.Entry) bool {
			p.Ahead++
			return p.Ahead < mostAhead
		})
	}
	return true
}

// lastAhead is the job that a place was counted up to, where it still stands there.
func (b *Broker) lastAhead(p *Place) (*job, bool) {
	if !b.jobs.Has(p.last.Ref) {
		return nil, false
	}
	o := b.jobs.Get(p.last.Ref)
	return o, o.state == stQueued && int(b.holder(o).queue.no) == p.next && o.standing(p.last.Ref) == p.last
}

// Idle is how many workers with room serve a type, whether it has been seen yet or
// not. It looks at every set of types that workers have joined.
func (b *Broker) Idle(name []byte) (n int) {
	if k := b.typesByName[string(name)]; k != nil {
		n = b.idleHere(k)
	}
	for _, p := range b.poolsByKey {
		if p.idle.Len() > 0 && p.set.serves(name) {
			n += p.idle.Len()
		}
	}
	return n
}

// WorkerInfo is what can be seen of a worker.
type WorkerInfo struct {
	Peer  Peer
	Type  []byte // nil before its first join, and with several types
	Types int    // how many it serves
	// Serves are up to shownNames names and patterns of what it serves.
	Serves  [][]byte
	Room    int
	Out     int // jobs out on it, overdue ones included
	Overdue int
	Left    bool
	// Idle is how long it has had nothing to do, 0 while it works.
	Idle time.Duration
	// Jobs are the ids of up to workerIDs jobs out on it.
	Jobs [][]byte
}

// Stalled returns up to limit workers with overdue runs, those first whose first one
// is overdue for longest.
func (b *Broker) Stalled(limit int) (found []WorkerInfo) {
	for w := b.stalled.First(); w != nil && len(found) < limit; w = w.stalled.Next() {
		found = append(found, b.workerInfo(w))
	}
	return found
}

// SubmitterInfo is what can be seen of a submitter.
type SubmitterInfo struct {
	Peer  Peer
	Jobs  int
	Bytes int64
	Types int
	// Names are up to shownNames types that it has jobs of.
	Names [][]byte
}

// workerIDs is how many of the jobs out on a worker are shown, shownNames how many
// names of types.
const (
	workerIDs  = 16
	shownNames = 16
)

// Workers lists workers like Types lists types: those that serve typ, or all if it
// is nil.
func (b *Broker) Workers(now int64, typ []byte, from, limit int) (found []WorkerInfo, next int) {
	b.now = max(b.now, now)
	for n := 0; n < lookVisits && len(found) < limit && from < len(b.peers); from++ {
		n++
		w := b.peers[from].wrk
		if w == nil || w.borrows {
			continue
		}
		if w.pool != nil {
			n += len(w.pool.set.like) + len(w.pool.set.notLike)
		}
		if typ == nil || w.serves(typ) {
			found = append(found, b.workerInfo(w))
			n += min(w.out.n, workerIDs)
		}
	}
	return found, following(from, len(b.peers))
}

func (w *worker) serves(typ []byte) bool {
	if w.pool != nil {
		return w.pool.set.serves(typ)
	}
	return w.kind != nil && bytes.Equal(w.kind.name, typ)
}

func (b *Broker) workerInfo(w *worker) WorkerInfo {
	x := WorkerInfo{Peer: w.id, Room: w.room, Out: w.out.n, Overdue: w.overdue, Left: w.left}
	if w.kind != nil {
		x.Type, x.Types, x.Serves = w.kind.name, 1, [][]byte{w.kind.name}
	}
	if w.pool != nil {
		x.Types, x.Serves = w.pool.n, w.pool.set.types[:min(len(w.pool.set.types), shownNames)]
	}
	if w.out.n == 0 {
		x.Idle = b.Since(w.since)
	}
	for r := w.out.head; r != 0 && len(x.Jobs) < workerIDs; r = b.jobs.Get(r).next {
		x.Jobs = append(x.Jobs, append([]byte(nil), b.id(b.jobs.Get(r))...))
	}
	return x
}

// Submitters lists submitters like Types lists types: those with jobs of typ, or all
// if it is nil.
func (b *Broker) Submitters(typ []byte, from, limit int) (found []SubmitterInfo, next int) {
	for n := 0; n < lookVisits && len(found) < limit && from < len(b.peers); from++ {
		n++
		s := b.peers[from].sub
		if s == nil || s.lends {
			continue
		}
		if typ != nil {
			n += len(s.holdings)
		}
		if typ == nil || slices.ContainsFunc(s.holdings, func(h *holding) bool { return bytes.Equal(h.kind.name, typ) && h.jobs.n > 0 }) {
			found = append(found, SubmitterInfo{Peer: s.id, Jobs: s.jobs, Bytes: s.bytes, Types: len(s.holdings) - s.unused, Names: s.names()})
		}
	}
	return found, following(from, len(b.peers))
}

// names are some of the types that a submitter has jobs of.
func (s *submitter) names() (names [][]byte) {
	for _, h := range slices.Backward(s.holdings[max(0, len(s.holdings)-lookVisits):]) {
		if h.held() > 0 && !slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, h.kind.name) }) {
			if names = append(names, h.kind.name); len(names) == shownNames {
				break
			}
		}
	}
	return names
}
