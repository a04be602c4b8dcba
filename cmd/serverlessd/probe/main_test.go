// Package probe tries serverlessd from outside: the real program, over HTTP, by
// what its documentation promises and nothing that its code says.
package probe

import (
	"flag"
	"fmt"
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
	// Most tests wait; a slot per core would serialise them.
	if p := flag.Lookup("test.parallel"); p != nil && p.Value.String() == p.DefValue {
		_ = p.Value.Set("8")
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "gloom-sq-probe-"); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		return 1
	}
	defer os.RemoveAll(scratch)
	code := mariadbtest.Main(m)
	if common.daemon != nil {
		if err := common.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "probe: shared daemon:", err)
			code = 1
		}
	}
	return code
}

// program builds serverlessd once.
var program = sync.OnceValues(func() (string, error) { return throwaway.Build(scratch, "serverlessd", throwaway.Race) })
