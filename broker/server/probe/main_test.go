package probe

import (
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

// patience bounds every wait for something that must happen. patience is so long that no test fails
// because the machine is busy.
var patience = scaledTime(20 * time.Second)

// scaledCount returns n or, if the daemon runs under the race detector, a smaller number.
func scaledCount(n int) int {
	if throwaway.Race {
		return n / 5
	}
	return n
}

// stallTime is longer than an uninvolved peer ever waits, however busy the machine is.
var stallTime = patience / 2

// scaledTime returns d or, if the daemon runs under the race detector, a longer time.
func scaledTime(d time.Duration) time.Duration {
	if throwaway.Race {
		return 3 * d
	}
	return d
}

var scratchDir string // a directory that is removed at the end of the run

func TestMain(m *testing.M) {
	flag.Parse()
	throwaway.LimitParallel(12)
	os.Exit(throwaway.Main(&scratchDir, func() (int, error) { return m.Run(), endShared() }))
}

// daemonBinary builds the daemon once per run, with the race detector if the tests are
// built with it.
var daemonBinary = sync.OnceValues(func() (string, error) {
	if ready := os.Getenv("GLOOM_PROBE_DAEMON"); ready != "" {
		return ready, nil
	}
	return throwaway.Build(scratchDir, "gloomd", throwaway.Race)
})
