package broker

import "math/bits"

func statBucket(ns int64) int {
	return min(bits.Len64(uint64(max(ns, 0))/1000), StatBuckets-1)
}

// addWaitTime counts how long a job of a type waited before it was handed out.
func (b *Broker) addWaitTime(k *jobType, ns int64) {
	i := statBucket(ns)
	k.stats.addWait(i, ns)
	if !b.isKept(k) {
		b.otherStats.addWait(i, ns)
	}
}

func (b *Broker) addRunTime(k *jobType, ns int64) {
	i := statBucket(ns)
	k.stats.addRun(i, ns)
	if !b.isKept(k) {
		b.otherStats.addRun(i, ns)
	}
}

func (s *TypeStats) addWait(bucket int, ns int64) {
	s.Wait[bucket]++
	s.WaitSum += uint64(max(ns, 0))
}

func (s *TypeStats) addRun(bucket int, ns int64) {
	s.Run[bucket]++
	s.RunSum += uint64(max(ns, 0))
}
