package broker

import (
	"slices"
	"unsafe"

	"gloom/broker/container"
)

// jobType is a type of jobs, with its waiting jobs and the workers that serve it.
type jobType struct {
	// The fields that every job touches come first and lie side by side: with ten thousand
	// types, the cost of a job depends on how many cache lines and pages it touches.
	number       uint32
	firstPair    uint32 // the first pair in the list of the type's pairs
	contenderPos int32  // position in Broker.contenders, or -1
	holdings     int32  // those in use
	outcomes     uint32 // kept outcomes of its jobs
	touched      bool   // the type is in Broker.touched
	paused       bool
	fair         bool // tenants take turns
	// line holds the open held queues, and the queues that have ready jobs and are not parked;
	// in a fair type, tenants stand for the latter. The best comes first. plainQueue has the
	// jobs without groups.
	line       container.Heap
	plainQueue *queue
	limits     TypeLimits
	// idlePairs holds the pairs with pools, by how long these have had an idle worker. worstKey
	// is the worst key that any pool has for the type.
	worstKey  container.Entry
	idlePairs container.Heap
	idleLine  // the line of the workers that serve only this type
	Ledger
	name    []byte
	nameBuf [27]byte // holds the name if it fits
	bytes   int64
	// unusedIn is the ring of unused types that the type is in, nil while it is in use.
	unusedIn    *container.Ring[jobType]
	unusedLink  container.Link[jobType]
	workers     int32 // workers that joined with this type alone
	leavers     int32 // those of them that have left
	namingPools int32 // pools that name the type
	letters     letterList

	pace     // of the rate limit
	rate     bucket
	timerPos int32 // position of the rate's timer in Broker.timers while it holds jobs back, or -1
	// borrowers counts the brokers among the workers, borrowedRuns the jobs of other brokers
	// that run here.
	borrowers, borrowedRuns int32
	unusedHoldings          int // how many of its holdings are in Broker.unusedHoldings
	tenants                 map[tenantKey]*tenant
	heldQueues              map[*group]*heldQueues
	parked                  container.Ring[heldQueues] // the held queues that are parked
	// watchers link the type to the groups of its next job, which are watchedSet.
	watchers   []watcher
	watchedSet *groupSet
	// creationNumber numbers types and pools in the order in which they were made.
	creationNumber uint64
	stats          TypeStats
}

// TypeLimits bound how many jobs of a type run. Zero means no limit.
type TypeLimits struct {
	// Concurrency is how many jobs may run at a time.
	Concurrency int
	// Rate limits the jobs that are handed out per second, evenly spaced. Burst limits the jobs
	// that are handed out at once; 0 stands for as many as the rate gives in a tenth of a second.
	Rate  float64
	Burst int
}

// typeFor returns the type with this name, creating it if it is not known.
func (b *Broker) typeFor(name []byte) *jobType {
	if k := b.typesByName[string(name)]; k != nil {
		return k
	}
	k := &jobType{timerPos: -1, contenderPos: -1}
	k.jobType = k
	k.name = slices.Clip(append(k.nameBuf[:0], name...))
	k.line = container.Heap{SetPos: b.posSetters.line, Bytes: &b.heapBytes}
	k.idlePairs = container.Heap{SetPos: b.posSetters.pair, Bytes: &b.heapBytes}
	b.lastCreation++
	k.creationNumber = b.lastCreation
	k.number = b.types.Add(k)
	b.typeNames += k.longNameBytes()
	// This string is safe, because the name never changes.
	b.typesByName[unsafe.String(unsafe.SliceData(k.name), len(k.name))] = k
	if len(b.poolsByKey) > 0 {
		b.startPairing(&pairing{jobType: k})
	}
	b.reviewUse(k)
	return k
}

// longNameBytes returns how many bytes of the name lie outside the record.
func (k *jobType) longNameBytes() int64 {
	if len(k.name) <= len(k.nameBuf) {
		return 0
	}
	return int64(len(k.name))
}

// inUse reports whether the type is in use and so must not be forgotten.
func (k *jobType) inUse() bool {
	return k.isBusy() || k.hasSettings()
}

// isBusy reports whether the type is in use for reasons other than its limits and fairness.
func (k *jobType) isBusy() bool {
	return k.touched || k.contenderPos >= 0 || k.holdings > 0 || k.workers+k.namingPools > 0 || k.paused
}

// hasSettings reports whether the type has limits or is fair.
func (k *jobType) hasSettings() bool { return k.fair || k.limits != (TypeLimits{}) }

// typeExceedsLimit reports whether using the type would exceed the limit on types in use. k is
// nil if the type is not known.
func (b *Broker) typeExceedsLimit(k *jobType) bool {
	return (k == nil || k.unusedIn != nil) && b.hasNoRoomForTypes(1)
}

// hasNoRoomForTypes reports whether the limit forbids this number of further types in use.
func (b *Broker) hasNoRoomForTypes(added int) bool {
	c := b.cfg.MaxTypes
	return c > 0 && added > 0 && b.TypesInUse()+added > c
}

// TypesInUse returns how many types count against MaxTypes.
func (b *Broker) TypesInUse() int {
	return len(b.typesByName) - b.unusedWithoutLetters() - b.unusedWithLetters.Len()
}

func (b *Broker) tooManyTypes() Reason {
	return Reason{Why: WhyTooManyTypes, Limit: int64(b.cfg.MaxTypes)}
}

// reviewUse puts a type that may have become used or unused where it belongs: unused types are in
// one of three rings. At the end of a command only Config.IdleTypes of them are remembered.
// Broker.forgotten adds up the counts of the others.
func (b *Broker) reviewUse(k *jobType) {
	var ring *container.Ring[jobType]
	switch {
	case k.inUse():
	case k.letters.n > 0:
		ring = &b.unusedWithLetters
	case b.isKept(k):
		ring = &b.unusedKept
	default:
		ring = &b.unusedPlain
	}
	if ring == k.unusedIn {
		return
	}
	if k.unusedIn != nil {
		k.unusedIn.Remove(&k.unusedLink)
	}
	if k.unusedIn = ring; ring != nil {
		ring.Push(&k.unusedLink, k)
	}
}

// unusedWithoutLetters returns how many types are not in use and have no dead letters.
func (b *Broker) unusedWithoutLetters() int { return b.unusedPlain.Len() + b.unusedKept.Len() }

// dropUnusedLetters forgets dead letters of unused types if types in use need the room. The type
// that has been unused longest loses its letters first.
func (b *Broker) dropUnusedLetters() {
	for c := b.cfg.MaxTypes; c > 0 && b.unusedWithLetters.Len() > 0 && len(b.typesByName)-b.unusedWithoutLetters() > c; {
		k := b.unusedWithLetters.First()
		for k.letters.n > 0 {
			b.deadLetters.drop(b, k, k.letters.firstFrom(0))
		}
	}
}

// isKept reports whether the type is one of the first KeptTypes types, which only ForgetType
// forgets.
func (b *Broker) isKept(k *jobType) bool { return int(k.number) < b.cfg.KeptTypes }

func (b *Broker) forgetType(k *jobType) {
	k.unusedIn.Remove(&k.unusedLink)
	b.stopTimer(&k.timerPos)
	b.forgottenTotals.Add(&k.Ledger)
	for k.unusedHoldings > 0 {
		b.dropHolding(b.unusedHoldings.First())
	}
	k.line.Release()
	b.watchGroups(k, nil)
	for k.firstPair != 0 {
		b.unpair(k.firstPair)
	}
	k.idlePairs.Release()
	b.typeNames -= k.longNameBytes()
	delete(b.typesByName, string(k.name))
	b.types.Drop(k.number)
}
