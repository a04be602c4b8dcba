package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gloom/broker"
)

// mapped takes pages from the system, where the garbage collector does not
// look, and gives them back at once.
type mapped struct{}

func (mapped) Get(n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic("out of memory: mmap: " + err.Error())
	}
	return m
}

func (mapped) Put(m []byte) { _ = unix.Munmap(m) }

const (
	givePeriod = 5 * time.Second
	giveLeast  = 32 << 20
)

// giveBack returns memory of big frames to the system. The collector would
// keep it for as long as nothing else is allocated.
func (s *Server) giveBack() {
	t := time.NewTicker(givePeriod)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		// What the last command emptied goes back with the next one.
		s.hub.Do(func(c *broker.Broker, now int64) []broker.Effect { return c.Tick(now) })
		if s.released.Load() >= giveLeast {
			s.released.Store(0)
			debug.FreeOSMemory()
		}
	}
}

const (
	// garbage is how many bytes may be allocated between two collections at the
	// least: with a small heap the collector would otherwise run for every few
	// dozen big frames.
	garbage = 64 << 20
	// mostPercent is the highest percentage that pace sets.
	mostPercent = 1600
)

// pace sets the collector's pace anew after each collection: garbage, or as
// much as lives, whichever is more. An embedder's GOGC is left alone.
var pace = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" {
		adjust(nil)
	}
})

// sentinel is collected by every collection, and so tells when one was.
type sentinel struct{ _ [16]byte }

func adjust(*sentinel) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := mostPercent
	if n := live[0].Value.Uint64(); n > 0 {
		percent = min(mostPercent, max(100, int(garbage*100/n)))
	}
	debug.SetGCPercent(percent)
	runtime.SetFinalizer(&sentinel{}, adjust)
}
