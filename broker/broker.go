package broker

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/rand/v2"

	"gloom/broker/container"
)

// Broker is the core's state. It is not safe for concurrent use.
type Broker struct {
	cfg     Config
	now     int64
	effects []Effect
	// reasons holds the Reasons that the effects point to.
	reasons []Reason

	lastArrival uint32 // the last arrival number; it wraps around
	timerNumber uint64 // orders timers that are due at the same moment
	rng         *rand.PCG

	jobs      container.Table[job]
	timings   container.Table[timing]
	slabs     container.Slabs
	bigBodies map[uint32][]byte // bodies kept by reference, by the number of the job's record
	jobIndex  container.Index

	bigBytes int64
	bytes    int64 // weight of all jobs held

	totals        Ledger
	types         container.Slots[jobType]
	typesByName   map[string]*jobType
	typeNameBytes int64 // bytes of long type names
	// unusedPlain, unusedWithLetters and unusedKept are the types not in use, the longest unused first.
	// unusedWithLetters are remembered while they have dead letters, unusedKept until ForgetType.
	unusedPlain, unusedWithLetters, unusedKept container.Ring[jobType]
	forgottenTotals                            Ledger // the ledgers of forgotten types, added up
	otherStats                                 TypeStats

	pools              container.Slots[pool]
	poolsByKey         map[string]*pool
	pairs              container.Table[pair]
	pairingsInProgress int
	lastCreation       uint64                   // the latest creationNumber of a type or pool
	poolBytes          int64                    // the sum of pool.bytes
	lastIdleNumber     uint64                   // the latest idleNumber
	idleLines          container.Ring[idleLine] // the lines that have idle workers

	groups              container.Slots[group]
	groupIndex          container.Index // finds groups by name; the values are group.number + 1
	groupSets           container.Slots[groupSet]
	groupSetIndex       container.Index // finds sets by groupSetKey; the values are groupSet.number + 1
	countedGroups       int
	groupNameBytes      int64 // bytes of group names
	limitSlots          int64 // how many limits the arrays of all groups have room for
	rules               map[string]*rule
	wildcardRules       ruleIndex // the rules whose patterns contain a *
	revisionsInProgress int       // changes of rules that have not been applied to all groups
	rulesVersion        uint64    // how often rules have changed

	queues      container.Slots[queue]
	queuesByKey map[queueKey]*queue
	tenants     container.Slots[tenant]
	lastTurn    uint64 // how many turns tenants have taken
	heldQueues  container.Slots[heldQueues]
	openGroups  container.Heap // open groups that still have parked queues, by their best job

	holdings      container.Slots[holding]
	holdingsByKey map[holdingKey]*holding
	// unusedHoldings are empty holdings that are kept for the next job, the longest unused first.
	// unusedBytes is their size, including their queues, groups and tenants.
	unusedHoldings container.Ring[holding]
	unusedBytes    int64
	unsweptJobs    int // jobs of lost submitters that are still to be freed

	// Every command continues chores, because they decide which jobs may be handed out. Ticks
	// continue notifications (to workers, about lost submitters) and cleanups (which free
	// memory).
	chores, notifications, cleanups chores
	fairness                        fairnessChange

	history     container.Log[historyEntry]
	lastLostPos int64 // the position of the latest lost run, 0 for none

	// posSetters holds callbacks that many heaps share. A method value in each heap would
	// cost memory that every job touches.
	posSetters struct{ line, bestJob, pair, spillOrder, spillAge func(ref uint32, pos int32) }
	// heapBytes and laneBytes are the sizes of all heaps and of all lanes, in bytes.
	heapBytes, laneBytes int64

	peers          container.Slots[peer]
	lastGeneration uint32
	// submitterCount and workerCount count the connections.
	submitterCount, workerCount int

	timers container.Heap
	// typesToMatch lists the types that must be matched at the end of the command.
	typesToMatch []*jobType
	poolsToMatch []*pool
	contenders   container.Heap // marked types that may have both a job and a worker for it, by their best job
	// expiredCount counts the jobs past their deadline that this command has met. examinedCount counts
	// the held-back jobs and queues that this command has met. workLeft is set if one of these counts
	// has reached its bound; the next command then continues.
	expiredCount, examinedCount int
	workLeft                    bool

	draining bool
	// handOutStopped is set once EndLeftovers has begun: nothing is handed out any more.
	handOutStopped bool
	nextLeftover   int // the number of the record from which EndLeftovers continues

	deadLetters deadLetters

	// overdueRuns counts overdue runs, and overdueBytes is their weight.
	overdueRuns  int
	overdueBytes int64
	// stalledWorkers are the workers with overdue runs, ordered by when their first one became
	// overdue.
	stalledWorkers container.Ring[worker]
	// outcomes counts kept outcomes, and outcomeBytes is their weight.
	outcomes     int
	outcomeBytes int64

	// borrowedIndex finds runs of other brokers' jobs by worker and id.
	borrowedIndex container.Index
	borrowedRuns  int
	scratch       []byte
	// If trackIdle is set, changedLines lists the lines that have changed since the last call of
	// EachIdleChange.
	trackIdle    bool
	changedLines []*idleLine
}

// peer is an entry of the table of connections.
type peer struct {
	id        Peer
	submitter *submitter
	worker    *worker
}

// New returns a core without connections or jobs.
func New(cfg Config) *Broker {
	if cfg.Pages == nil {
		cfg.Pages = container.HeapPages{}
	}
	if cfg.Credit <= 0 {
		cfg.Credit = math.MaxInt64
	}
	b := &Broker{
		cfg:         cfg,
		bigBodies:   map[uint32][]byte{},
		typesByName: map[string]*jobType{},
		poolsByKey:  map[string]*pool{},
		rules:       map[string]*rule{},
		queuesByKey: map[queueKey]*queue{}, holdingsByKey: map[holdingKey]*holding{},
		rng: rand.NewPCG(cfg.Seed, 0x9e3779b97f4a7c15),
	}
	b.jobs.Pages, b.timings.Pages, b.pairs.Pages, b.slabs.Pages, b.history.Pages = cfg.Pages, cfg.Pages, cfg.Pages, cfg.Pages, cfg.Pages
	b.LimitHistory(cfg.History)
	seed := maphash.MakeSeed()
	b.jobIndex.Seed, b.groupIndex.Seed, b.groupSetIndex.Seed, b.borrowedIndex.Seed = seed, seed, seed, seed
	b.groupIndex.Equal = func(rec uint32, name []byte) bool { return bytes.Equal(b.groups.At(rec-1).name, name) }
	b.groupSetIndex.Equal = func(rec uint32, key []byte) bool { return b.groupSets.At(rec - 1).hasKey(key) }
	b.jobIndex.Equal = func(rec uint32, id []byte) bool { return bytes.Equal(b.id(b.jobs.Get(rec)), id) }
	b.borrowedIndex.Equal = func(rec uint32, key []byte) bool {
		j := b.jobs.Get(rec)
		return b.timing(j).worker == binary.LittleEndian.Uint32(key) && bytes.Equal(b.id(j), key[4:])
	}
	b.slabs.Length = func(rec uint32) uint32 { return b.jobs.Get(rec).size }
	b.slabs.SetPos = func(rec, slab, off uint32) {
		j := b.jobs.Get(rec)
		j.slab, j.offset = slab, off
	}
	b.posSetters.line, b.posSetters.bestJob, b.posSetters.pair, b.posSetters.spillOrder, b.posSetters.spillAge = b.setLinePos, b.setBestJobPos, b.setPairPos, b.setSpillOrderPos, b.setSpillAgePos
	b.timers = container.Heap{SetPos: b.setTimerPos, Bytes: &b.heapBytes}
	b.contenders = container.Heap{SetPos: b.setContenderPos, Bytes: &b.heapBytes}
	b.openGroups = container.Heap{SetPos: b.setOpenGroupPos, Bytes: &b.heapBytes}
	return b
}

func (b *Broker) setSpillOrderPos(rec uint32, pos int32) {
	b.jobs.Get(rec).links[laneLink].next = uint32(pos)
}
func (b *Broker) setSpillAgePos(rec uint32, pos int32) {
	b.jobs.Get(rec).links[laneLink].prev = uint32(pos)
}

// begin starts a command.
func (b *Broker) begin(now int64) {
	if now > b.now {
		b.now = now
	}
	b.effects, b.reasons = b.effects[:0], b.reasons[:0]
	b.slabs.FreeEmpty()
}

// end finishes a command and returns its effects.
func (b *Broker) end() []Effect {
	if len(b.chores) > 0 {
		b.runChores(&b.chores, choreSteps)
	}
	if len(b.typesToMatch)+len(b.poolsToMatch) > 0 || b.workLeft || b.mustOpenHeld() {
		b.match()
	}
	if b.unusedWithLetters.Len() > 0 {
		b.dropUnusedLetters()
	}
	for b.countUnusedWithoutLetters() > b.cfg.MaxUnusedTypes && b.unusedPlain.Len() > 0 {
		b.forgetType(b.unusedPlain.First())
	}
	b.checkInvariants()
	return b.effects
}

// Totals returns the ledger of all types.
func (b *Broker) Totals() Ledger { return b.totals }

// BigBytes returns how many bytes of bodies are held by reference.
func (b *Broker) BigBytes() int64 { return b.bigBytes }

// Peers returns how many submitters and workers are connected.
func (b *Broker) Peers() (submitters, workers int) { return b.submitterCount, b.workerCount }

// TypeCount returns how many types are known.
func (b *Broker) TypeCount() int { return len(b.typesByName) }
