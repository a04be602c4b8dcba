// Package probe tries serverlessd from outside: the real program, over HTTP, by
// what its documentation promises and nothing that its code says.
package probe

import (
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"gloom/cmd/jobd/mariadbtest"
	"gloom/cmd/throwaway"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

var full = flag.Bool("full", false, "more kills, more jobs")

var scratch string // removed when the run is over

func TestMain(m *testing.M) {
	flag.Parse()
	throwaway.Parallel(12)
	os.Exit(throwaway.Main(&scratch, func() (int, error) {
		code := mariadbtest.Main(m)
		if common.daemon == nil {
			return code, nil
		}
		return code, common.Stop()
	}))
}

// program builds serverlessd once.
var program = sync.OnceValues(func() (string, error) { return throwaway.Build(scratch, "serverlessd", throwaway.Race) })
