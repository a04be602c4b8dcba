// Package memory manages the memory of the broker's process: pages that the garbage collector
// does not scan, the pace of the collector, and the return of unused memory to the system.
package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"golang.org/x/sys/unix"
)

// Pages takes pages directly from the system, where the garbage collector does not scan
// them, and gives them back at once.
type Pages struct{}

// mappedBytes counts the bytes that the process holds in such pages.
var mappedBytes atomic.Int64

// If more than populateFactor times n bytes are mapped, Get takes its n bytes from the system at
// once. Taking them page by page, when they are first written to, costs three times as much.
const populateFactor = 16

func (Pages) Get(n int) []byte {
	flags := unix.MAP_ANON | unix.MAP_PRIVATE
	if mappedBytes.Add(int64(n)) > populateFactor*int64(n) {
		flags |= unix.MAP_POPULATE
	}
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		panic("out of memory: mmap: " + err.Error())
	}
	return m
}

func (Pages) Put(m []byte) {
	mappedBytes.Add(-int64(len(m)))
	_ = unix.Munmap(m)
}

const (
	returnInterval = 5 * time.Second
	minReturnBytes = 16 << 20
	// minCollectPause is the shortest time between two collections that are caused by dropped frames.
	// So a client that begins large frames and disconnects cannot keep the collector busy.
	minCollectPause = 100 * time.Millisecond
)

// ReturnUnused returns unused memory to the system until stop is closed. The collector would keep
// that memory until the next allocations. trim is called every returnInterval to free memory that
// is kept for reuse; a value on dropped says that much memory has just become garbage.
func ReturnUnused(stop, memoryDrops <-chan struct{}, trim func()) {
	before := readHeapSize()
	t := time.NewTicker(returnInterval)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-memoryDrops:
			runtime.GC()
			select {
			case <-stop:
				return
			case <-time.After(minCollectPause):
			}
			continue
		case <-t.C:
		}
		trim()
		after := readHeapSize()
		if after.isIdle(before) {
			debug.FreeOSMemory()
		}
		before = after
	}
}

// heapSize holds sizes of the heap in bytes: free spans, objects including garbage, objects
// that were live at the last collection, and everything allocated since the start.
type heapSize struct{ free, objects, liveObjects, allocated uint64 }

func readHeapSize() heapSize {
	m := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(m)
	return heapSize{m[0].Value.Uint64(), m[1].Value.Uint64(), m[2].Value.Uint64(), m[3].Value.Uint64()}
}

// isIdle reports whether a heap has much to give back and has hardly been used lately. A
// process that allocates a lot will need the memory again, and giving memory back slows it
// down: returning 500 MiB keeps one processor busy for 25 to 55 ms, and the garbage collection
// before it keeps another one busy for longer.
func (h heapSize) isIdle(before heapSize) bool {
	spareBytes := h.free + h.objects - min(h.liveObjects, h.objects)
	return h.allocated-before.allocated < minReturnBytes && spareBytes >= max(minReturnBytes, h.liveObjects/4)
}

// ballast is never touched, so it occupies no physical memory. The collector runs when as many
// bytes have been allocated as are live, and the ballast counts as live. Without it, a small
// heap would be collected after every few dozen large frames.
var ballast []byte

const (
	ballastSize = 32 << 20
	// minHeap is how many bytes Go's heap may always use.
	minHeap = 32 << 20
)

// OfHost returns the memory of this host, or of its cgroup if that has less.
func OfHost() int64 {
	var limit uint64
	for _, provider := range []memlimit.Provider{memlimit.FromSystem, memlimit.FromCgroup} {
		if n, err := provider(); err == nil && n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return int64(min(limit, 1<<50))
}

// SetPace sets how often the collector runs: less often than by default if the heap is small, and
// more often if the process would otherwise exceed budget, in bytes (0 is no budget). It is for
// daemons, and does not override GOGC or GOMEMLIMIT in the environment.
func SetPace(budget int64) {
	paceOnce.Do(func() {
		if os.Getenv("GOGC") == "" {
			ballast = make([]byte, ballastSize)
		}
		if budget > 0 && os.Getenv("GOMEMLIMIT") == "" {
			(&gcSentinel{budget}).adjust()
		}
	})
}

var paceOnce sync.Once

// gcSentinel becomes garbage with every collection, so its finalizer shows that one has run.
type gcSentinel struct{ budget int64 }

// adjust sets the collector's memory limit to the part of the budget that mapped pages do not
// use.
func (s *gcSentinel) adjust() {
	debug.SetMemoryLimit(int64(len(ballast)) + max(minHeap, s.budget-mappedBytes.Load()))
	runtime.SetFinalizer(&gcSentinel{s.budget}, (*gcSentinel).adjust)
}
