package broker

import (
	"fmt"
	"time"
)

// TypeInfo is what can be seen of a type.
type TypeInfo struct {
	Name []byte
	Ledger
	Limits     TypeLimits
	Paused     bool
	Workers    int
	Idle       int // workers with room
	Submitters int
	Bytes      int64
	Dead       int
	// Oldest is the age of the oldest queued job, 0 if there is none.
	Oldest time.Duration
}

func (b *Broker) typeInfo(k *jobType) TypeInfo {
	t := TypeInfo{
		Name: k.name, Ledger: k.Ledger, Limits: k.limits, Paused: k.paused,
		Workers: k.workers, Idle: k.idle.n, Submitters: k.flowCount,
		Bytes: k.bytes, Dead: len(k.dead),
	}
	oldest := int64(Never)
	for i := range k.flows.n {
		oldest = min(oldest, b.oldest(&b.flows[k.flows.at(i).ref].ready))
	}
	if k.flows.n > 0 {
		t.Oldest = b.Since(oldest)
	}
	return t
}

// Type returns what is known of a type.
func (b *Broker) Type(now int64, name []byte) (TypeInfo, bool) {
	b.now = max(b.now, now)
	k := b.typesByName[string(name)]
	if k == nil {
		return TypeInfo{}, false
	}
	return b.typeInfo(k), true
}

// Types returns up to limit types from the place where an earlier call left
// off (0 at first), and the place to go on from, or -1.
func (b *Broker) Types(now int64, from, limit int) ([]TypeInfo, int) {
	b.now = max(b.now, now)
	var out []TypeInfo
	for ; from < len(b.types); from++ {
		if len(out) == limit {
			return out, from
		}
		if k := b.types[from]; k != nil {
			out = append(out, b.typeInfo(k))
		}
	}
	return out, -1
}

// Stats calls fn for each type from the given place on, up to limit, and
// returns where to go on, or -1. What fn is given must not be kept.
func (b *Broker) Stats(now int64, from, limit int, fn func(t *TypeInfo, s *TypeStats)) int {
	b.now = max(b.now, now)
	for n := 0; from < len(b.types); from++ {
		k := b.types[from]
		if k == nil {
			continue
		}
		if n == limit {
			return from
		}
		n++
		t := b.typeInfo(k)
		fn(&t, k.stats)
	}
	return -1
}

// Forgotten returns what types counted that are known no more.
func (b *Broker) Forgotten() (Ledger, TypeStats) { return b.forgotten, b.forgottenStats }

// TypeOf returns the type of the job that holds an id, or nil.
func (b *Broker) TypeOf(id []byte) []byte {
	if r := b.find(b.index.hash(id), id); r != 0 {
		return b.flows[b.jobs.get(r).flow].kind.name
	}
	return nil
}

// JobInfo explains where a job stands.
type JobInfo struct {
	ID, Type []byte
	// State is delayed, queued or running.
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
	// the timeout of a run, the deadline.
	Due       time.Duration
	Detached  bool
	Submitter Peer
	Worker    Peer
	// Ahead is how many ready jobs of its type come before it; Exact is false
	// where there are at least so many.
	Ahead int
	Exact bool
	// Holds says what a waiting job waits for.
	Holds string
}

// explainAhead bounds the jobs counted for a place in line.
const explainAhead = 10000

// Explain says where the job with this id stands.
func (b *Broker) Explain(now int64, id []byte) (JobInfo, bool) {
	b.now = max(b.now, now)
	r := b.find(b.index.hash(id), id)
	if r == 0 {
		return JobInfo{}, false
	}
	j := b.jobs.get(r)
	f := b.flows[j.flow]
	k := f.kind
	x := JobInfo{
		ID: append([]byte(nil), b.id(j)...), Type: k.name, Priority: j.prio,
		Attempts: int(j.attempts), Retries: int(j.retries), Bytes: int(j.bodyLen),
		Age: b.Since(j.at), In: b.Since(j.since), Detached: j.flags&flagDetached != 0,
	}
	if f.sub != nil && !f.dead {
		x.Submitter = f.sub.id
	}
	if j.timing != 0 {
		if t := b.timings.get(j.timing); t.pos >= 0 {
			x.Due = time.Duration(max(0, int64(b.timers.at(int(t.pos)).a)-b.now))
		}
	}
	switch {
	case j.state == stDelayed:
		x.State = "delayed"
		x.Holds = fmt.Sprintf("its delay or backoff, for %v", x.Due.Round(time.Millisecond))
	case j.state == stRunning:
		x.State = "running"
		x.Unwanted = b.unwanted(j)
		x.Worker = b.peers[j.worker].id
	default:
		x.State = "queued"
		x.Ahead, x.Exact = b.ahead(k, j)
		x.Holds = b.holds(k, &x)
	}
	return x, true
}

func (b *Broker) holds(k *jobType, x *JobInfo) string {
	switch {
	case k.paused:
		return "its type is paused"
	case k.workers == 0:
		return "no worker has joined its type"
	case k.limits.Concurrency > 0 && k.Running >= uint64(k.limits.Concurrency):
		return fmt.Sprintf("the limit of %d running jobs of its type", k.limits.Concurrency)
	case k.idle.n > 0 && k.limits.Rate > 0:
		return fmt.Sprintf("the limit of %g jobs a second of its type", k.limits.Rate)
	}
	return fmt.Sprintf("all %d workers of its type are at work", k.workers)
}

// ahead counts the ready jobs that come before j, up to explainAhead.
func (b *Broker) ahead(k *jobType, j *job) (int, bool) {
	me := entry{prioKey(j.prio), j.seq, 0}
	n := 0
	// Both the flows' order and the lanes' lets whole parts be skipped.
	for i := range k.flows.n {
		q := &b.flows[k.flows.at(i).ref].ready
		for l := len(q.lanes) - 1; l >= 0 && q.lanes[l].prio >= j.prio; l-- {
			for r := q.lanes[l].head; r != 0; {
				o := b.jobs.get(r)
				if x := (entry{prioKey(o.prio), o.seq, 0}); !x.before(&me) {
					break
				}
				if n++; n >= explainAhead {
					return n, false
				}
				r = o.next
			}
		}
		for s := range q.spill.n {
			if s >= explainAhead {
				return n, false
			}
			if q.spill.at(s).before(&me) {
				if n++; n >= explainAhead {
					return n, false
				}
			}
		}
	}
	return n, true
}

// WorkerInfo is what can be seen of a worker.
type WorkerInfo struct {
	Peer    Peer
	Type    []byte // nil before its first join
	Room    int
	Out     int // jobs out on it, overdue ones included
	Overdue int
	Left    bool
	// Idle is how long it has had nothing to do, 0 while it works.
	Idle time.Duration
	// Jobs are the ids of up to 16 jobs out on it.
	Jobs [][]byte
}

// SubmitterInfo is what can be seen of a submitter.
type SubmitterInfo struct {
	Peer  Peer
	Jobs  int
	Bytes int64
	Types int
}

// Workers lists workers like Types lists types.
func (b *Broker) Workers(now int64, from, limit int) ([]WorkerInfo, int) {
	b.now = max(b.now, now)
	var out []WorkerInfo
	for ; from < len(b.peers); from++ {
		w := b.peers[from].wrk
		if w == nil {
			continue
		}
		if len(out) == limit {
			return out, from
		}
		out = append(out, b.workerInfo(w))
	}
	return out, -1
}

func (b *Broker) workerInfo(w *worker) WorkerInfo {
	x := WorkerInfo{Peer: w.id, Room: w.room, Out: w.out.n, Overdue: w.overdue, Left: w.left}
	if w.kind != nil {
		x.Type = w.kind.name
	}
	if w.out.n == 0 {
		x.Idle = b.Since(w.since)
	}
	for r := w.out.head; r != 0 && len(x.Jobs) < 16; r = b.jobs.get(r).wnext {
		x.Jobs = append(x.Jobs, append([]byte(nil), b.id(b.jobs.get(r))...))
	}
	return x
}

// Submitters lists submitters like Types lists types.
func (b *Broker) Submitters(from, limit int) ([]SubmitterInfo, int) {
	var out []SubmitterInfo
	for ; from < len(b.peers); from++ {
		s := b.peers[from].sub
		if s == nil {
			continue
		}
		if len(out) == limit {
			return out, from
		}
		out = append(out, SubmitterInfo{Peer: s.id, Jobs: s.jobs, Bytes: s.bytes, Types: len(s.flows)})
	}
	return out, -1
}

// Memory returns the bytes that jobs occupy: records, slabs and bodies kept
// apart, whether used or not.
func (b *Broker) Memory() int64 {
	n := b.slabs.held + int64(len(b.slabs.spare))*slabSize + b.bigBytes
	for _, c := range b.jobs.chunks {
		if c != nil {
			n += int64(len(c.mem))
		}
	}
	return n
}
