package runner

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gloom/cmd/serverlessd/job"
)

// TestOpenFilesWhileStarting: however many handler processes are started at the same time, the
// daemon needs only a few more open files than when all of them are ready.
func TestOpenFilesWhileStarting(t *testing.T) {
	const n, extra = 40, 16 * maxStarts
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	begin := func() (ready int) {
		r := newRunner(t, func(o *Options) { o.MaxProcesses = n })
		dir := t.TempDir()
		h := handler(job.Source{Lang: job.Shell, Body: `: >"` + dir + `/$1"; while ! [ -e "` + dir + `/go" ]; do sleep 0.1; done`})
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if o := runOne(t, r, h, string(rune('A'+i))); o.Status != 200 {
					t.Errorf("context %d: %d %s %s", i, o.Status, o.Code, o.Data)
				}
			})
		}
		eventually(t, "all jobs are running", func() bool {
			list, _ := filepath.Glob(filepath.Join(dir, "?"))
			return len(list) == n || t.Failed()
		})
		ready = open()
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		r.Close()
		return ready
	}
	before := open()
	ready := begin()
	eventually(t, "the files are closed", func() bool { return open() <= before+10 })
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lowLimit := limit
	lowLimit.Cur = uint64(ready + extra)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lowLimit); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	begin()
}

// TestHostWithoutFiles: a job that cannot begin because too many files are open has not ended, and
// runs later.
func TestHostWithoutFiles(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer web.Close()
	for name, source := range map[string]job.Source{
		"sh":         {Lang: job.Shell, Body: "exit 0"},
		"http":       {Lang: job.HTTP, Body: web.URL},
		"http batch": {Lang: job.HTTP, Body: web.URL, Method: "PUT", Options: job.Options{Batch: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, nil)
			h := handler(source)
			var limit syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
				t.Fatal(err)
			}
			lowLimit := limit
			lowLimit.Cur = 3
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lowLimit); err != nil {
				t.Fatal(err)
			}
			to := &reportRecorder{t: t}
			err := r.Run(t.Context(), batch(h, "x", "y"), to)
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
				t.Fatal(err)
			}
			if err == nil || !strings.Contains(err.Error(), "too many open files") || len(to.outcomes) > 0 {
				t.Errorf("%v, %d jobs ended: %s", err, len(to.outcomes), texts(to.outcomes))
			}
			to = &reportRecorder{t: t}
			if err := r.Run(t.Context(), batch(h, "x"), to); err != nil || len(to.outcomes) != 1 {
				t.Errorf("later: %v, %d jobs of 1 ended", err, len(to.outcomes))
			}
		})
	}
}
