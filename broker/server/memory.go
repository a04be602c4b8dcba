package server

import (
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
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
		if s.released.Load() >= giveLeast {
			s.released.Store(0)
			debug.FreeOSMemory()
		}
	}
}
