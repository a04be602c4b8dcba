package probe

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestStatusDecidesWhatHappens: the status of a job's handler decides what happens to the job.
func TestStatusDecidesWhatHappens(t *testing.T) {
	d := sharedDaemon(t)
	for _, c := range []struct {
		name, lang, body, payload string
		state, code               string
		status                    float64
		data                      string
	}{
		{"sh 0", "sh", `exit 0`, "x", "ok", "ok", 200, ""},
		{"sh 65", "sh", `exit 65`, "x", "failed", "failed", 400, ""},
		{"sh 1", "sh", `exit 1`, "x", "abandoned", "", 500, ""},
		{"sh 75", "sh", `exit 75`, "x", "abandoned", "", 100, ""},
		{"sh killed by a signal", "sh", `kill -9 $$`, "x", "abandoned", "", 500, ""},
		{"sh says a status", "sh", `echo noise; echo 'R: 201 made'; exit 1`, "x", "ok", "ok", 201, "made"},
		{"sh says two, the last counts", "sh", `echo 'R: 500 a'; echo 'R: 404 b'`, "x", "failed", "failed", 404, "b"},
		{"sh $1", "sh", `echo "R: 200 [$1]"`, "a b", "ok", "ok", 200, "[a b]"},
		{"sh $1 ends at NUL", "sh", `echo "R: 200 [$1]"`, "a\x00b", "ok", "ok", 200, "[a]"},
		{"node nothing", "node", `;`, "x", "ok", "ok", 200, ""},
		{"node a number", "node", `return 404`, "x", "failed", "failed", 404, ""},
		{"node a string", "node", `return payload + "!"`, "hü", "ok", "ok", 200, "hü!"},
		{"node status and data", "node", `return {status: 202, data: job.type + job.tries + job.raw.length}`, "abc", "ok", "ok", 202, "t13"},
		{"node async", "node", `await new Promise(r => setTimeout(r, 10)); return "late"`, "x", "ok", "ok", 200, "late"},
		{"node throws", "node", `throw new Error("broken")`, "x", "abandoned", "", 500, "broken"},
		{"node R:", "node", `console.log("R: 410 gone"); return "not this"`, "x", "failed", "failed", 410, "gone"},
		{"node without a newline", "node", `process.stdout.write("half"); return "whole"`, "x", "ok", "ok", 200, "whole"},
		{"node dies", "node", `process.exit(0)`, "x", "abandoned", "context_died", 500, ""},
		{"node evaluates what does not parse", "node", `return eval("][")`, "x", "abandoned", "", 500, "*"},
		{"node 3xx is 500", "node", `return 302`, "x", "abandoned", "", 500, ""},
		{"node 99 is 500", "node", `return 99`, "x", "abandoned", "", 500, ""},
		{"node 600 is 500", "node", `return 600`, "x", "abandoned", "", 500, ""},
		{"node 199", "node", `return 199`, "x", "abandoned", "", 199, ""},
		{"python nothing", "python", `pass`, "x", "ok", "ok", 200, ""},
		{"python a number", "python", `return 404`, "x", "failed", "failed", 404, ""},
		{"python a string", "python", `return payload + "!"`, "hü", "ok", "ok", 200, "hü!"},
		{"python status and data", "python", `return {"status": 202, "data": job["type"] + str(job["tries"]) + str(len(job["raw"]))}`, "abc", "ok", "ok", 202, "t13"},
		{"python raises", "python", `raise ValueError("broken")`, "x", "abandoned", "", 500, "broken"},
		{"python bad UTF-8", "python", `return payload`, "a\xffb", "ok", "ok", 200, "a\ufffdb"},
		{"python raw", "python", `return str(list(job["raw"]))`, "a\xff", "ok", "ok", 200, "[97, 255]"},
		{"python dies", "python", "import os\nos._exit(0)", "x", "abandoned", "context_died", 500, ""},
		{"python evaluates what does not parse", "python", `return eval("][")`, "x", "abandoned", "", 500, "*"},
		{"php nothing", "php", `;`, "x", "ok", "ok", 200, ""},
		{"php a number", "php", `return 404;`, "x", "failed", "failed", 404, ""},
		{"php a string", "php", `return $payload . "!";`, "hü", "ok", "ok", 200, "hü!"},
		{"php status and data", "php", `return ['status' => 202, 'data' => $job['type'] . $job['tries'] . strlen($job['raw'])];`, "abc", "ok", "ok", 202, "t13"},
		{"php throws", "php", `throw new Exception("broken");`, "x", "abandoned", "", 500, "broken"},
		{"php exits", "php", `exit(0);`, "x", "abandoned", "context_died", 500, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client := freshClient()
			d.addHandler(t, client, "t", c.lang, c.body)
			id := d.addOne(t, client, "t", c.payload)
			if c.code != "" {
				d.awaitCode(t, client, id, c.code)
			}
			data := d.awaitEnd(t, client, id, c.state)
			r := d.job(t, client, id)
			if r.json["exitcode"] != c.status {
				t.Errorf("%s, want %v", r, c.status)
			}
			if c.data == "*" {
				c.data = data
			}
			if !strings.Contains(data, c.data) || c.state == "ok" && data != c.data {
				t.Errorf("data %q, want %q", data, c.data)
			}
			if h := d.expect(t, 200, "GET", "/"+client+"/job/result/"+id, "").header.Get("job-status"); h != fmt.Sprint(c.status) {
				t.Errorf("job-status %q, want %v", h, c.status)
			}
			if c.state == "abandoned" != (r.json["tries"].(float64) > 1 || r.isSlow()) {
				t.Errorf("tries: %s", r)
			}
		})
	}
}

// TestContextsKeepStateApart: a context keeps what it should from job to job, and other jobs cannot
// see it.
func TestContextsKeepStateApart(t *testing.T) {
	d := sharedDaemon(t)
	for _, c := range []struct{ lang, before, beforeEach, body, after string }{
		{"node", "n = 0; own = 'b'", "n += 10", "n++; return own + n", "n += 100"},
		{"python", "n = 0\nown = 'b'", "n += 10", "global n\nn += 1\nreturn own + str(n)", "n += 100"},
		{"php", "$GLOBALS['n'] = 0; $GLOBALS['own'] = 'b';", "$GLOBALS['n'] += 10;", "$GLOBALS['n']++; return $GLOBALS['own'] . $GLOBALS['n'];", "$GLOBALS['n'] += 100;"},
	} {
		t.Run(c.lang+": before, beforeEach, afterEach", func(t *testing.T) {
			t.Parallel()
			client := freshClient()
			d.addHandler(t, client, "g", c.lang, c.body, "before="+c.before, "beforeEach="+c.beforeEach, "afterEach="+c.after, `options={"concurrency":1}`)
			if got := d.awaitEnd(t, client, d.addOne(t, client, "g", "x"), "ok"); got != "b11" {
				t.Errorf("first %q, want b11", got)
			}
			if got := d.awaitEnd(t, client, d.addOne(t, client, "g", "x"), "ok"); got != "b122" {
				t.Errorf("second %q, want b122", got)
			}
			other := freshClient()
			d.addHandler(t, other, "g", c.lang, c.body, "before="+c.before, "beforeEach="+c.beforeEach)
			if got := d.awaitEnd(t, other, d.addOne(t, other, "g", "x"), "ok"); got != "b11" {
				t.Errorf("another client got %q, want b11", got)
			}
		})
		t.Run(c.lang+": before fails", func(t *testing.T) {
			t.Parallel()
			client := freshClient()
			throw := map[string]string{"node": "throw new Error('no')", "python": "raise ValueError('no')", "php": "throw new Exception('no');"}[c.lang]
			d.addHandler(t, client, "g", c.lang, c.body, "before="+throw)
			id := d.addOne(t, client, "g", "x")
			d.awaitCode(t, client, id, "before_failed")
			d.awaitEnd(t, client, id, "abandoned")
			if r := d.job(t, client, id); r.json["exitcode"] != 500.0 {
				t.Errorf("%s", r)
			}
		})
	}
	for lang, body := range map[string]string{
		"sh":   `env; cat /proc/$PPID/environ 2>/dev/null | tr '\0' '\n'; env | sed 's/^/R: 200 /' | grep -c . ; env | grep -q SECRET && echo "R: 200 leak" || echo "R: 200 clean"`,
		"node": `return process.env.SECRET_OF_THE_DAEMON ? "leak" : "clean"`, "python": "import os\nreturn 'leak' if 'SECRET_OF_THE_DAEMON' in os.environ else 'clean'",
		"php": `return getenv('SECRET_OF_THE_DAEMON') ? 'leak' : 'clean';`,
	} {
		t.Run(lang+": environment", func(t *testing.T) {
			t.Parallel()
			client := freshClient()
			d.addHandler(t, client, "env", lang, body)
			if got := d.awaitEnd(t, client, d.addOne(t, client, "env", "x"), "ok"); got != "clean" {
				t.Errorf("%s", got)
			}
		})
	}
	t.Run("temporary files of another client", func(t *testing.T) {
		t.Parallel()
		a, b := freshClient(), freshClient()
		d.addHandler(t, a, "w", "sh", `touch "$TMPDIR/mine"; echo "R: 200 $TMPDIR"`)
		d.addHandler(t, b, "w", "sh", `echo "R: 200 $TMPDIR"`)
		at, bt := d.awaitEnd(t, a, d.addOne(t, a, "w", "x"), "ok"), d.awaitEnd(t, b, d.addOne(t, b, "w", "x"), "ok")
		if at == "" || at == bt {
			t.Errorf("temporary directories %q and %q", at, bt)
		}
	})
	t.Run("killed with all it started", func(t *testing.T) {
		t.Parallel()
		client := freshClient()
		d.addHandler(t, client, "slow", "sh", `(setsid sleep 1000 & echo $! >"$1.a"; wait) & sleep 1000 & echo $! >"$1.b"; wait`, `options={"timeout":"300ms"}`)
		mark := t.TempDir() + "/pid"
		if err := os.Chmod(strings.TrimSuffix(mark, "/pid"), 0o777); err != nil {
			t.Fatal(err)
		}
		id := d.addOne(t, client, "slow", mark)
		d.awaitEnd(t, client, id, "abandoned")
		if r := d.job(t, client, id); r.text("code") != "timeout" && r.json["exitcode"] != 500.0 {
			t.Errorf("%s", r)
		}
		waitUntil(t, "its processes are gone", func() error {
			for _, f := range []string{".a", ".b"} {
				pid, err := os.ReadFile(mark + f)
				if err != nil {
					return err
				}
				line, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline")
				if err == nil && strings.HasPrefix(string(line), "sleep\x001000") {
					return fmt.Errorf("%s lives: %q", pid, line)
				}
			}
			return nil
		})
	})
	t.Run("processor time", func(t *testing.T) {
		t.Parallel()
		client := freshClient()
		d.addHandler(t, client, "busy", "node", `for (;;);`, `options={"cpu":"300ms","timeout":"50s"}`)
		d.awaitEnd(t, client, d.addOne(t, client, "busy", "x"), "abandoned")
	})
}

// TestFollowingJobsRun: jobs that a run prints, and follow-on jobs, run.
func TestFollowingJobsRun(t *testing.T) {
	d := sharedDaemon(t)
	t.Run("J: lines", func(t *testing.T) {
		client := freshClient()
		d.addHandler(t, client, "a", "sh", `echo "J: b|one|two"; echo "#J: b|three"; echo "J: other-c|x"; echo "J: bad,type|x"; echo done`)
		id := d.addOne(t, client, "a", "x")
		d.awaitEnd(t, client, id, "ok")
		waitUntil(t, "jobs", func() error {
			if k := d.counts(t, client, "b"); k["added"] != 2.0 {
				return fmt.Errorf("%v", k)
			}
			return nil
		})
		if r := d.job(t, client, id); r.json["bad_lines"] != 1.0 {
			t.Errorf("%s, want one bad line", r)
		}
		// Here other-c is a type of the client itself.
		if k := d.counts(t, client, "other-c"); k["added"] != 1.0 {
			t.Errorf("other-c: %v", k)
		}
		if k := d.counts(t, "other", "c"); k != nil {
			t.Errorf("a line reached another client: %v", k)
		}
	})
	t.Run("dropped on an error", func(t *testing.T) {
		client := freshClient()
		d.addHandler(t, client, "a", "sh", `echo "J: b|x"; exit 1`)
		d.awaitEnd(t, client, d.addOne(t, client, "a", "x"), "abandoned")
		if k := d.counts(t, client, "b"); k != nil {
			t.Errorf("%v", k)
		}
	})
	t.Run("next", func(t *testing.T) {
		client := freshClient()
		d.addHandler(t, client, "a", "sh", `echo "R: 200 result"`, `options={"next":"b","nextFailed":"c"}`)
		d.addHandler(t, client, "b", "sh", `echo "R: 404 [$1]"`, `options={"next":"a","nextFailed":"c"}`)
		d.addHandler(t, client, "c", "sh", `echo "R: 200 <$1>"`)
		d.awaitEnd(t, client, d.addOne(t, client, "a", "x"), "ok")
		waitUntil(t, "the chain", func() error {
			r := d.expect(t, 200, "GET", "/"+client+"/jobs?type=c&state=ok", "")
			list, _ := r.json["jobs"].([]any)
			if len(list) != 1 {
				return fmt.Errorf("%s", r)
			}
			return nil
		})
		r := d.expect(t, 200, "GET", "/"+client+"/jobs?type=c", "")
		id, _ := r.json["jobs"].([]any)[0].(map[string]any)["id"].(string)
		if got := d.awaitEnd(t, client, id, "ok"); got != "<[result]>" {
			t.Errorf("%q", got)
		}
	})
	t.Run("newlines in data are a JSON string", func(t *testing.T) {
		client := freshClient()
		d.addHandler(t, client, "a", "node", `return "x\ny"`, `options={"next":"b"}`)
		d.addHandler(t, client, "b", "sh", `printf 'R: 200 %s\n' "$1"`)
		d.awaitEnd(t, client, d.addOne(t, client, "a", "x"), "ok")
		waitUntil(t, "next", func() error {
			if k := d.counts(t, client, "b"); k["ok"] != 1.0 {
				return fmt.Errorf("%v", k)
			}
			return nil
		})
		r := d.expect(t, 200, "GET", "/"+client+"/jobs?type=b", "")
		id, _ := r.json["jobs"].([]any)[0].(map[string]any)["id"].(string)
		if got := d.awaitEnd(t, client, id, "ok"); got != `"x\ny"` {
			t.Errorf("%q", got)
		}
	})
	t.Run("long data is cut", func(t *testing.T) {
		client := freshClient()
		d.addHandler(t, client, "a", "node", `return "x".repeat(5000)`)
		id := d.addOne(t, client, "a", "x")
		if got := d.awaitEnd(t, client, id, "ok"); len(got) != 1024 {
			t.Errorf("%d bytes, want 1024", len(got))
		}
		if r := d.job(t, client, id); r.json["truncated"] != true {
			t.Errorf("%s", r)
		}
	})
}
