package journal_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "gloom/cmd/serverlessd/journal"
)

const panicName = "GLOOM_TEST_JOURNAL_PANIC"

// TestPanicInAppendEndsProcess: a panic in an append ends the process, even in a goroutine of an
// HTTP server, which recovers panics.
func TestPanicInAppendEndsProcess(t *testing.T) {
	if os.Getenv(panicName) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestPanicInAppendEndsProcess$")
		c.Env = append(os.Environ(), panicName+"=1")
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the journal panicked: the clock is broken") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	broken := false
	j := open(t, newDisk(), func(o *Options) {
		o.Now = func() time.Time {
			if broken {
				panic("the clock is broken")
			}
			return time.Now()
		}
	})
	add(t, j, batch("a-x", "1"))
	broken = true
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = j.Append(r.Context(), []Batch{batch("a-x", "2")})
	}))
	_, err := http.Get(s.URL)
	fmt.Println("still there:", err)
	os.Exit(0) // the journal cannot be closed
}
