package broker

import "math/bits"

func statBucket(ns int64) int {
	return min(bits.Len64(uint64(max(ns, 0))/1000), StatBuckets-1)
}

// waited and ran count a duration for a type.
func (b *Broker) waited(k *jobType, ns int64) {
	k.stats.wait(ns)
	if !b.kept(k) {
		b.otherStats.wait(ns)
	}
}

func (b *Broker) ran(k *jobType, ns int64) {
	k.stats.run(ns)
	if !b.kept(k) {
		b.otherStats.run(ns)
	}
}

func (s *TypeStats) wait(ns int64) {
	s.Wait[statBucket(ns)]++
	s.WaitSum += uint64(max(ns, 0))
}

func (s *TypeStats) run(ns int64) {
	s.Run[statBucket(ns)]++
	s.RunSum += uint64(max(ns, 0))
}
