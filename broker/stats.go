package broker

import "math/bits"

// waited and ran count how long jobs of a type waited and ran.
func (b *Broker) waited(k *jobType, ns int64) {
	count(&k.stats.Wait, &k.stats.WaitSum, ns)
	if !b.kept(k) {
		count(&b.otherStats.Wait, &b.otherStats.WaitSum, ns)
	}
}

func (b *Broker) ran(k *jobType, ns int64) {
	count(&k.stats.Run, &k.stats.RunSum, ns)
	if !b.kept(k) {
		count(&b.otherStats.Run, &b.otherStats.RunSum, ns)
	}
}

func count(buckets *[StatBuckets]uint64, sum *uint64, ns int64) {
	ns = max(ns, 0)
	buckets[min(bits.Len64(uint64(ns)/1000), StatBuckets-1)]++
	*sum += uint64(ns)
}
