// Package fleetprobe tests a fleet from outside: real brokers and a real NATS, each in its own
// network namespace, against their documentation, without knowledge of their code.
package fleetprobe

import (
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

// patience bounds every wait for something that must happen.
const patience = 45 * time.Second

var (
	faultCount = flag.Int("faults", 6, "random faults that the fleet has to live through")
	seed       = flag.Uint64("seed", 0, "of what is drawn at random; 0 draws one")
)

var scratchDir string // removed when the run is over

func TestMain(m *testing.M) {
	flag.Parse()
	throwaway.LimitParallel(40)
	os.Exit(throwaway.Main(&scratchDir, func() (int, error) {
		code := m.Run()
		return code, shared.end()
	}))
}

// gloomd builds the broker once. Under the race detector it is ten times slower, and a broker that
// gets no processor for 1.5 s is lost, so only long runs use it.
var gloomd = sync.OnceValues(func() (string, error) {
	return throwaway.Build(scratchDir, "gloomd", throwaway.Race && !testing.Short())
})
