package probe

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for something that must happen. It is long, so
// that a busy machine fails nothing; a good broker never uses it up.
var patience = scaled(20 * time.Second)

// volume is n jobs, or fewer when the daemon runs under the race detector.
func volume(n int) int {
	if raceEnabled {
		return n / 5
	}
	return n
}

// stalled is what a bystander never waits, however busy the machine is.
var stalled = patience / 2

// scaled stretches d when the daemon runs under the race detector.
func scaled(d time.Duration) time.Duration {
	if raceEnabled {
		return 3 * d
	}
	return d
}

var scratch string // removed when the run is over

func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait on sockets and timers; a slot per core would serialise them.
	if p := flag.Lookup("test.parallel"); p != nil && p.Value.String() == p.DefValue {
		_ = p.Value.Set("12")
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	scratch, err = os.MkdirTemp("", "gloom-probe-")
	if err != nil {
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

// daemonBinary builds the daemon once per run, with the race detector when the
// tests have it too.
var daemonBinary = sync.OnceValues(func() (string, error) {
	if ready := os.Getenv("GLOOM_PROBE_DAEMON"); ready != "" {
		return ready, nil
	}
	out := filepath.Join(scratch, "gloomd")
	args := []string{"build", "-o", out}
	if raceEnabled {
		args = append(args, "-race")
	}
	said, err := exec.Command("go", append(args, "gloom/cmd/gloomd")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return out, nil
})
