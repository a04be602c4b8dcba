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
	isMarked     bool   // the type is in Broker.typesToMatch
	paused       bool
	fair         bool // tenants take turns
	// line holds the open held queues, and the queues that have ready jobs and are not parked. In a
	// fair type, tenants stand for the queues that are not parked. The best comes first. plainQueue has the
	// jobs without groups.
	line       container.Heap
	plainQueue *queue
	limits     TypeLimits
	// idlePairs holds the pairs with pools, by how long these have had an idle worker. worstKey is the
	// worst key of any pool for the type.
	worstKey  container.Entry
	idlePairs container.Heap
	idleLine  // the line of the workers that serve only this type
	Ledger
	name    []byte
	nameBuf [27]byte // holds the name if it fits
	bytes   int64
	// unusedRing is the ring of unused types that the type is in, nil while it is in use.
	unusedRing  *container.Ring[jobType]
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
	if jt := b.typesByName[string(name)]; jt != nil {
		return jt
	}
	jt := &jobType{timerPos: -1, contenderPos: -1}
	jt.jobType = jt
	jt.name = slices.Clip(append(jt.nameBuf[:0], name...))
	jt.line = container.Heap{SetPos: b.posSetters.line, Bytes: &b.heapBytes}
	jt.idlePairs = container.Heap{SetPos: b.posSetters.pair, Bytes: &b.heapBytes}
	b.lastCreation++
	jt.creationNumber = b.lastCreation
	jt.number = b.types.Add(jt)
	b.typeNameBytes += jt.longNameBytes()
	// This string is safe, because the name never changes.
	b.typesByName[unsafe.String(unsafe.SliceData(jt.name), len(jt.name))] = jt
	if len(b.poolsByKey) > 0 {
		b.startPairing(&pairing{jobType: jt})
	}
	b.updateUnusedRing(jt)
	return jt
}

// longNameBytes returns how many bytes of the name lie outside the record.
func (jt *jobType) longNameBytes() int64 {
	if len(jt.name) <= len(jt.nameBuf) {
		return 0
	}
	return int64(len(jt.name))
}

// inUse reports whether the type is in use and so must not be forgotten.
func (jt *jobType) inUse() bool {
	return jt.isBusy() || jt.hasSettings()
}

// isBusy reports whether the type is in use for reasons other than its limits and fairness.
func (jt *jobType) isBusy() bool {
	return jt.isMarked || jt.contenderPos >= 0 || jt.holdings > 0 || jt.workers+jt.namingPools > 0 || jt.paused
}

// hasSettings reports whether the type has limits or is fair.
func (jt *jobType) hasSettings() bool { return jt.fair || jt.limits != (TypeLimits{}) }

// typeExceedsLimit reports whether using the type would exceed the limit on types in use. jt is nil
// if the type is not known.
func (b *Broker) typeExceedsLimit(jt *jobType) bool {
	return (jt == nil || jt.unusedRing != nil) && b.hasNoRoomForTypes(1)
}

// hasNoRoomForTypes reports whether the limit forbids this number of further types in use.
func (b *Broker) hasNoRoomForTypes(newTypes int) bool {
	c := b.cfg.MaxTypes
	return c > 0 && newTypes > 0 && b.TypesInUse()+newTypes > c
}

// TypesInUse returns how many types count against MaxTypes.
func (b *Broker) TypesInUse() int {
	return len(b.typesByName) - b.countUnusedWithoutLetters() - b.unusedWithLetters.Len()
}

func (b *Broker) tooManyTypes() Reason {
	return Reason{Why: WhyTooManyTypes, Limit: int64(b.cfg.MaxTypes)}
}

// updateUnusedRing puts a type that may have become used or unused into the right ring, or into
// none: unused types are in one of three rings. At the end of a command only Config.MaxUnusedTypes
// of them are remembered. Broker.forgottenTotals adds up the counts of the others.
func (b *Broker) updateUnusedRing(jt *jobType) {
	var ring *container.Ring[jobType]
	switch {
	case jt.inUse():
	case jt.letters.n > 0:
		ring = &b.unusedWithLetters
	case b.isKept(jt):
		ring = &b.unusedKept
	default:
		ring = &b.unusedPlain
	}
	if ring == jt.unusedRing {
		return
	}
	if jt.unusedRing != nil {
		jt.unusedRing.Remove(&jt.unusedLink)
	}
	jt.unusedRing = ring
	if ring != nil {
		ring.Push(&jt.unusedLink, jt)
	}
}

// countUnusedWithoutLetters returns how many types are not in use and have no dead letters.
func (b *Broker) countUnusedWithoutLetters() int { return b.unusedPlain.Len() + b.unusedKept.Len() }

// dropUnusedLetters forgets dead letters of unused types if types in use need the room. The type
// that has been unused longest loses its letters first.
func (b *Broker) dropUnusedLetters() {
	for c := b.cfg.MaxTypes; c > 0 && b.unusedWithLetters.Len() > 0 && len(b.typesByName)-b.countUnusedWithoutLetters() > c; {
		jt := b.unusedWithLetters.First()
		for jt.letters.n > 0 {
			b.deadLetters.drop(b, jt, jt.letters.firstFrom(0))
		}
	}
}

// isKept reports whether the type is one of the first KeptTypes types, which only ForgetType
// forgets.
func (b *Broker) isKept(jt *jobType) bool { return int(jt.number) < b.cfg.KeptTypes }

func (b *Broker) forgetType(jt *jobType) {
	jt.unusedRing.Remove(&jt.unusedLink)
	b.stopTimer(&jt.timerPos)
	b.forgottenTotals.Add(&jt.Ledger)
	for jt.unusedHoldings > 0 {
		b.dropHolding(b.unusedHoldings.First())
	}
	jt.line.Release()
	b.watchGroups(jt, nil)
	for jt.firstPair != 0 {
		b.unpair(jt.firstPair)
	}
	jt.idlePairs.Release()
	b.typeNameBytes -= jt.longNameBytes()
	delete(b.typesByName, string(jt.name))
	b.types.Drop(jt.number)
}
