package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/cmd/internal/launch"
	"gloom/cmd/serverlessd/job"

	"github.com/rs/zerolog"
)

// TestMain lets the test binary run as the guard of its handler processes.
func TestMain(m *testing.M) {
	launch.Main()
	os.Exit(m.Run())
}

const testTimeout = 45 * time.Second

// newRunner starts a runner with all languages. Its limits are high; tests of a limit set that
// limit themselves.
func newRunner(t testing.TB, change func(*Options)) *Runner {
	t.Helper()
	guard, err := launch.NewGuard(fmt.Sprintf("runner-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guard.Close)
	o := Options{
		Dir: t.TempDir(), Languages: job.Languages, Guard: guard, StartTimeout: testTimeout, JobTimeout: testTimeout, JobCPU: testTimeout, Log: zerolog.Nop(),
		MaxProcesses: 32, JobsPerProcess: 1000, MaxLineBytes: 1 << 20, RetryFor: 6 * time.Hour, MaxMemory: 1 << 30,
	}
	if change != nil {
		change(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		if left, _ := filepath.Glob(filepath.Join(o.Dir, folderPrefix+"*")); left != nil {
			t.Errorf("contexts have left %q", left)
		}
	})
	return r
}

// handler returns a handler of a new type.
func handler(source job.Source) *job.Handler {
	return &job.Handler{ID: fmt.Sprint(versions.next()), Jobtype: "c-t", Source: source}
}

var versions counter

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// batch returns a batch that has a job for each of these payloads.
func batch(h *job.Handler, payloads ...string) Batch {
	client, typ, _ := job.SplitJobtype(h.Jobtype)
	b := Batch{Client: client, Type: typ, Handler: h}
	for i, payload := range payloads {
		b.Jobs = append(b.Jobs, Job{ID: job.ID(fmt.Sprintf("id-%d", i)), Payload: []byte(payload), Tries: i + 1})
	}
	return b
}

// reportRecorder is a Reporter that records how the jobs of a batch begin and end.
type reportRecorder struct {
	t            testing.TB
	startedCount int
	outcomes     []job.Outcome
	onStart      func(i int)
}

func (r *reportRecorder) Started(i int) {
	if i != r.startedCount {
		r.t.Errorf("job %d was started, not job %d", i, r.startedCount)
	}
	r.startedCount++
	if r.onStart != nil {
		r.onStart(i)
	}
}

func (r *reportRecorder) Ended(i int, o job.Outcome) {
	if i != len(r.outcomes) || i >= r.startedCount {
		r.t.Errorf("job %d ended, not job %d of %d started", i, len(r.outcomes), r.startedCount)
	}
	r.outcomes = append(r.outcomes, o)
}

// run runs a batch and returns how its jobs ended.
func run(t testing.TB, r *Runner, b Batch) []job.Outcome {
	t.Helper()
	to := &reportRecorder{t: t}
	r.Run(context.Background(), b, to)
	return to.outcomes
}

// runOne runs one job.
func runOne(t testing.TB, r *Runner, h *job.Handler, payload string) job.Outcome {
	t.Helper()
	outcomes := run(t, r, batch(h, payload))
	if len(outcomes) != 1 {
		t.Fatalf("%d jobs of 1 ended", len(outcomes))
	}
	return outcomes[0]
}

// text returns an outcome as a short text: "STATUS code data [type|payload …] bad=n".
func text(o job.Outcome) string {
	s := fmt.Sprint(o.Status)
	if o.Retry {
		s += " again"
	}
	if o.Code != "" {
		s += " " + o.Code
	}
	if len(o.Data) > 0 {
		s += " " + string(o.Data)
	}
	for _, l := range o.Lines {
		s += fmt.Sprintf(" [%s|%s]", l.Type, l.Payload)
	}
	if o.BadLines > 0 {
		s += fmt.Sprintf(" bad=%d", o.BadLines)
	}
	if o.RetryAfter == job.MinRetryDelay {
		s += " at once"
	} else if o.RetryAfter != 0 {
		s += fmt.Sprintf(" after=%v", o.RetryAfter)
	}
	return s
}

func texts(outcomes []job.Outcome) string {
	var s []string
	for _, o := range outcomes {
		s = append(s, text(o))
	}
	return strings.Join(s, "; ")
}

// sameOutcome reports whether got matches want, in which … stands for any text.
func sameOutcome(got, want string) bool {
	parts := strings.Split(regexp.QuoteMeta(want), "…")
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

func eventually(t testing.TB, label string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", testTimeout, label)
		}
	}
}

func hexOf(s string) string { return fmt.Sprintf("%x", s) }

// normalized returns a text as UTF-8, in which one character replaces any number of bad bytes in a
// row: languages replace them by different numbers of characters.
func normalized(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func collapsed(s string) string {
	return manyReplaced.ReplaceAllString(s, "\uFFFD")
}

var manyReplaced = regexp.MustCompile("\uFFFD+")
