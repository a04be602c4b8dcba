package runner

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
)

// TestGlobals: what the befores set is there for the jobs; before runs once in a
// context, beforeEach and afterEach once a batch.
func TestGlobals(t *testing.T) {
	inAll(t, func(t *testing.T, l tongue) {
		r := newRunner(t, nil)
		log := filepath.Join(t.TempDir(), "log")
		note := map[string]func(word string) string{
			job.Node:   func(w string) string { return fmt.Sprintf("require('fs').appendFileSync('%s', '%s ')", log, w) },
			job.Python: func(w string) string { return fmt.Sprintf("open('%s', 'a').write('%s ')", log, w) },
			job.PHP:    func(w string) string { return fmt.Sprintf("file_put_contents('%s', '%s ', FILE_APPEND);", log, w) },
			job.Shell:  func(w string) string { return fmt.Sprintf("printf '%s ' >>'%s'", w, log) },
		}[l.lang]
		body := l.more
		if l.lang == job.Shell { // a job's own variables are its subshell's
			body = `echo "R: 200 $((n + each))"`
		}
		each := map[string]string{job.Shell: "each=$((each + 1))"}[l.lang]
		h := handler(job.Source{
			Lang: l.lang, Before: l.global + "\n" + note("before"), BeforeEach: each + "\n" + note("each"), Body: body + "\n",
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
		if r.Contexts() != 1 || !r.Warm("c", h) || r.Warm("d", h) {
			t.Errorf("%d contexts, warm %v", r.Contexts(), r.Warm("c", h))
		}
		// A new version has a context of its own.
		other := handler(h.Source)
		if r.Warm("c", other) || text(one(t, r, other, "x")) != "200 2" {
			t.Error("two versions share a context")
		}
	})
}

// TestEid: types and versions with one eid share contexts; each before runs once.
func TestEid(t *testing.T) {
	inAll(t, func(t *testing.T, l tongue) {
		if l.lang == job.Shell {
			l.more = `echo "R: 200 $n"`
			l.global = "n=$((n + 1))"
		} else {
			l.global = map[string]string{
				job.Node: "globalThis.n = (globalThis.n || 0) + 1", job.Python: "n = globals().get('n', 0) + 1", job.PHP: "$n = ($n ?? 0) + 1;",
			}[l.lang]
			l.more = map[string]string{job.Node: "return String(n)", job.Python: "return str(n)", job.PHP: `return (string) $GLOBALS["n"];`}[l.lang]
		}
		r := newRunner(t, nil)
		comment := map[string]string{job.Node: "//", job.PHP: "//"}[l.lang]
		if comment == "" {
			comment = "#"
		}
		first := handler(job.Source{Lang: l.lang, EID: "e", Before: l.global, Body: l.more})
		second := handler(job.Source{Lang: l.lang, EID: "e", Before: l.global, Body: comment + "\n" + l.more})
		third := handler(job.Source{Lang: l.lang, EID: "e", Before: l.global + "\n" + comment, Body: l.more})
		third.Jobtype = "c-other"
		for i, h := range []*job.Handler{first, second, third, first} {
			if got, want := text(one(t, r, h, "")), []string{"200 1", "200 1", "200 2", "200 2"}[i]; got != want {
				t.Errorf("run %d: %q, want %q", i, got, want)
			}
		}
		if r.Contexts() != 1 {
			t.Errorf("%d contexts have one eid", r.Contexts())
		}
	})
}

// TestClientsApart: with the same handler, version and eid, nothing that one
// client leaves is there for another: no global, variable of the environment,
// file, nor line that makes a job.
func TestClientsApart(t *testing.T) {
	bodies := map[string][2]string{
		job.Node: {
			`globalThis.left = 1; process.env.LEFT = 1; require("fs").writeFileSync("left", "x"); require("fs").writeFileSync(process.env.TMPDIR + "/left2", "x"); process.stdout.write("J: u|unfin")`,
			`const fs = require("fs"); return [typeof left, process.env.LEFT, fs.readdirSync("."), fs.readdirSync(process.env.TMPDIR)].join()`,
		},
		job.Python: {
			"global left\nimport os\nleft = 1\nos.environ['LEFT'] = '1'\nopen('left', 'w')\nopen(os.environ['TMPDIR'] + '/left2', 'w')\nprint('J: u|unfin', end='')",
			"import os; return repr(['left' in globals(), os.environ.get('LEFT'), os.listdir('.'), os.listdir(os.environ['TMPDIR'])])",
		},
		job.PHP: {
			`$GLOBALS["left"] = 1; putenv("LEFT=1"); touch("left"); touch(sys_get_temp_dir() . "/left2"); echo "J: u|unfin";`,
			`return json_encode([isset($GLOBALS["left"]), getenv("LEFT"), glob("*"), glob(sys_get_temp_dir() . "/*")]);`,
		},
		job.Shell: {`touch left "$TMPDIR/left2"; export LEFT=1; printf 'J: u|unfin'`, `echo "R: 200 $LEFT$(echo $(ls) $(ls $TMPDIR))"`},
	}
	clean := map[string]string{
		job.Node: "200 undefined,,,", job.Python: "200 [False, None, [], []]", job.PHP: "200 [false,false,[],[]]", job.Shell: "200",
	}
	inAll(t, func(t *testing.T, l tongue) {
		r := newRunner(t, nil)
		leave, look := job.Source{Lang: l.lang, EID: "e", Body: bodies[l.lang][0]}, job.Source{Lang: l.lang, EID: "e", Body: bodies[l.lang][1]}
		h := handler(leave)
		seen := handler(look)
		mine, theirs := batch(h, "x"), batch(seen, "x")
		theirs.Client = "other"
		own := batch(seen, "x")
		if got := text(run(t, r, mine)[0]); got != "200 [u|unfin]" {
			t.Fatalf("%q", got)
		}
		if got := strings.TrimRight(text(run(t, r, theirs)[0]), " "); got != clean[l.lang] {
			t.Errorf("another client sees %q, want %q", got, clean[l.lang])
		}
		if got := text(run(t, r, own)[0]); !strings.Contains(got, "left2") {
			t.Errorf("the same client does not see what it left: %q", got)
		}
		if r.Contexts() != 2 {
			t.Errorf("%d contexts", r.Contexts())
		}
	})
}

// TestSecretsOfTheDaemon: a context's environment is clean, and it has none of
// the daemon's descriptors.
func TestSecretsOfTheDaemon(t *testing.T) {
	t.Setenv("SECRET_OF_THE_DAEMON", "1")
	secret, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	inherited, err := syscall.Dup(int(secret.Fd())) // as from who started us: not closed on exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	r := newRunner(t, nil)
	for _, l := range tongues {
		body := map[string]string{
			job.Node:   `return require("child_process").execSync("env; ls -l /proc/self/fd /proc/$PPID/fd").toString()`,
			job.Python: `import subprocess; return subprocess.run("env; ls -l /proc/self/fd /proc/$PPID/fd", shell=True, stdout=subprocess.PIPE).stdout`,
			job.PHP:    `return shell_exec("env; ls -l /proc/self/fd /proc/\$PPID/fd");`,
			job.Shell:  `echo "R: 200 $(env; ls -l /proc/self/fd /proc/$$/fd)"`,
		}[l.lang]
		got := text(one(t, r, handler(job.Source{Lang: l.lang, Body: strings.ReplaceAll(body, `\$`, `$`)}), "x"))
		if !strings.Contains(got, "TMPDIR=") && l.lang != job.Shell || strings.Contains(got, "SECRET") || strings.Contains(got, "/dev/zero") {
			t.Errorf("%s sees\n%s", l.lang, got)
		}
	}
}

// TestLimits: what goes too far is ended with its context; the next job has
// another one.
func TestLimits(t *testing.T) {
	inAll(t, func(t *testing.T, l tongue) {
		r := newRunner(t, func(o *Options) { o.Output, o.Lines = 100_000, 100 })
		flood := map[string]string{
			job.Node:   `const s = "%s".repeat(%d); process.stdout.write(s); return s.length`,
			job.Python: "import sys; sys.stdout.write('%s' * %d)", job.PHP: `echo str_repeat("%s", %d);`,
			job.Shell: `yes '%s' | head -n %d`,
		}[l.lang]
		line := "J: u|x\\n"
		if l.lang == job.Shell {
			line = "J: u|x"
		}
		data := map[string]string{
			job.Node: `return "x".repeat(100001)`, job.Python: `return "x" * 100001`, job.PHP: `return str_repeat("x", 100001);`,
			job.Shell: `head -c 100001 /dev/zero`,
		}[l.lang]
		other := map[string]string{
			job.Node: `console.error("x".repeat(1e6))`, job.Python: `import sys; sys.stderr.write("x" * 10**6)`,
			job.PHP: `fwrite(STDERR, str_repeat("x", 1000000));`, job.Shell: `head -c 1000000 /dev/zero >&2`,
		}[l.lang]
		for _, c := range []struct {
			what string
			job.Source
			want string
		}{
			{"hangs", job.Source{Body: l.hangs, Options: job.Options{Timeout: job.Duration(50 * time.Millisecond)}}, "500 timeout …50ms"},
			{"spins", job.Source{Body: l.spins, Options: job.Options{CPU: job.Duration(100 * time.Millisecond)}}, "500 cpu …100ms…"},
			{"child spins", job.Source{Body: spinningChild(l), Options: job.Options{CPU: job.Duration(100 * time.Millisecond)}}, "500 cpu …100ms…"},
			{"prints much", job.Source{Body: fmt.Sprintf(flood, "x", 100_001)}, "500 output …"},
			{"prints much elsewhere", job.Source{Body: other}, "500 output …"},
			{"returns much", job.Source{Body: data}, "500 output …"},
			{"many lines", job.Source{Body: fmt.Sprintf(flood, line, 101)}, "500 lines …"},
			{"exits", job.Source{Body: l.exits}, "500 context_died …last words"},
		} {
			c.Lang, c.EID = l.lang, "e"
			to := &reports{t: t}
			r.Run(context.Background(), batch(handler(c.Source), "x", "y"), to)
			if len(to.outcomes) != 1 || to.started != 1 || !alike(text(to.outcomes[0]), c.want) {
				t.Errorf("%s: %d started, %q, want %q", c.what, to.started, texts(to.outcomes), c.want)
			}
			if r.Contexts() != 0 {
				t.Errorf("%s: the context is still there", c.what)
			}
		}
		most := job.Source{Lang: l.lang, EID: "e", Body: fmt.Sprintf(flood, line, 100)}
		if o := one(t, r, handler(most), "x"); len(o.Lines) != 100 {
			t.Errorf("%d lines of 100, %d %s", len(o.Lines), o.Status, o.Code)
		}
	})
}

func spinningChild(l tongue) string {
	return map[string]string{
		job.Node:   `await new Promise((r) => require("child_process").exec("while :; do :; done", r))`,
		job.Python: `import os; os.system("while :; do :; done")`, job.PHP: `exec("while :; do :; done");`,
		job.Shell: `sh -c "while :; do :; done"`,
	}[l.lang]
}

// TestProcessorTimeIsTheJobsOwn: what earlier jobs of a context used does not
// count.
func TestProcessorTimeIsTheJobsOwn(t *testing.T) {
	burn := map[string]string{
		job.Node:   `const u = process.cpuUsage(); while (process.cpuUsage(u).user + process.cpuUsage(u).system < 60000);`,
		job.Python: "import time\nend = time.process_time() + 0.06\nwhile time.process_time() < end: pass",
	}
	for lang, body := range burn {
		r := newRunner(t, nil)
		h := handler(job.Source{Lang: lang, Body: body, Options: job.Options{CPU: job.Duration(250 * time.Millisecond)}})
		for i, o := range run(t, r, batch(h, make([]string, 8)...)) {
			if o.Status != 200 {
				t.Errorf("%s, job %d: %s", lang, i, text(o))
			}
		}
	}
}

// TestMemory: who takes too much has no more; others go on.
func TestMemory(t *testing.T) {
	inAll(t, func(t *testing.T, l tongue) {
		r := newRunner(t, func(o *Options) { o.Memory = 128 << 20 })
		body := map[string]string{
			job.Node:   `const a = []; for (;;) a.push(new Array(1000).fill(a.length))`,
			job.Python: "a = []\nwhile True: a.append('x' * 10**6 + str(len(a)))", job.PHP: `$a = []; for (;;) $a[] = str_repeat("x", 1000000);`,
			job.Shell: `a=xxxxxxxxxx; while :; do a=$a$a; done`,
		}[l.lang]
		h := handler(job.Source{Lang: l.lang, EID: "e", Body: body})
		if o := one(t, r, h, "x"); o.Status != 500 || o.Code != "" && o.Code != codeContextDied && o.Code != codeMemory {
			t.Errorf("%.300s", text(o))
		}
		if got := text(one(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: l.echo}), "on")); got != "200 on" {
			t.Errorf("%q", got)
		}
	})
}

// TestMemoryOfAll: what stands beside an interpreter's own heap counts, and what it
// has started.
func TestMemoryOfAll(t *testing.T) {
	const child = `python3 -c "a = 'x' * 60000000; import time; time.sleep(1000)"`
	for _, c := range []struct{ name, lang, body string }{
		{"buffers", job.Node, `const a = []; for (let i = 0; i < 250; i++) a.push(Buffer.alloc(1 << 20, 1)); await new Promise(() => setInterval(() => a, 1000))`},
		{"children of node", job.Node, `for (let i = 0; i < 4; i++) require("child_process").exec(` + "`" + child + "`" + `); await new Promise(() => setInterval(() => 0, 1000))`},
		{"children of python", job.Python, "import subprocess\nfor i in range(4): subprocess.Popen('''" + child + "''', shell=True)\nimport time\ntime.sleep(1000)"},
		{"children of sh", job.Shell, strings.Repeat(child+" & ", 4) + "wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRunner(t, func(o *Options) { o.Memory = 192 << 20 })
			if o := one(t, r, handler(job.Source{Lang: c.lang, Body: c.body}), "x"); o.Status != 500 || o.Code != codeMemory {
				t.Errorf("%.300s", text(o))
			}
		})
	}
}

// TestFilesAndCores: a file may not grow for ever, and nothing dumps core.
func TestFilesAndCores(t *testing.T) {
	r := newRunner(t, func(o *Options) { o.FileSize, o.Files = 1<<20, 50 })
	body := `echo "R: 200 $(ulimit -c) $(ulimit -n) $(head -c 2000000 /dev/zero >big; wc -c <big | tr -d ' ')"`
	if got := text(one(t, r, handler(job.Source{Lang: job.Shell, Body: body}), "x")); got != "200 0 50 1048576" {
		t.Fatalf("%q", got)
	}
}

// TestKilledWithAllTheyStarted: children, also those with a session of their own,
// go with their context, whether it ends in order or not, and its directory too.
func TestKilledWithAllTheyStarted(t *testing.T) {
	leave := map[string]string{
		job.Node:   `const { spawn } = require("child_process"); for (const detached of [true, false]) console.log("J: pid|" + spawn("sleep", ["1000"], { detached, stdio: "inherit" }).pid)`,
		job.Python: "import subprocess\nfor s in (True, False): print('J: pid|%d' % subprocess.Popen(['sleep', '1000'], start_new_session=s).pid)",
		job.PHP:    `foreach (["", "setsid "] as $s) echo "J: pid|", shell_exec($s . 'sh -c "echo \$\$; exec sleep 1000 >/dev/null 2>&1" &');`,
		job.Shell: `for s in "" setsid; do $s sh -c 'echo $$ >>pids; exec sleep 1000' & done
until [ "$(cat pids | wc -l)" = 2 ]; do sleep 0.01; done; sed 's/^/J: pid|/' pids`,
	}
	inAll(t, func(t *testing.T, l tongue) {
		ends := map[string]func(r *Runner){
			"Kill": func(r *Runner) { r.Kill() },
			"death": func(r *Runner) {
				one(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: l.exits}), "")
			},
			"Close": func(r *Runner) { r.Close() },
		}
		for what, end := range ends {
			r := newRunner(t, nil)
			o := one(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: leave[l.lang]}), "x")
			if len(o.Lines) != 2 {
				t.Fatalf("%s: %s", what, text(o))
			}
			end(r)
			for _, line := range o.Lines {
				pid := strings.TrimSpace(string(line.Payload))
				eventually(t, what+": process "+pid+" is gone", func() bool { return gone(pid) })
			}
			eventually(t, what+": its directory is gone", func() bool {
				entries, _ := os.ReadDir(r.o.Dir)
				return len(entries) == 0
			})
		}
	})
}

func gone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(rest, "Z")
}

// TestContextsThatDieIdle are not handed out again.
func TestContextsThatDieIdle(t *testing.T) {
	later := map[string]string{
		job.Node:   `setTimeout(() => process.exit(1), 10); return String(process.pid)`,
		job.Python: "import os, threading\nthreading.Timer(0.01, lambda: os._exit(1)).start()\nreturn str(os.getpid())",
		job.Shell:  `(sleep 0.01; kill -9 $$) >/dev/null 2>&1 & echo "R: 200 $$"`,
	}
	inAll(t, func(t *testing.T, l tongue) {
		if later[l.lang] == "" {
			return // PHP does nothing by itself
		}
		r := newRunner(t, nil)
		h := handler(job.Source{Lang: l.lang, EID: "e", Body: later[l.lang]})
		for range 2 {
			o := one(t, r, h, "x")
			eventually(t, "the context is dead", func() bool { return gone(string(o.Data)) })
			eventually(t, "that is known", func() bool {
				r.pool.mu.Lock()
				defer r.pool.mu.Unlock()
				return len(r.pool.idle) == 0 || !r.pool.idle[0].p.Running()
			})
		}
		if got := text(one(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: l.echo}), "x")); got != "200 x" {
			t.Errorf("%q", got)
		}
	})
}

// TestBeforesThatFail: the batch is not run. A before that failed ends the
// context, a beforeEach or afterEach does not; afterEach changes no status.
func TestBeforesThatFail(t *testing.T) {
	inAll(t, func(t *testing.T, l tongue) {
		r := newRunner(t, nil)
		short := job.Options{Timeout: job.Duration(50 * time.Millisecond)}
		good := job.Source{Lang: l.lang, EID: "e", Body: l.echo}
		pid := map[string]string{
			job.Node: "return String(process.pid)", job.Python: "import os; return str(os.getpid())", job.PHP: "return (string) getmypid();",
			job.Shell: `echo "R: 200 $$"`,
		}[l.lang]
		who := func() string { return text(one(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: pid}), "")) }
		for _, c := range []struct {
			what   string
			change func(*job.Source)
			want   string
			stays  bool
		}{
			{"before fails", func(s *job.Source) { s.Before = l.fails }, "500 before_failed before: …", false},
			{"before exits", func(s *job.Source) { s.Before = l.exits }, "500 before_failed before: …last words", false},
			{"before has an error", func(s *job.Source) { s.Before = "if (" }, "500 before_failed before: …", false},
			{"beforeEach fails", func(s *job.Source) { s.BeforeEach = l.fails }, "500 before_failed beforeEach: …", true},
			{"beforeEach hangs", func(s *job.Source) { s.BeforeEach, s.Options = l.hangs, short }, "500 before_failed beforeEach: …50ms", false},
			{"afterEach fails", func(s *job.Source) { s.AfterEach = l.fails }, "200 a", true},
			{"afterEach exits", func(s *job.Source) { s.AfterEach = l.exits }, "200 a", false},
			{"afterEach spins", func(s *job.Source) { s.AfterEach, s.Options.CPU = l.spins, job.Duration(500*time.Millisecond) }, "200 a", false},
		} {
			before := who()
			s := good
			c.change(&s)
			got := run(t, r, batch(handler(s), "a", "a"))
			if len(got) != 2 || !alike(text(got[0]), c.want) || !alike(text(got[1]), c.want) {
				t.Errorf("%s: %q, want %q", c.what, texts(got), c.want)
			}
			stays := l.lang != job.Shell || !strings.Contains(c.what, "fails") // exit in a before ends the shell
			if after := who(); (after == before) != (c.stays && stays) {
				t.Errorf("%s: context %s before, %s after", c.what, before, after)
			}
		}
	})
}

// TestSlowStart: the start has a time of its own.
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
	path := func(o *Options) { o.Path, o.Start = bin+":/usr/bin:/bin", patience }
	quick := job.Options{Timeout: job.Duration(4 * time.Second), CPU: job.Duration(500 * time.Millisecond)}
	before := "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\ntime.sleep(2)"
	if got := text(one(t, newRunner(t, path), handler(job.Source{Lang: job.Python, Before: before, Body: "pass", Options: quick}), "")); got != "200" {
		t.Errorf("slow: %q", got)
	}
	never := newRunner(t, func(o *Options) { path(o); o.Start = 100 * time.Millisecond })
	for lang, want := range map[string]string{
		job.Node: "500 context_failed …100ms; 500 context_failed …100ms",
		job.PHP:  "500 context_failed …no licence; 500 context_failed …no licence",
	} {
		if got := texts(run(t, never, batch(handler(job.Source{Lang: lang, Body: "return"}), "a", "b"))); !alike(got, want) {
			t.Errorf("%s: %q", lang, got)
		}
	}
	none := newRunner(t, func(o *Options) { o.Path = "/no/such/directory" })
	if got := text(one(t, none, handler(job.Source{Lang: job.Node, Body: "return"}), "")); !alike(got, "500 context_failed …'node'…") {
		t.Errorf("missing: %q", got)
	}
	if never.Contexts()+none.Contexts() != 0 {
		t.Errorf("contexts that did not start are counted")
	}
}

// TestContextsThatAreEnded: the end of the context, or Kill, ends a job and its
// context at once; nothing is reported of it.
func TestContextsThatAreEnded(t *testing.T) {
	inAll(t, func(t *testing.T, l tongue) {
		r := newRunner(t, nil)
		for what, source := range map[string]job.Source{
			"job": {Body: l.hangs}, "before": {Before: l.hangs, Body: l.echo}, "beforeEach": {BeforeEach: l.hangs, Body: l.echo},
		} {
			source.Lang = l.lang
			for _, kill := range []bool{true, false} {
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				to := &reports{t: t}
				go func() {
					defer close(done)
					r.Run(ctx, batch(handler(source), "a", "b"), to)
				}()
				eventually(t, what+" has a context", func() bool { return r.Contexts() == 1 })
				if kill {
					r.Kill()
				} else {
					cancel()
				}
				<-done
				cancel()
				if len(to.outcomes) != 0 || to.started > 1 {
					t.Errorf("%s, Kill %v: %d started, %q", what, kill, to.started, texts(to.outcomes))
				}
				eventually(t, "there is no context", func() bool { return r.Contexts() == 0 })
			}
		}
		if got := text(one(t, r, handler(job.Source{Lang: l.lang, Body: l.echo}), "on")); got != "200 on" {
			t.Errorf("after it: %q", got)
		}
	})
}

// TestHeld: no further job begins, the running one ends.
func TestHeld(t *testing.T) {
	url := web(t, func(http.ResponseWriter, *http.Request) {})
	for _, h := range []*job.Handler{handler(job.Source{Lang: job.Shell, Body: "true"}), webHandler(url, job.Options{})} {
		b := batch(h, "a", "b", "c", "d")
		asked := 0
		b.Held = func() bool { asked++; return asked == 2 }
		if got := run(t, newRunner(t, nil), b); len(got) != 2 {
			t.Errorf("%s: %d jobs ran, not 2", h.Lang, len(got))
		}
	}
}

// TestPool: there are as many contexts as may be, used for as many jobs as said,
// and not for longer.
func TestPool(t *testing.T) {
	pid := func(r *Runner, client string) string {
		b := batch(&job.Handler{ID: "1", Jobtype: "c-t", Source: job.Source{Lang: job.Shell, Body: `echo "R: 200 $$"`}}, "")
		b.Client = client
		return text(run(t, r, b)[0])
	}
	t.Run("jobs", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.ContextJobs = 3 })
		var pids []string
		for range 9 {
			pids = append(pids, pid(r, "c"))
		}
		if pids[0] != pids[2] || pids[2] == pids[3] || pids[3] != pids[5] || pids[5] == pids[6] {
			t.Errorf("contexts for 3 jobs each: %q", pids)
		}
	})
	t.Run("idle", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.Idle = 20 * time.Millisecond })
		first := pid(r, "c")
		eventually(t, "the idle context is gone", func() bool { return r.Contexts() == 0 })
		if pid(r, "c") == first {
			t.Error("it was used again")
		}
	})
	t.Run("full", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.Contexts = 3 })
		a, b, c := pid(r, "a"), pid(r, "b"), pid(r, "c")
		if pid(r, "a") != a {
			t.Error("a's context was not used again")
		}
		pid(r, "d") // in the place of b's, idle for longest
		if pid(r, "a") != a || pid(r, "c") != c || r.Contexts() > 3 {
			t.Errorf("another one than the longest idle context has gone; there are %d", r.Contexts())
		}
		if pid(r, "b") == b {
			t.Error("b's context was not ended")
		}
	})
	t.Run("waiting", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.Contexts = 2 })
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for range 5 {
					h := handler(job.Source{Lang: job.Shell, EID: fmt.Sprint("e", i%7), Body: "true"})
					if got := text(one(t, r, h, "")); got != "200" {
						t.Errorf("%q", got)
					}
					if n := r.Contexts(); n > 2 {
						t.Errorf("%d contexts, at most 2", n)
					}
				}
			})
		}
		all.Wait()
	})
	t.Run("waiting in vain", func(t *testing.T) {
		r := newRunner(t, func(o *Options) { o.Contexts = 1 })
		busy := &reports{t: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(context.Background(), batch(handler(job.Source{Lang: job.Shell, Body: "sleep 1000"}), ""), busy)
		}()
		eventually(t, "the context is taken", func() bool { return r.Contexts() == 1 })
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(10*time.Millisecond, cancel)
		to := &reports{t: t}
		r.Run(ctx, batch(handler(job.Source{Lang: job.Shell, Body: "true"}), ""), to)
		if to.started != 0 {
			t.Error("a job began without a context")
		}
		r.Kill()
		<-done
	})
}

// TestOneContextEach: two batches at the same time have two.
func TestOneContextEach(t *testing.T) {
	r := newRunner(t, nil)
	dir := t.TempDir()
	// Each waits for the other.
	body := fmt.Sprintf(`touch "%s/$1"; until [ $(ls %s | wc -l) = 2 ]; do sleep 0.01; done`, dir, dir)
	h := handler(job.Source{Lang: job.Shell, EID: "e", Body: body})
	var all sync.WaitGroup
	for _, name := range []string{"1", "2"} {
		all.Go(func() {
			if got := text(one(t, r, h, name)); got != "200" {
				t.Errorf("%q", got)
			}
		})
	}
	all.Wait()
}

func TestUser(t *testing.T) {
	if _, err := New(Options{Dir: t.TempDir(), User: "no-such-user-here"}); err == nil || !strings.Contains(err.Error(), "no-such-user-here") {
		t.Errorf("unknown user: %v", err)
	}
	if os.Getuid() != 0 {
		if _, err := New(Options{Dir: t.TempDir(), User: "0"}); err == nil {
			t.Error("not root, and may run contexts as root")
		}
		return
	}
	dir, err := os.MkdirTemp("", "runner-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	r := newRunner(t, func(o *Options) { o.Dir, o.User = dir, "nobody" })
	for lang, body := range map[string]string{
		job.Node:   `require("fs").writeFileSync("f", "x"); return String(process.getuid()) + payload`,
		job.Python: "import os; open('f', 'w'); return str(os.getuid()) + payload",
		job.PHP:    `touch("f"); return posix_getuid() . $payload;`,
		job.Shell:  `touch f && echo "R: 200 $(id -u)$(cat)"`,
	} {
		if got := text(one(t, r, handler(job.Source{Lang: lang, Body: body}), "x")); got != "200 65534x" {
			t.Errorf("%s: %q", lang, got)
		}
	}
}

// TestInputIsTheJobs: what a job starts cannot take the next payload for its
// input.
func TestInputIsTheJobs(t *testing.T) {
	eat := map[string]string{
		job.Node:   `require("child_process").execSync("cat", { stdio: "inherit" })`,
		job.Python: `import os; os.system("cat")`, job.PHP: `passthru("cat");`, job.Shell: `true`,
	}
	inAll(t, func(t *testing.T, l tongue) {
		r := newRunner(t, nil)
		if got := texts(run(t, r, batch(handler(job.Source{Lang: l.lang, Body: eat[l.lang]}), "a", "b", "c"))); got != "200; 200; 200" {
			t.Errorf("%q", got)
		}
	})
}

func TestCheck(t *testing.T) {
	r := newRunner(t, func(o *Options) { o.Languages = []string{job.HTTP, job.Gloom, job.Shell} })
	for _, c := range []struct{ lang, body, want string }{
		{"", "x", "missing_field lang"},
		{"cobol", "x", "invalid_lang lang"},
		{job.Node, "x", "invalid_lang lang"},
		{job.Shell, "", "missing_field body"},
		{job.Shell, "if", ""},
		{job.Gloom, "a note", ""},
		{job.HTTP, "http://a/b", ""},
		{job.HTTP, "https://user:word@a:1/b?c", ""},
		{job.HTTP, "ftp://a/b", "invalid_value body"},
		{job.HTTP, "http:///b", "invalid_value body"},
		{job.HTTP, "http://a:b/", "invalid_value body"},
		{job.HTTP, "a/b", "invalid_value body"},
		{job.HTTP, "http://a\x00/", "invalid_value body"},
	} {
		err := r.Check(&job.Source{Lang: c.lang, Body: c.body})
		got := ""
		if e, ok := err.(*CheckError); ok {
			got = e.Code + " " + e.Field
		}
		if got != c.want || (err != nil) != (got != "") {
			t.Errorf("%s %q: %v, want %q", c.lang, c.body, err, c.want)
		}
	}
}

// TestLeftovers: a killed daemon's directories go, nothing else.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"contexts/7/a/b", "journal/1"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	newRunner(t, func(o *Options) { o.Dir = dir })
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "contexts")); err != nil || len(left) != 0 || !slices.Equal(names, []string{"contexts", "journal"}) {
		t.Errorf("%v, %v", names, left)
	}
}
