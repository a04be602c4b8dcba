package runner

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
)

// TestGlobalsOfBeforeAndBeforeEach: jobs can use what before and beforeEach set; before runs once
// in a handler process, and beforeEach and afterEach run once for each batch.
func TestGlobalsOfBeforeAndBeforeEach(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, nil)
		log := filepath.Join(t.TempDir(), "log")
		note := map[string]func(word string) string{
			job.Node:   func(w string) string { return fmt.Sprintf("require('fs').appendFileSync('%s', '%s ')", log, w) },
			job.Python: func(w string) string { return fmt.Sprintf("open('%s', 'a').write('%s ')", log, w) },
			job.PHP:    func(w string) string { return fmt.Sprintf("file_put_contents('%s', '%s ', FILE_APPEND);", log, w) },
			job.Shell:  func(w string) string { return fmt.Sprintf("printf '%s ' >>'%s'", w, log) },
		}[l.lang]
		body := l.incrementGlobal
		if l.lang == job.Shell { // a job's own variables are lost with its subshell
			body = `echo "R: 200 $((n + each))"`
		}
		beforeEach := map[string]string{job.Shell: "each=$((each + 1))"}[l.lang]
		h := handler(job.Source{
			Lang: l.lang, Before: l.global + "\n" + note("before"), BeforeEach: beforeEach + "\n" + note("each"), Body: body + "\n",
			AfterEach: note("after"),
		})
		if got := texts(run(t, r, batch(h, "a", "b"))); got != "200 2; 200 3" && l.lang != job.Shell || l.lang == job.Shell && got != "200 2; 200 2" {
			t.Errorf("%q", got)
		}
		if got := texts(run(t, r, batch(h, "a"))); got != map[bool]string{true: "200 3", false: "200 4"}[l.lang == job.Shell] {
			t.Errorf("second batch: %q", got)
		}
		if got, _ := os.ReadFile(log); string(got) != "before each after each after " {
			t.Errorf("ran %q", got)
		}
		if r.Processes() != 1 || !r.HasWarmProcess("c", h) || r.HasWarmProcess("d", h) {
			t.Errorf("%d contexts, warm %v", r.Processes(), r.HasWarmProcess("c", h))
		}
		// A new version has a handler process of its own.
		other := handler(h.Source)
		if r.HasWarmProcess("c", other) || text(runOne(t, r, other, "x")) != "200 2" {
			t.Error("two versions share a context")
		}
	})
}

// TestEID: types and versions with the same eid share handler processes, and the before of each
// runs once.
func TestEID(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		if l.lang == job.Shell {
			l.incrementGlobal = `echo "R: 200 $n"`
			l.global = "n=$((n + 1))"
		} else {
			l.global = map[string]string{
				job.Node: "globalThis.n = (globalThis.n || 0) + 1", job.Python: "n = globals().get('n', 0) + 1", job.PHP: "$n = ($n ?? 0) + 1;",
			}[l.lang]
			l.incrementGlobal = map[string]string{job.Node: "return String(n)", job.Python: "return str(n)", job.PHP: `return (string) $GLOBALS["n"];`}[l.lang]
		}
		r := newRunner(t, nil)
		comment := map[string]string{job.Node: "//", job.PHP: "//"}[l.lang]
		if comment == "" {
			comment = "#"
		}
		first := handler(job.Source{Lang: l.lang, EID: "e", Before: l.global, Body: l.incrementGlobal})
		second := handler(job.Source{Lang: l.lang, EID: "e", Before: l.global, Body: comment + "\n" + l.incrementGlobal})
		third := handler(job.Source{Lang: l.lang, EID: "e", Before: l.global + "\n" + comment, Body: l.incrementGlobal})
		third.Jobtype = "c-other"
		for i, h := range []*job.Handler{first, second, third, first} {
			if got, want := text(runOne(t, r, h, "")), []string{"200 1", "200 1", "200 2", "200 2"}[i]; got != want {
				t.Errorf("run %d: %q, want %q", i, got, want)
			}
		}
		if r.Processes() != 1 {
			t.Errorf("%d contexts have one eid", r.Processes())
		}
	})
}

// TestIdleProcessDeath: a handler process that ends while it is idle is not used again.
func TestIdleProcessDeath(t *testing.T) {
	delayedExit := map[string]string{
		job.Node:   `setTimeout(() => process.exit(1), 10); return String(process.pid)`,
		job.Python: "import os, threading\nthreading.Timer(0.01, lambda: os._exit(1)).start()\nreturn str(os.getpid())",
		job.Shell:  `(sleep 0.01; kill -9 $$) >/dev/null 2>&1 & echo "R: 200 $$"`,
	}
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		if delayedExit[l.lang] == "" {
			return // PHP does not end by itself here
		}
		r := newRunner(t, nil)
		h := handler(job.Source{Lang: l.lang, EID: "e", Body: delayedExit[l.lang]})
		for range 2 {
			o := runOne(t, r, h, "x")
			eventually(t, "the context is dead", func() bool { return processEnded(string(o.Data)) })
			eventually(t, "that is known", func() bool {
				r.pool.mu.Lock()
				defer r.pool.mu.Unlock()
				return len(r.pool.idle) == 0 || !r.pool.idle[0].process.Running()
			})
		}
		if got := text(runOne(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: l.echo}), "x")); got != "200 x" {
			t.Errorf("%q", got)
		}
	})
}

// TestFailingBefore: if before or beforeEach fails, the batch is not run. A failed before ends
// the handler process; a failed beforeEach or afterEach does not. A failed afterEach changes no status.
func TestFailingBefore(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, nil)
		short := job.Options{Timeout: job.Duration(50 * time.Millisecond)}
		goodSource := job.Source{Lang: l.lang, EID: "e", Body: l.echo}
		pid := map[string]string{
			job.Node: "return String(process.pid)", job.Python: "import os; return str(os.getpid())", job.PHP: "return (string) getmypid();",
			job.Shell: `echo "R: 200 $$"`,
		}[l.lang]
		processID := func() string { return text(runOne(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: pid}), "")) }
		for _, c := range []struct {
			name   string
			change func(*job.Source)
			want   string
			stays  bool
		}{
			{"before fails", func(s *job.Source) { s.Before = l.failBody }, "500 before_failed before: …", false},
			{"before exits", func(s *job.Source) { s.Before = l.exitBody }, "500 before_failed before: …last words", false},
			{"before has an error", func(s *job.Source) { s.Before = "if (" }, "500 before_failed before: …", false},
			{"beforeEach fails", func(s *job.Source) { s.BeforeEach = l.failBody }, "500 before_failed beforeEach: …", true},
			{"beforeEach hangs", func(s *job.Source) { s.BeforeEach, s.Options = l.hangBody, short }, "500 before_failed beforeEach: …50ms", false},
			{"afterEach fails", func(s *job.Source) { s.AfterEach = l.failBody }, "200 a", true},
			{"afterEach exits", func(s *job.Source) { s.AfterEach = l.exitBody }, "200 a", false},
			{"afterEach spins", func(s *job.Source) { s.AfterEach, s.Options.CPU = l.spinBody, job.Duration(500*time.Millisecond) }, "200 a", false},
		} {
			before := processID()
			s := goodSource
			c.change(&s)
			got := run(t, r, batch(handler(s), "a", "a"))
			if len(got) != 2 || !sameOutcome(text(got[0]), c.want) || !sameOutcome(text(got[1]), c.want) {
				t.Errorf("%s: %q, want %q", c.name, texts(got), c.want)
			}
			stays := l.lang != job.Shell || !strings.Contains(c.name, "fails") // exit in a before ends the shell
			if after := processID(); (after == before) != (c.stays && stays) {
				t.Errorf("%s: context %s before, %s after", c.name, before, after)
			}
		}
	})
}

// TestSlowStart: the start of a handler process has its own time limit.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	program := func(name, text string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program("python3", `sleep 2.5; exec /usr/bin/python3 "$@"`)
	program("node", `sleep 1000`)
	program("php", `echo "no licence" >&2; exit 9`)
	path := func(o *Options) { o.Path, o.StartTimeout = bin+":/usr/bin:/bin", testTimeout }
	options := job.Options{Timeout: job.Duration(4 * time.Second), CPU: job.Duration(500 * time.Millisecond)}
	before := "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\ntime.sleep(2)"
	if got := text(runOne(t, newRunner(t, path), handler(job.Source{Lang: job.Python, Before: before, Body: "pass", Options: options}), "")); got != "200" {
		t.Errorf("slow: %q", got)
	}
	stuckRunner := newRunner(t, func(o *Options) { path(o); o.StartTimeout = 100 * time.Millisecond })
	dyingRunner := newRunner(t, path)
	for _, c := range []struct {
		r          *Runner
		lang, want string
	}{
		{stuckRunner, job.Node, "500 context_failed …100ms; 500 context_failed …100ms"},
		{dyingRunner, job.PHP, "500 context_failed …no licence; 500 context_failed …no licence"},
	} {
		if got := texts(run(t, c.r, batch(handler(job.Source{Lang: c.lang, Body: "return"}), "a", "b"))); !sameOutcome(got, c.want) {
			t.Errorf("%s: %q", c.lang, got)
		}
	}
	pathlessRunner := newRunner(t, func(o *Options) { o.Path = "/no/such/directory" })
	if got := text(runOne(t, pathlessRunner, handler(job.Source{Lang: job.Node, Body: "return"}), "")); !sameOutcome(got, "500 context_failed …'node'…") {
		t.Errorf("missing: %q", got)
	}
	if stuckRunner.Processes()+dyingRunner.Processes()+pathlessRunner.Processes() != 0 {
		t.Errorf("contexts that did not start are counted")
	}
}

// TestEndedProcesses: when ctx ends, or at Kill, a job and its handler process are ended at once, and
// the end of the job is not reported.
func TestEndedProcesses(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		for name, source := range map[string]job.Source{
			"job": {Body: l.hangBody}, "before": {Before: l.hangBody, Body: l.echo}, "beforeEach": {BeforeEach: l.hangBody, Body: l.echo},
		} {
			source.Lang = l.lang
			for _, kill := range []bool{true, false} {
				r := newRunner(t, nil)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				var begun atomic.Bool // the job; a handler process that is idle when ctx ends stays
				to := &reportRecorder{t: t, onStart: func(int) { begun.Store(true) }}
				go func() {
					defer close(done)
					r.Run(ctx, batch(handler(source), "a", "b"), to)
				}()
				eventually(t, name+" has a context", func() bool { return r.Processes() == 1 && (name != "job" || begun.Load()) })
				if kill {
					r.Kill()
				} else {
					cancel()
				}
				<-done
				cancel()
				if len(to.outcomes) != 0 || to.startedCount > 1 {
					t.Errorf("%s, Kill %v: %d started, %q", name, kill, to.startedCount, texts(to.outcomes))
				}
				eventually(t, "there is no context", func() bool { return r.Processes() == 0 })
				if kill {
					to := &reportRecorder{t: t}
					if r.Run(context.Background(), batch(handler(job.Source{Lang: l.lang, Body: l.echo}), "on"), to); to.startedCount != 0 {
						t.Error("a job began after Kill")
					}
				} else if got := text(runOne(t, r, handler(job.Source{Lang: l.lang, Body: l.echo}), "on")); got != "200 on" {
					t.Errorf("after it: %q", got)
				}
			}
		}
	})
}

// TestBatchEndsEarly: when MustEnd returns true, no other job begins, and the running job continues
// to its end.
func TestBatchEndsEarly(t *testing.T) {
	url := startServer(t, func(http.ResponseWriter, *http.Request) {})
	for _, h := range []*job.Handler{handler(job.Source{Lang: job.Shell, Body: "true"}), httpHandler(url, job.Options{})} {
		b := batch(h, "a", "b", "c", "d")
		askCount, lastAsk := 0, map[string]int{job.Shell: 4, job.HTTP: 3}[h.Lang] // it is also asked when there is a process
		b.MustEnd = func() bool { askCount++; return askCount == lastAsk }
		if got := run(t, newRunner(t, nil), b); len(got) != 2 {
			t.Errorf("%s: %d jobs ran, not 2", h.Lang, len(got))
		}
	}
}

// TestLocksLostInHook: jobs whose batch may not begin any more do not fail because of a hook: without
// locks, the guard kills its process.
func TestLocksLostInHook(t *testing.T) {
	for _, source := range []job.Source{{Before: "kill -9 $$"}, {BeforeEach: "kill -9 $$"}} {
		source.Lang, source.Body = job.Shell, "true"
		b := batch(handler(source), "a", "b")
		askCount := 0
		b.MustEnd = func() bool { askCount++; return askCount > 1 }
		if got := run(t, newRunner(t, nil), b); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// TestInputOfJobs: a process that a job has started cannot read the next job's payload from its
// standard input.
func TestInputOfJobs(t *testing.T) {
	eat := map[string]string{
		job.Node:   `require("child_process").execSync("cat", { stdio: "inherit" })`,
		job.Python: `import os; os.system("cat")`, job.PHP: `passthru("cat");`, job.Shell: `true`,
	}
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, nil)
		if got := texts(run(t, r, batch(handler(job.Source{Lang: l.lang, Body: eat[l.lang]}), "a", "b", "c"))); got != "200; 200; 200" {
			t.Errorf("%q", got)
		}
	})
}

// TestPayloadFile: a run whose payload cannot be written fails, and does not affect other jobs.
func TestPayloadFile(t *testing.T) {
	r := newRunner(t, nil)
	h := handler(job.Source{Lang: job.Shell, Body: "cat >&2"})
	to := &reportRecorder{t: t, onStart: func(i int) {
		if i == 0 { // its payload is written; that of the next job is not
			r.pool.mu.Lock()
			defer r.pool.mu.Unlock()
			for c := range r.pool.processes {
				c.payloadFile.Close()
			}
		}
	}}
	r.Run(t.Context(), batch(h, "a", "b", "c"), to)
	if got := texts(to.outcomes); !sameOutcome(got, "200; 500 context_failed …closed…") || strings.Contains(got, "at once") || to.startedCount != 2 {
		t.Errorf("%d started: %q", to.startedCount, got)
	}
	if got := texts(run(t, r, batch(h, "c"))); got != "200" {
		t.Errorf("afterwards: %q", got)
	}
}

// TestEndedStep: a step that has ended counts, even if its process has ended since, its batch is
// cancelled, or its time is over. A process that has ended is not used again.
func TestEndedStep(t *testing.T) {
	r := newRunner(t, nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx   context.Context
		limit time.Duration
		isEnd bool
	}{"cancelled": {cancelled, time.Minute, false}, "process ended": {t.Context(), time.Minute, true}, "out of time": {t.Context(), 1, false}} {
		c, fault := r.startProcess(t.Context(), processKey{"c", job.Shell, name}, 1)
		if fault != nil {
			t.Fatal(fault)
		}
		if test.isEnd {
			c.process.Kill(t.Context())
		}
		for range 50 { // the end line and the other event are there together: which is seen first is random
			c.unusable = false
			c.output.results <- stepResult{number: 7}
			result, fault := c.step(test.ctx, nil, test.limit, 0)
			if fault != nil {
				t.Fatalf("%s: %+v", name, fault)
			}
			if result.number != 7 {
				t.Fatalf("%s: %+v", name, result)
			}
		}
		c.kill()
	}
}
