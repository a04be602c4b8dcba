package master

import "slices"

// bounds are the upper limits of a histogram's buckets, in seconds.
var bounds = [...]float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 3600}

// histogram counts durations.
type histogram struct {
	buckets [len(bounds) + 1]uint64
	sum     float64
}

// add counts one duration. A negative duration, from a clock that was set back, counts as 0.
func (h *histogram) add(seconds float64) {
	seconds = max(seconds, 0)
	i, _ := slices.BinarySearch(bounds[:], seconds)
	h.buckets[i]++
	h.sum += seconds
}
