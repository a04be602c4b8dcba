package broker

import "math/bits"

func statBucket(ns int64) int {
	return min(bits.Len64(uint64(max(ns, 0))/1000), StatBuckets-1)
}

// waited counts how long a job of a type waited before it was handed out.
func (b *Broker) waited(k *jobType, ns int64) {
	i := statBucket(ns)
	k.stats.wait(i, ns)
	if !b.kept(k) {
		b.otherStats.wait(i, ns)
	}
}

func (b *Broker) addRunTime(k *jobType, ns int64) {
	i := statBucket(ns)
	k.stats.run(i, ns)
	if !b.kept(k) {
		b.otherStats.run(i, ns)
	}
}

func (s *TypeStats) wait(bucket int, ns int64) {
	s.Wait[bucket]++
	s.WaitSum += uint64(max(ns, 0))
}

func (s *TypeStats) run(bucket int, ns int64) {
	s.Run[bucket]++
	s.RunSum += uint64(max(ns, 0))
}
