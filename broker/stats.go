package broker

import "math/bits"

// StatBuckets is the number of buckets of Durations, which distinguish durations up to 2^31 µs,
// or 36 min.
const StatBuckets = 33

// Durations counts durations in buckets that are powers of two: bucket i counts those below 2^i
// µs that no smaller bucket counts, the last bucket all others.
type Durations struct {
	Buckets [StatBuckets]uint64
	Sum     uint64 // ns
}

// Record counts a duration, in nanoseconds. A negative one counts as 0.
func (d *Durations) Record(ns int64) {
	ns = max(ns, 0)
	d.Buckets[min(bits.Len64(uint64(ns)/1000), StatBuckets-1)]++
	d.Sum += uint64(ns)
}

// Count returns how many durations were counted.
func (d *Durations) Count() (n uint64) {
	for _, v := range d.Buckets {
		n += v
	}
	return n
}

// TypeStats counts how long jobs of a type waited before they were handed out, and how long they
// ran.
type TypeStats struct{ Wait, Run Durations }

// Add adds o to s.
func (s *TypeStats) Add(o *TypeStats) {
	for i := range StatBuckets {
		s.Wait.Buckets[i] += o.Wait.Buckets[i]
		s.Run.Buckets[i] += o.Run.Buckets[i]
	}
	s.Wait.Sum += o.Wait.Sum
	s.Run.Sum += o.Run.Sum
}

func (b *Broker) recordWait(k *jobType, ns int64) {
	k.stats.Wait.Record(ns)
	if !b.isKept(k) {
		b.otherStats.Wait.Record(ns)
	}
}

func (b *Broker) recordRunTime(k *jobType, ns int64) {
	k.stats.Run.Record(ns)
	if !b.isKept(k) {
		b.otherStats.Run.Record(ns)
	}
}
