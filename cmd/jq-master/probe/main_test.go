// Package probe tries jq-master from outside: the real program, over HTTP, by
// what its documentation promises and nothing that its code says.
package probe

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

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
	if scratch, err = os.MkdirTemp("", "gloom-jq-probe-"); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		return 1
	}
	defer os.RemoveAll(scratch)
	code := m.Run()
	if err := endShared(); err != nil {
		fmt.Fprintln(os.Stderr, "probe: shared daemon:", err)
		code = 1
	}
	return code
}

// program builds jq-master once.
var program = sync.OnceValues(func() (string, error) { return throwaway.Build(scratch, "jq-master", throwaway.Race) })
