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
	cfg Config
	now int64
	fx  []Effect
	// reasons are those of fx.
	reasons []Reason

	seq     uint32 // the last arrival number; it wraps around
	timerNo uint64 // orders timers of the same instant
	rng     *rand.PCG

	jobs    container.Table[job]
	timings container.Table[timing]
	slabs   container.Slabs
	big     map[uint32][]byte // bodies kept by reference, by record
	index   container.Index

	bigBytes int64
	bytes    int64 // weight of all jobs held

	total       Ledger
	types       container.Slots[jobType]
	typesByName map[string]*jobType
	typeNames   int64 // bytes of long names of types
	// Types that nobody uses, least recently used first: deadTypes while dead
	// letters of them are kept, keptTypes those that are never forgotten.
	spareTypes, deadTypes, keptTypes container.Ring[jobType]
	forgotten                        Ledger // of types known no more
	otherStats                       TypeStats

	pools      container.Slots[pool]
	poolsByKey map[string]*pool
	pairs      container.Table[pair]
	unjudged   int    // pairings of types and pools that are to be judged
	births     uint64 // of types and pools
	poolBytes  int64  // what pools occupy, see pool.bytes
	lines      uint64 // how often a worker stood in line
	// idleTypes and idlePools are those with idle workers.
	idleTypes container.Ring[jobType]
	idlePools container.Ring[pool]

	groups      container.Slots[group]
	groupIndex  container.Index // by name, of group.no + 1
	sets        container.Slots[groupSet]
	setIndex    container.Index // by setKey, of groupSet.no + 1
	groupsThere int
	groupNames  int64 // bytes of names of groups
	limits      int64 // that all groups have, as their memory has room for
	rules       map[string]*rule
	likeRules   []*rule // those with a *
	likeIndex   ruleIndex
	likeIndexed bool
	ruleNo      uint64
	revising    int    // changes of rules that not all groups follow yet
	ruled       uint64 // numbers changes of rules

	queues      container.Slots[queue]
	queuesByKey map[queueKey]*queue
	tenants     container.Slots[tenant]
	turns       uint64 // numbers what tenants were served
	pens        container.Slots[pen]
	opened      container.Heap // groups that are open and have parked pens, by their best job

	holdings      container.Slots[holding]
	holdingsByKey map[holdingKey]*holding
	// unused are empty holdings that are kept, by when they became so; with what is
	// around them they occupy unusedBytes.
	unused      container.Ring[holding]
	unusedBytes int64
	unswept     int // jobs of submitters that went, which still are to be freed

	// chores are those that others wait for, and go on with every command. With ticks
	// go on those that tell workers of lost submitters, and lazy ones, which give back
	// memory.
	chores, tells, lazy chores
	settling            settling

	runs pastRuns // that did not end their jobs

	// place has functions that very many heaps share: each method value would be memory
	// of its own, met by every job.
	place struct{ standing, job, pair, spill, age func(ref uint32, pos int32) }
	// heapBytes and laneBytes are what all heaps and lanes occupy.
	heapBytes, laneBytes int64

	peers     []peer
	freePeers []uint32
	gens      uint32
	// submitters and workers count the living ones.
	submitters, workers int

	timers container.Heap
	// touched lists the types to be matched at the end of the command.
	touched      []*jobType
	touchedPools []*pool
	ripe         container.Heap // types met of these, that may have jobs and workers, by their best job
	// lapses and looks count jobs past their deadline and what cannot be handed out that
	// this command met; unfinished: it left some to the next one.
	lapses, looks int
	unfinished    bool

	draining bool
	// expelling: Expel has begun, nothing is handed out any more.
	expelling bool
	drainNext uint32 // record at which Expel goes on

	dead deadLetters

	// overdueRuns counts overdue runs, overdueBytes what they weigh.
	overdueRuns  int
	overdueBytes int64
	// stalled are the workers that have overdue runs, by when the first came.
	stalled container.Ring[worker]
	// outcomes counts kept outcomes, outcomeBytes what they weigh.
	outcomes     int
	outcomeBytes int64

	// borrowed finds the runs of other brokers' jobs by worker and id.
	borrowed     container.Index
	borrowedRuns int
	scratch      []byte
	// watching: movedTypes and movedPools list what moves.
	watching   bool
	movedTypes []*jobType
	movedPools []*pool
}

// peer is a slot of the table of living connections.
type peer struct {
	id  Peer
	sub *submitter
	wrk *worker
}

// New returns a core without peers and jobs.
func New(cfg Config) *Broker {
	if cfg.Pages == nil {
		cfg.Pages = container.HeapPages{}
	}
	if cfg.Credit <= 0 {
		cfg.Credit = math.MaxInt64
	}
	b := &Broker{
		cfg:         cfg,
		big:         map[uint32][]byte{},
		typesByName: map[string]*jobType{},
		poolsByKey:  map[string]*pool{},
		rules:       map[string]*rule{},
		queuesByKey: map[queueKey]*queue{}, holdingsByKey: map[holdingKey]*holding{},
		rng:   rand.NewPCG(cfg.Seed, 0x9e3779b97f4a7c15),
		peers: make([]peer, 1),
	}
	b.jobs.Pages, b.timings.Pages, b.pairs.Pages, b.slabs.Pages = cfg.Pages, cfg.Pages, cfg.Pages, cfg.Pages
	seed := maphash.MakeSeed()
	b.index.Seed, b.groupIndex.Seed, b.setIndex.Seed, b.borrowed.Seed = seed, seed, seed, seed
	b.groupIndex.Equal = func(r uint32, name []byte) bool { return bytes.Equal(b.groups.At(r-1).name, name) }
	b.setIndex.Equal = func(r uint32, key []byte) bool { return b.sets.At(r - 1).named(key) }
	b.index.Equal = func(r uint32, id []byte) bool { return bytes.Equal(b.id(b.jobs.Get(r)), id) }
	b.borrowed.Equal = func(r uint32, key []byte) bool {
		j := b.jobs.Get(r)
		return j.worker == binary.LittleEndian.Uint32(key) && bytes.Equal(b.id(j), key[4:])
	}
	b.slabs.Lives = func(r, slab, off uint32) bool {
		if !b.jobs.Has(r) {
			return false
		}
		j := b.jobs.Get(r)
		return j.state != stFree && j.slab == slab && j.off == off
	}
	b.slabs.Place = func(r, slab, off uint32) {
		j := b.jobs.Get(r)
		j.slab, j.off = slab, off
	}
	b.place.standing, b.place.job, b.place.pair, b.place.spill, b.place.age = b.placeStanding, b.placeJob, b.placePair, b.placeSpill, b.placeAge
	b.timers = container.Heap{Place: b.placeTimer, Held: &b.heapBytes}
	b.ripe = container.Heap{Place: b.placeRipe, Held: &b.heapBytes}
	b.opened = container.Heap{Place: b.placeOpened, Held: &b.heapBytes}
	return b
}

func (b *Broker) placeSpill(r uint32, pos int32) { b.jobs.Get(r).next = uint32(pos) }
func (b *Broker) placeAge(r uint32, pos int32)   { b.jobs.Get(r).prev = uint32(pos) }

// begin opens a command.
func (b *Broker) begin(now int64) {
	if now > b.now {
		b.now = now
	}
	b.fx, b.reasons = b.fx[:0], b.reasons[:0]
	b.slabs.Settle()
}

// end closes a command.
func (b *Broker) end() []Effect {
	if len(b.chores) > 0 {
		b.do(&b.chores, choreSteps)
	}
	if len(b.touched)+len(b.touchedPools) > 0 || b.unfinished || b.opened.Len() > 0 && b.idleTypes.Len()+b.idlePools.Len() > 0 {
		b.match()
	}
	if b.deadTypes.Len() > 0 {
		b.yield()
	}
	for b.unusedTypes() > b.cfg.IdleTypes && b.spareTypes.Len() > 0 {
		b.forgetType(b.spareTypes.First())
	}
	b.verify()
	return b.fx
}

// Totals returns the ledger of all types.
func (b *Broker) Totals() Ledger { return b.total }

// BigBytes returns the length of all bodies kept by reference, of jobs held.
func (b *Broker) BigBytes() int64 { return b.bigBytes }

// Peers returns how many submitters and workers are connected.
func (b *Broker) Peers() (submitters, workers int) { return b.submitters, b.workers }

// TypeCount returns how many types are known.
func (b *Broker) TypeCount() int { return len(b.typesByName) }
