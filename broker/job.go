package broker

import (
	"math"
	"unsafe"
)

// state is where a job stands in its life.
type state uint8

const (
	// stFree is a record that nobody uses.
	stFree state = iota
	// stDelayed waits for its delay or backoff.
	stDelayed
	// stQueued stands in a lane of its queue.
	stQueued
	// stSpilled stands in the keyed heap of its queue.
	stSpilled
	// stRunning is out at a worker.
	stRunning
	// stOverdue is no job but what is left of one at a worker that let its
	// timeout pass: it holds a place of that worker until it is answered.
	stOverdue
	// stEnded is a kept outcome.
	stEnded
)

const (
	flagDetached = 1 << iota
	flagProgress
	// flagUnwanted: cancelled while it runs.
	flagUnwanted
	// flagBig: the body is in Broker.big.
	flagBig
	// flagHeld: the id index names this record.
	flagHeld
	// flagTold: its submitter went while it runs, and its worker was told.
	flagTold
	// flagRevoked: unwanted on an operator's word, and kept: that it was cancelled
	// is still to be told.
	flagRevoked
	// flagBorrowed: another broker's, which runs here.
	flagBorrowed
)

// bigBody is the length from which a body is kept outside the slabs, in memory of its
// own: it would leave too much of them unused.
const bigBody = 128 << 10

// maxRetries is the most that a record can count: one run more must fit too.
const maxRetries = math.MaxUint16 - 1

// job is one job's record. It holds no pointers: two million of them must cost
// the garbage collector nothing.
type job struct {
	prio int64
	// at is when it was submitted, or is to be taken as submitted. It is kept for
	// life: a job that comes back stands where its submission put it.
	at int64
	// since is when it began to be delayed, to be ready or to run.
	since     int64
	slab, off uint32 // where id and body lie
	// weight is what it counts against limits on bytes: a body kept by reference
	// weighs what it keeps from being freed.
	weight   uint32
	seq      uint32 // arrival number, orders jobs of the same time
	idLen    uint16
	headLen  uint16 // of headers, between id and body; 0 none
	releases uint16 // times given back
	attempts uint16 // times handed out
	retries  uint16 // runs allowed after the first one
	state    state
	flags    uint8
	holding  uint32
	worker   uint32 // slot of the worker, while out
	// next and prev link a lane, or what is out at a worker; for a spilled job they
	// are its positions in the two heaps.
	next, prev uint32
	// older and younger link the jobs of a holding.
	older, younger uint32
	timing         uint32 // record in Broker.timings, 0 if none
}

// timing holds what only jobs with a deadline of some kind need.
type timing struct {
	delay   int64 // until when it is delayed, absolute
	timeout int64 // of one run
	backoff int64
	expires int64 // deadline, absolute; 0 none
	keep    int64 // how long the outcome is kept; 0 not
	job     uint32
	pos     int32 // in Broker.timers; -1 when no timer runs
	code    Code  // of a kept outcome; 0 for an answer
	why     Why   // of a kept outcome
}

const timingSize = int64(unsafe.Sizeof(timing{}))

func (b *Broker) id(j *job) []byte { return b.slabs.Bytes(j.slab, j.off, uint32(j.idLen)) }

func (b *Broker) body(r uint32, j *job) []byte {
	if j.flags&flagBig != 0 {
		return b.big[r]
	}
	n := uint32(j.idLen) + uint32(j.headLen)
	return b.slabs.Bytes(j.slab, j.off+n, b.slabs.Length(j.slab, j.off)-n)
}

// headers are those of the job; nil where there are none.
func (b *Broker) headers(j *job) []byte {
	if j.headLen == 0 {
		return nil
	}
	return b.slabs.Bytes(j.slab, j.off+uint32(j.idLen), uint32(j.headLen))
}

// store keeps id, headers and body for record r.
func (b *Broker) store(r uint32, j *job, id, headers, body []byte, kept bool) {
	j.idLen, j.headLen = uint16(len(id)), uint16(len(headers))
	j.weight = uint32(len(id) + len(headers) + len(body) + JobOverhead)
	if len(body) >= bigBody {
		if !kept {
			body = append(make([]byte, 0, len(body)), body...)
		}
		b.big[r] = body
		b.bigBytes += int64(cap(body))
		j.flags |= flagBig
		j.weight += uint32(cap(body) - len(body))
		body = nil
	}
	j.slab, j.off = b.slabs.Add(r, id, headers, body)
}

// free takes back the record and all memory of the job.
func (b *Broker) free(r uint32, j *job) {
	b.unhold(r, j)
	b.stopTimer(j)
	if j.timing != 0 {
		b.timings.Put(j.timing)
	}
	if j.flags&flagBig != 0 {
		b.bigBytes -= int64(cap(b.big[r]))
		delete(b.big, r)
	}
	slab, off := j.slab, j.off
	b.jobs.Put(r)
	// Last: a compaction that follows must not take the entry for a live one.
	b.slabs.Drop(slab, off)
}

// hold makes the id with this hash belong to record r, unhold frees it. old is the
// record of an abandoned job, not yet swept, that has the same id, or 0.
func (b *Broker) hold(r uint32, j *job, hash uint64, old uint32) {
	j.flags |= flagHeld
	if old != 0 {
		b.index.Replace(hash, old, r)
		b.jobs.Get(old).flags &^= flagHeld
		return
	}
	b.index.Insert(hash, r)
}

func (b *Broker) unhold(r uint32, j *job) {
	if j.flags&flagHeld != 0 {
		b.index.Remove(b.index.Hash(b.id(j)), r)
		j.flags &^= flagHeld
	}
}

// find returns the job that holds this id, or 0.
func (b *Broker) find(hash uint64, id []byte) uint32 {
	r := b.index.Find(hash, id)
	if r == 0 || b.abandoned(b.jobs.Get(r)) {
		return 0
	}
	return r
}

// abandoned: it waited when its submitter went. It has ended; only its memory
// is still to be swept.
func (b *Broker) abandoned(j *job) bool {
	return j.state <= stSpilled && b.holder(j).lost()
}

// unwanted: it runs, but nobody waits for it.
func (b *Broker) unwanted(j *job) bool {
	return j.flags&flagUnwanted != 0 || b.holder(j).lost()
}
