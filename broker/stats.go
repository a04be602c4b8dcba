package broker

import "math/bits"

// DurationBuckets is the number of buckets of Durations, which distinguish durations up to 2^31 µs,
// or 36 min.
const DurationBuckets = 33

// Durations counts durations in buckets that are powers of two: bucket i counts the durations below
// 2^i µs that no smaller bucket counts; the last bucket counts all others.
type Durations struct {
	Buckets [DurationBuckets]uint64
	Sum     uint64 // ns
}

// Record counts a duration, in nanoseconds. A negative one counts as 0.
func (d *Durations) Record(ns int64) { d.record(bucketOf(ns), ns) }

func (d *Durations) record(bucket int, ns int64) {
	d.Buckets[bucket]++
	d.Sum += uint64(max(ns, 0))
}

func bucketOf(ns int64) int {
	return min(bits.Len64(uint64(max(ns, 0))/1000), DurationBuckets-1)
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

// Add adds other to s.
func (s *TypeStats) Add(other *TypeStats) {
	for i := range DurationBuckets {
		s.Wait.Buckets[i] += other.Wait.Buckets[i]
		s.Run.Buckets[i] += other.Run.Buckets[i]
	}
	s.Wait.Sum += other.Wait.Sum
	s.Run.Sum += other.Run.Sum
}

func (b *Broker) recordWait(jt *jobType, ns int64) {
	i := bucketOf(ns)
	jt.stats.Wait.record(i, ns)
	if !b.isKept(jt) {
		b.otherStats.Wait.record(i, ns)
	}
}

func (b *Broker) recordRunTime(jt *jobType, ns int64) {
	i := bucketOf(ns)
	jt.stats.Run.record(i, ns)
	if !b.isKept(jt) {
		b.otherStats.Run.record(i, ns)
	}
}
