package memory

import "testing"

func TestHeapIsIdleIfHardlyUsed(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name      string
		heap      heapSize
		allocated uint64 // bytes allocated in the last period
		idle      bool
	}{
		{"nothing to give", heapSize{free: mib, objects: 4 * mib, liveObjects: 4 * mib}, 0, false},
		{"garbage", heapSize{objects: 40 * mib, liveObjects: 4 * mib}, mib, true},
		{"free spans", heapSize{free: 40 * mib, objects: 4 * mib, liveObjects: 4 * mib}, mib, true},
		{"garbage, and more is made", heapSize{objects: 40 * mib, liveObjects: 4 * mib}, 16 * mib, false},
		{"little beside what lives", heapSize{free: 99 * mib, objects: 400 * mib, liveObjects: 400 * mib}, mib, false},
		{"much beside what lives", heapSize{free: 100 * mib, objects: 400 * mib, liveObjects: 400 * mib}, mib, true},
		{"a collection has just begun", heapSize{objects: 3 * mib, liveObjects: 4 * mib}, mib, false},
	} {
		c.heap.allocated = 1<<40 + c.allocated
		if got := c.heap.isIdle(heapSize{allocated: 1 << 40}); got != c.idle {
			t.Errorf("%s: idle is %v", c.name, got)
		}
	}
}

// TestHostMemoryIsPlausible: the memory found is more than zero, and not more than this host has.
func TestHostMemoryIsPlausible(t *testing.T) {
	if n := OfHost(); n < 64<<20 || n > 1<<50 {
		t.Errorf("%d bytes", n)
	}
}
