// Package memory is what the broker's process does about its memory, beside the limits:
// pages that the collector does not look at, its pace, and giving back what is not needed.
package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Pages takes pages from the system, where the garbage collector does not
// look, and gives them back at once.
type Pages struct{}

// mappedBytes counts what the process holds of them.
var mappedBytes atomic.Int64

func (Pages) Get(n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic("out of memory: mmap: " + err.Error())
	}
	mappedBytes.Add(int64(n))
	return m
}

func (Pages) Put(m []byte) {
	mappedBytes.Add(-int64(len(m)))
	_ = unix.Munmap(m)
}

const (
	givePeriod = 5 * time.Second
	giveLeast  = 16 << 20
	// dropPause lies between two collections that dropped frames ask for: who
	// begins large frames and goes away does not keep the collector at work.
	dropPause = 100 * time.Millisecond
)

// GiveBack returns memory that is not needed any more to the system, until stop. The
// collector would keep it for as long as nothing else is allocated. trim is called now
// and then to let go of what is kept for use again; dropped tells that much has become
// garbage at once.
func GiveBack(stop, dropped <-chan struct{}, trim func()) {
	before := heap()
	t := time.NewTicker(givePeriod)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-dropped:
			runtime.GC()
			select {
			case <-stop:
				return
			case <-time.After(dropPause):
			}
			continue
		case <-t.C:
		}
		trim()
		now := heap()
		if now.idle(before) {
			debug.FreeOSMemory()
		}
		before = now
	}
}

// heapSize is the heap's, in bytes: free spans, objects with garbage among them,
// what of them lived at the last collection; and all that was ever allocated.
type heapSize struct{ free, objects, live, allocated uint64 }

func heap() heapSize {
	m := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(m)
	return heapSize{m[0].Value.Uint64(), m[1].Value.Uint64(), m[2].Value.Uint64(), m[3].Value.Uint64()}
}

// idle reports whether a heap has much to give back that nobody has wanted lately.
// Who allocates a lot will want it again, and be in the way: giving back 500 MiB
// keeps a processor for 25 to 55 ms, and collecting them another one for longer.
func (h heapSize) idle(before heapSize) bool {
	spare := h.free + h.objects - min(h.live, h.objects)
	return h.allocated-before.allocated < giveLeast && spare >= max(giveLeast, h.live/4)
}

// ballast is memory that is never touched, and so takes none. The collector runs
// when as much has been allocated as lives, ballast counted: with a small heap it
// would otherwise run for every few dozen big frames.
var ballast []byte

const (
	ballastSize = 32 << 20
	// leastHeap is what the collector may use in any case, in bytes.
	leastHeap = 32 << 20
)

// Pace sets the collector's pace: for a small heap less often than its own, and
// more often where memory beyond budget would be used (0 is no budget). It is for
// programs whose process is the broker's; a GOGC or GOMEMLIMIT in the environment
// is left alone.
func Pace(budget int64) {
	paceOnce.Do(func() {
		if os.Getenv("GOGC") == "" {
			ballast = make([]byte, ballastSize)
		}
		if budget > 0 && os.Getenv("GOMEMLIMIT") == "" {
			(&sentinel{budget}).adjust()
		}
	})
}

var paceOnce sync.Once

// sentinel is collected by every collection, and so tells when one was.
type sentinel struct{ budget int64 }

// adjust leaves the collector what mapped pages leave of the budget.
func (s *sentinel) adjust() {
	debug.SetMemoryLimit(int64(len(ballast)) + max(leastHeap, s.budget-mappedBytes.Load()))
	runtime.SetFinalizer(&sentinel{s.budget}, (*sentinel).adjust)
}
