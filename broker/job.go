package broker

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// state is the stage of a job's life.
type state uint8

const (
	// stateFree: the record is not in use.
	stateFree state = iota
	// stateDelayed: it waits for its delay or backoff.
	stateDelayed
	// stateQueued: it is ready, in a lane of its queue.
	stateQueued
	// stateSpilled: it is ready, in the heaps of its queue.
	stateSpilled
	// stateRunning: it is out on a worker.
	stateRunning
	// stateOverdue: the rest of a run whose timeout has passed. It is no longer a job, but
	// takes up room on its worker until the worker answers.
	stateOverdue
	// stateEnded: the outcome of a kept job.
	stateEnded
)

const (
	flagDetached = 1 << iota
	flagProgress
	// flagUnwanted: it was cancelled while it ran.
	flagUnwanted
	// flagBig: the body is in Broker.bigBodies.
	flagBig
	// flagIndexed: the index has its id.
	flagIndexed
	// flagNotified: its submitter was lost while it ran, and its worker has been notified.
	flagNotified
	// flagRevoked: an operator cancelled it while it ran. It is kept, so its outcome has to say
	// so when the run ends.
	flagRevoked
	// flagBorrowed: it is another broker's job, which runs here.
	flagBorrowed
	// flagExtra: it has a priority or headers, so an extra follows its id.
	flagExtra
)

// extraSize is the size of the fields that a job with a priority or headers has between its id and
// its headers: the priority in 8 bytes and the length of the headers in 2.
const extraSize = 10

// bigBody is the length from which a body has memory of its own. In a slab, such a body would
// leave too much room unused.
const bigBody = 128 << 10

// maxRetries is the maximum number of retries that, with the first run, timing.attempts can count.
const maxRetries = math.MaxUint16 - 1

// job is the record of a job. It has no pointers, so that two million of them cost the
// garbage collector nothing.
type job struct {
	// submittedAt is when it was submitted, less the age that its submitter gave. It never
	// changes: a job that returns to its queue gets its old place.
	submittedAt  int64
	slab, offset uint32 // the place of its id, extra, headers and body
	size         uint32 // bytes of these; a body held by reference is not there
	arrival      uint32 // arrival number, which orders jobs submitted at the same time
	idLen        uint16
	retries      uint16 // how many runs may follow the first one
	flags        uint16
	state        state
	holding      uint32
	// links are the job's links in lists. If the job is spilled, links[laneLink] has its
	// positions in the two heaps instead.
	links  [numLinks]listLink
	timing uint32 // record in Broker.timings, 0 for none
}

// timing holds the fields that only jobs with a time set, and jobs that run or have run, need. All
// durations and times are in nanoseconds.
type timing struct {
	stateSince int64 // when its present state began
	delayUntil int64 // end of its delay or backoff
	timeout    int64 // of each run
	backoff    int64
	deadline   int64  // its deadline, 0 for none
	keepTime   int64  // how long its outcome is kept, 0 for not at all
	lastRunPos int64  // the position in the history of its latest run, 0 for none
	rec        uint32 // its job's record
	pos        int32  // position in Broker.timers, -1 without a timer
	worker     uint32 // slot of its worker while it runs
	attempts   uint16 // how many runs have begun and count
	releases   uint16 // how often a worker gave it back
	code       Code   // the code of a kept outcome; 0 for an answer
	why        Why    // the reason of a kept outcome
}

const timingSize = int64(unsafe.Sizeof(timing{}))

// timing returns the timing of a job that has one.
func (b *Broker) timing(j *job) *timing { return b.timings.Get(j.timing) }

// stateSince returns when the present state of a job began. A job without a timing has been in its
// queue since it was submitted.
func (b *Broker) stateSince(j *job) int64 {
	if j.timing == 0 {
		return j.submittedAt
	}
	return b.timing(j).stateSince
}

// attempts returns how many runs of a job have begun, without those that do not count.
func (b *Broker) attempts(j *job) uint16 {
	if j.timing == 0 {
		return 0
	}
	return b.timing(j).attempts
}

// workerOf returns the worker of a running job.
func (b *Broker) workerOf(j *job) *worker { return b.peers.At(b.timing(j).worker).worker }

func (b *Broker) id(j *job) []byte { return b.slabs.Bytes(j.slab, j.offset, uint32(j.idLen)) }

func (b *Broker) body(rec uint32, j *job) []byte {
	if j.flags&flagBig != 0 {
		return b.bigBodies[rec]
	}
	n := uint32(j.idLen)
	if j.flags&flagExtra != 0 {
		_, headersLen := b.extra(j)
		n += extraSize + headersLen
	}
	return b.slabs.Bytes(j.slab, j.offset+n, j.size-n)
}

// extra returns the priority of the job and the length of its headers.
func (b *Broker) extra(j *job) (prio int64, headersLen uint32) {
	if j.flags&flagExtra == 0 {
		return 0, 0
	}
	data := b.slabs.Bytes(j.slab, j.offset+uint32(j.idLen), extraSize)
	return int64(binary.LittleEndian.Uint64(data)), uint32(binary.LittleEndian.Uint16(data[8:]))
}

func (b *Broker) priority(j *job) int64 {
	prio, _ := b.extra(j)
	return prio
}

// setPriority gives the job another priority.
func (b *Broker) setPriority(rec uint32, j *job, prio int64) {
	if j.flags&flagExtra != 0 {
		binary.LittleEndian.PutUint64(b.slabs.Bytes(j.slab, j.offset+uint32(j.idLen), 8), uint64(prio))
	} else if prio != 0 {
		b.storeJob(rec, j, b.id(j), prio, nil, b.body(rec, j), true)
	}
}

// headers returns the headers of the job, nil if there are none.
func (b *Broker) headers(j *job) []byte {
	_, n := b.extra(j)
	if n == 0 {
		return nil
	}
	return b.slabs.Bytes(j.slab, j.offset+uint32(j.idLen)+extraSize, n)
}

// weight returns how many bytes are counted for job j, which is in holding h, against limits. A
// body held by reference counts with its capacity. An overdue run has no holding.
func (b *Broker) weight(h *holding, rec uint32, j *job) int64 {
	n := int64(j.size) + JobOverhead
	if j.flags&flagExtra != 0 {
		n -= extraSize
	}
	if j.flags&flagBig != 0 {
		n += int64(cap(b.bigBodies[rec]))
	}
	if j.state < stateOverdue {
		n += h.queue.groupSet.weight()
	}
	return n
}

// storeJob copies id, priority and headers, and the body if it is small, into the slabs for record
// rec. It drops all data that was stored for that record before.
func (b *Broker) storeJob(rec uint32, j *job, id []byte, prio int64, headers, body []byte, stable bool) {
	old := *j
	b.dropBigBody(rec, j)
	if len(body) >= bigBody {
		if !stable {
			body = append(make([]byte, 0, len(body)), body...)
		}
		b.bigBodies[rec] = body
		b.bigBytes += int64(cap(body))
		j.flags |= flagBig
		body = nil
	}
	j.flags &^= flagExtra
	if prio != 0 || len(headers) > 0 {
		j.flags |= flagExtra
		b.scratch = binary.LittleEndian.AppendUint64(b.scratch[:0], uint64(prio))
		b.scratch = binary.LittleEndian.AppendUint16(b.scratch, uint16(len(headers)))
		b.scratch = append(b.scratch, headers...)
		headers = b.scratch
	}
	j.idLen, j.size = uint16(len(id)), uint32(len(id)+len(headers)+len(body))
	j.slab, j.offset = b.slabs.Add(rec, id, headers, body)
	if old.offset != 0 {
		b.slabs.Drop(old.slab, old.offset, old.size)
	}
}

func (b *Broker) dropBigBody(rec uint32, j *job) {
	if j.flags&flagBig != 0 {
		b.bigBytes -= int64(cap(b.bigBodies[rec]))
		delete(b.bigBodies, rec)
		j.flags &^= flagBig
	}
}

// freeJob releases the record and all memory of the job.
func (b *Broker) freeJob(rec uint32, j *job) {
	b.freeID(rec, j)
	b.stopTimerOf(j)
	if j.timing != 0 {
		b.timings.Put(j.timing)
	}
	b.dropBigBody(rec, j)
	b.slabs.Drop(j.slab, j.offset, j.size)
	b.jobs.Put(rec)
}

// bindID assigns the id with this hash to record rec. old is the record of an abandoned job with
// the same id that has not been swept, or 0.
func (b *Broker) bindID(rec uint32, j *job, hash uint64, old uint32) {
	if old != 0 {
		b.freeID(old, b.jobs.Get(old))
	}
	j.flags |= flagIndexed
	b.jobIndex.Insert(hash, rec)
}

func (b *Broker) freeID(rec uint32, j *job) {
	if j.flags&flagIndexed != 0 {
		b.jobIndex.Remove(b.jobIndex.Hash(b.id(j)), rec)
		j.flags &^= flagIndexed
	}
}

// PrefetchID says that a command with this id follows soon. It changes nothing. With a million jobs
// most of a submit's time would be spent waiting for the memory of the index; after PrefetchID of
// several ids the processor fetches it for all of them at the same time.
func (b *Broker) PrefetchID(id []byte) { b.jobIndex.Prefetch(b.jobIndex.Hash(id)) }

// findJob returns the job that holds this id, or 0 and nil.
func (b *Broker) findJob(id []byte) (uint32, *job) {
	if rec := b.jobIndex.Find(b.jobIndex.Hash(id), id); rec != 0 {
		if j := b.jobs.Get(rec); !b.isAbandoned(j) {
			return rec, j
		}
	}
	return 0, nil
}

// isAbandoned reports whether the job was waiting when its submitter was lost. Such a job has
// ended; only its memory is still to be swept.
func (b *Broker) isAbandoned(j *job) bool {
	return j.state <= stateSpilled && b.holdingOf(j).isOrphaned()
}

// isUnwanted reports whether nobody waits for running job j any more.
func (b *Broker) isUnwanted(j *job) bool {
	return j.flags&flagUnwanted != 0 || b.holdingOf(j).isOrphaned()
}
