package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
)

// TestJobOverLimitIsKilled: a job that exceeds a limit is killed with its handler process, and the
// next job gets another process.
func TestJobOverLimitIsKilled(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, func(o *Options) { o.MaxOutput, o.MaxLines = 100_000, 100 })
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
			name string
			job.Source
			want string
		}{
			{"hangs", job.Source{Body: l.hangBody, Options: job.Options{Timeout: job.Duration(50 * time.Millisecond)}}, "500 timeout …50ms"},
			{"spins", job.Source{Body: l.spinBody, Options: job.Options{CPU: job.Duration(100 * time.Millisecond)}}, "500 cpu …100ms…"},
			{"child spins", job.Source{Body: spinningChild(l), Options: job.Options{CPU: job.Duration(100 * time.Millisecond)}}, "500 cpu …100ms…"},
			{"prints much", job.Source{Body: fmt.Sprintf(flood, "x", 100_001)}, "500 output …"},
			{"prints much elsewhere", job.Source{Body: other}, "500 output …"},
			{"returns much", job.Source{Body: data}, "500 output …"},
			{"many lines", job.Source{Body: fmt.Sprintf(flood, line, 101)}, "500 lines …"},
			{"exits", job.Source{Body: l.exitBody}, "500 context_died …last words"},
		} {
			c.Lang, c.EID = l.lang, "e"
			to := &reportRecorder{t: t}
			r.Run(context.Background(), batch(handler(c.Source), "x", "y"), to)
			if len(to.outcomes) != 1 || to.startedCount != 1 || !sameOutcome(text(to.outcomes[0]), c.want) {
				t.Errorf("%s: %d started, %q, want %q", c.name, to.startedCount, texts(to.outcomes), c.want)
			}
			if r.Processes() != 0 {
				t.Errorf("%s: the context is still there", c.name)
			}
		}
		limit := job.Source{Lang: l.lang, EID: "e", Body: fmt.Sprintf(flood, line, 100)}
		if o := runOne(t, r, handler(limit), "x"); len(o.Lines) != 100 {
			t.Errorf("%d lines of 100, %d %s", len(o.Lines), o.Status, o.Code)
		}
	})
}

func spinningChild(l testLanguage) string {
	return map[string]string{
		job.Node:   `await new Promise((r) => require("child_process").exec("while :; do :; done", r))`,
		job.Python: `import os; os.system("while :; do :; done")`, job.PHP: `exec("while :; do :; done");`,
		job.Shell: `sh -c "while :; do :; done"`,
	}[l.lang]
}

// TestProcessorTime: processor time that earlier jobs of a handler process have used does not
// count.
func TestProcessorTime(t *testing.T) {
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

// TestProcessOverMemoryIsKilled: a handler process that uses too much memory is killed; others
// continue.
func TestProcessOverMemoryIsKilled(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, func(o *Options) { o.MaxMemory = 128 << 20 })
		body := map[string]string{
			job.Node:   `const a = []; for (;;) a.push(new Array(1000).fill(a.length))`,
			job.Python: "a = []\nwhile True: a.append('x' * 10**6 + str(len(a)))", job.PHP: `$a = []; for (;;) $a[] = str_repeat("x", 1000000);`,
			job.Shell: `a=xxxxxxxxxx; while :; do a=$a$a; done`,
		}[l.lang]
		h := handler(job.Source{Lang: l.lang, EID: "e", Body: body})
		if o := runOne(t, r, h, "x"); o.Status != 500 || o.Code != "" && o.Code != codeContextDied && o.Code != codeMemory {
			t.Errorf("%.300s", text(o))
		}
		if got := text(runOne(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: l.echo}), "on")); got != "200 on" {
			t.Errorf("%q", got)
		}
	})
}

// TestTotalMemory: memory outside an interpreter's heap counts, and so does the memory of processes
// that it has started.
func TestTotalMemory(t *testing.T) {
	const child = `python3 -c "a = 'x' * 60000000; import time; time.sleep(1000)"`
	for _, c := range []struct{ name, lang, body string }{
		{"buffers", job.Node, `const a = []; for (let i = 0; i < 250; i++) a.push(Buffer.alloc(1 << 20, 1)); await new Promise(() => setInterval(() => a, 1000))`},
		{"children of node", job.Node, `for (let i = 0; i < 4; i++) require("child_process").exec(` + "`" + child + "`" + `); await new Promise(() => setInterval(() => 0, 1000))`},
		{"children of python", job.Python, "import subprocess\nfor i in range(4): subprocess.Popen('''" + child + "''', shell=True)\nimport time\ntime.sleep(1000)"},
		{"children of sh", job.Shell, strings.Repeat(child+" & ", 4) + "wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRunner(t, func(o *Options) { o.MaxMemory = 192 << 20 })
			if o := runOne(t, r, handler(job.Source{Lang: c.lang, Body: c.body}), "x"); o.Status != 500 || o.Code != codeMemory {
				t.Errorf("%.300s", text(o))
			}
		})
	}
}

// TestFilesAndCores: a file may not grow without limit, and nothing dumps core.
func TestFilesAndCores(t *testing.T) {
	r := newRunner(t, func(o *Options) { o.MaxFileSize, o.MaxFiles = 1<<20, 50 })
	body := `echo "R: 200 $(ulimit -c) $(ulimit -n) $(head -c 2000000 /dev/zero >big; wc -c <big | tr -d ' ')"`
	if got := text(runOne(t, r, handler(job.Source{Lang: job.Shell, Body: body}), "x")); got != "200 0 50 1048576" {
		t.Fatalf("%q", got)
	}
}

// TestKillDescendants: when a handler process ends, in order or not, all its children are killed,
// even those in another process group, and its directory is removed.
func TestKillDescendants(t *testing.T) {
	leave := map[string]string{
		job.Node:   `const { spawn } = require("child_process"); for (const detached of [true, false]) console.log("J: pid|" + spawn("sleep", ["1000"], { detached, stdio: "inherit" }).pid)`,
		job.Python: "import subprocess\nfor s in (True, False): print('J: pid|%d' % subprocess.Popen(['sleep', '1000'], start_new_session=s).pid)",
		job.PHP:    `foreach (["", "setsid "] as $s) echo "J: pid|", shell_exec($s . 'sh -c "echo \$\$; exec sleep 1000 >/dev/null 2>&1" &');`,
		job.Shell: `for s in "" setsid; do $s sh -c 'echo $$ >>pids; exec sleep 1000' & done
until [ "$(cat pids | wc -l)" = 2 ]; do sleep 0.01; done; sed 's/^/J: pid|/' pids`,
	}
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		ends := map[string]func(r *Runner){
			"Kill": func(r *Runner) { r.Kill() },
			"death": func(r *Runner) {
				runOne(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: l.exitBody}), "")
			},
			"Close": func(r *Runner) { r.Close() },
		}
		for name, end := range ends {
			r := newRunner(t, nil)
			o := runOne(t, r, handler(job.Source{Lang: l.lang, EID: "e", Body: leave[l.lang]}), "x")
			if len(o.Lines) != 2 {
				t.Fatalf("%s: %s", name, text(o))
			}
			end(r)
			for _, line := range o.Lines {
				pid := strings.TrimSpace(string(line.Payload))
				eventually(t, name+": process "+pid+" is gone", func() bool { return processEnded(pid) })
			}
			eventually(t, name+": its directory is gone", func() bool {
				entries, _ := filepath.Glob(filepath.Join(r.options.Dir, "[0-9]*"))
				return len(entries) == 0
			})
		}
	})
}

func processEnded(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(rest, "Z")
}
