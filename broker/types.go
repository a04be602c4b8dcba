package broker

import (
	"slices"
	"unsafe"

	"gloom/broker/container"
)

// jobType is a kind of work: what waits for it, who can do it.
type jobType struct {
	// What every job of it touches comes first, and all of it is one piece of memory:
	// with ten thousand types, what a job costs is how many cache lines and pages it
	// meets.
	no        uint32
	pairs     uint32 // the first pair with a pool
	contender int32  // its place in Broker.ripe, -1
	holdings  int32  // those in use
	outcomes  uint32 // kept outcomes of its jobs
	touched   bool   // stands in Broker.touched
	moved     bool   // stands in Broker.movedTypes
	paused    bool
	fair      bool // tenants take turns
	// line holds the queues with ready jobs that no group holds back or, in a fair
	// type, their tenants, best first. plain is the queue of jobs without groups.
	line   container.Heap
	plain  *queue
	limits TypeLimits
	// Workers with several types are in pools: pairs with them, by how long a worker
	// is idle. worstKey is the worst key that a pool has for the type.
	worstKey container.Entry
	// idle lists the workers with room, longest idle first.
	idle  container.Ring[worker]
	pools container.Heap
	Ledger
	name   []byte
	short  [27]byte // where the name lies, if it is no longer
	bytes  int64
	idling container.Link[jobType] // in Broker.idleTypes
	// unusedLink links it in a ring of types that nobody uses (Broker.restsIn).
	unusedLink container.Link[jobType]
	workers    int32 // joined with this type alone, idle or not
	named      int32 // pools that name the type
	dead       shelf

	paced bucket // by the rate limit
	timer int32  // position in Broker.timers of its rate timer, -1
	// borrowers are the brokers among the workers, borrowed is how many jobs of other
	// brokers run here.
	borrowers, borrowed int32
	unused              int // holdings that are not in use
	tenants             map[tenantKey]*tenant
	pens                map[*group]*pen
	parked              container.Ring[pen] // those that are parked
	// watchers are those of the groups of its next job, watched.
	watchers []watcher
	watched  *groupSet
	// created orders types and pools by when they came to be.
	created uint64
	stats   TypeStats
}

// TypeLimits bound what of a type may run. Zero means no limit.
type TypeLimits struct {
	// Concurrency is how many jobs may run at a time.
	Concurrency int
	// Rate is how many jobs may be handed out per second, evenly spaced; Burst how
	// many may come at once, 0 for a tenth of a second's worth.
	Rate  float64
	Burst int
}

// TypeStats counts durations in powers of two: bucket i holds those of less
// than 2^i µs, the last one all others.
type TypeStats struct {
	Wait, Run       [StatBuckets]uint64
	WaitSum, RunSum uint64 // ns
}

// StatBuckets is the number of buckets of TypeStats: up to 2^31 µs, 36 min.
const StatBuckets = 33

// typeNamed returns the type with this name, made if need be.
func (b *Broker) typeNamed(name []byte) *jobType {
	if k := b.typesByName[string(name)]; k != nil {
		return k
	}
	k := &jobType{timer: -1, contender: -1}
	k.name = slices.Clip(append(k.short[:0], name...))
	k.line = container.Heap{Place: b.place.standing, Held: &b.heapBytes}
	k.pools = container.Heap{Place: b.place.pair, Held: &b.heapBytes}
	b.creations++
	k.created = b.creations
	k.no = b.types.Add(k)
	b.typeNames += k.longName()
	b.typesByName[unsafe.String(unsafe.SliceData(k.name), len(k.name))] = k // which nobody changes
	if len(b.poolsByKey) > 0 {
		b.startPairing(&pairing{kind: k})
	}
	b.typeLeft(k)
	return k
}

// longName is what the name occupies beside the type.
func (k *jobType) longName() int64 {
	if len(k.name) <= len(k.short) {
		return 0
	}
	return int64(len(k.name))
}

// inUse: the type cannot be forgotten.
func (k *jobType) inUse() bool {
	return k.busy() || k.set()
}

// busy: it is in use, whatever is set of it.
func (k *jobType) busy() bool {
	return k.touched || k.contender >= 0 || k.holdings > 0 || k.workers+k.named > 0 || k.paused
}

// set: it has limits or is fair.
func (k *jobType) set() bool { return k.fair || k.limits != (TypeLimits{}) }

// tooMany: the type (nil when it is not known) is not in use, and cannot come
// into use because as many as may be are.
func (b *Broker) tooMany(k *jobType) bool {
	return (k == nil || k.unusedLink.In()) && b.tooManyTypes(1)
}

// tooManyTypes: so many more types in use are more than may be.
func (b *Broker) tooManyTypes(more int) bool {
	c := b.cfg.MaxTypes
	return c > 0 && more > 0 && b.TypesInUse()+more > c
}

// TypesInUse is what counts against MaxTypes.
func (b *Broker) TypesInUse() int { return len(b.typesByName) - b.unusedTypes() - b.deadTypes.Len() }

func (b *Broker) manyTypes() Reason { return Reason{Why: ManyTypes, Most: int64(b.cfg.MaxTypes)} }

// typeUsed and rest keep the list of types that nobody uses. Only so many of them
// are remembered (Config.IdleTypes) beyond the end of a command; what the
// forgotten ones counted is added up in one place.
func (b *Broker) typeUsed(k *jobType) {
	if k.unusedLink.In() {
		b.unusedRing(k).Remove(&k.unusedLink)
	}
}

func (b *Broker) typeLeft(k *jobType) {
	if k.holdings == 0 {
		b.listUnused(k)
	}
}

func (b *Broker) listUnused(k *jobType) {
	if !k.unusedLink.In() && !k.inUse() {
		b.unusedRing(k).Push(&k.unusedLink, k)
	}
}

// unusedRing is the ring for a type that nobody uses.
func (b *Broker) unusedRing(k *jobType) *container.Ring[jobType] {
	switch {
	case k.dead.n > 0:
		return &b.deadTypes
	case b.kept(k):
		return &b.keptTypes
	}
	return &b.spareTypes
}

// unusedTypes is how many types nobody uses and no dead letter keeps.
func (b *Broker) unusedTypes() int { return b.spareTypes.Len() + b.keptTypes.Len() }

// makeRoomOfDead forgets the dead letters of types that nobody uses, as far as types in
// use need the room: of the type first whose use ended first.
func (b *Broker) makeRoomOfDead() {
	for c := b.cfg.MaxTypes; c > 0 && b.deadTypes.Len() > 0 && len(b.typesByName)-b.unusedTypes() > c; {
		k := b.deadTypes.First()
		for k.dead.n > 0 {
			b.dead.drop(b, k, k.dead.from(0))
		}
	}
}

// kept: the type is one of the first, which are never forgotten.
func (b *Broker) kept(k *jobType) bool { return int(k.no) < b.cfg.KeptTypes }

func (b *Broker) forgetType(k *jobType) {
	b.typeUsed(k)
	b.stopRateTimer(k)
	b.forgotten.Add(&k.Ledger)
	for k.unused > 0 {
		b.dropHolding(b.unused.First())
	}
	k.line.Release()
	b.watch(k, nil)
	for k.pairs != 0 {
		b.part(k.pairs)
	}
	k.pools.Release()
	b.typeNames -= k.longName()
	delete(b.typesByName, string(k.name))
	b.types.Drop(k.no)
}

// Add adds up.
func (s *TypeStats) Add(o *TypeStats) {
	for i := range s.Wait {
		s.Wait[i] += o.Wait[i]
		s.Run[i] += o.Run[i]
	}
	s.WaitSum += o.WaitSum
	s.RunSum += o.RunSum
}
