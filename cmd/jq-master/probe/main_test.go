// Package probe tests jq-master from outside: it checks the real program, over HTTP, against the
// documentation, without knowledge of the code.
package probe

import (
	"flag"
	"os"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

// testTimeout bounds every wait for something that must happen.
const testTimeout = 60 * time.Second

var fullRun = flag.Bool("full", false, "more kills, more jobs")

var probe = throwaway.Probe{Name: "jq-master"}

func TestMain(m *testing.M) {
	os.Exit(probe.Main(8, func() (int, error) { return m.Run(), endShared() }))
}
