// Package probe tests serverlessd from outside: it checks the real program, over HTTP, against the
// documentation, without knowledge of the code.
package probe

import (
	"flag"
	"os"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/mariadbtest"
)

// testTimeout bounds every wait for something that must happen.
const testTimeout = 60 * time.Second

var fullRun = flag.Bool("full", false, "more kills, more jobs")

var probe = throwaway.Probe{Name: "serverlessd"}

func TestMain(m *testing.M) {
	os.Exit(probe.Main(12, func() (int, error) {
		code := mariadbtest.Main(m)
		if theSharedDaemon.daemon == nil {
			return code, nil
		}
		return code, theSharedDaemon.Stop()
	}))
}
