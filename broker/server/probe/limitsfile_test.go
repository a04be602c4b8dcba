package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func limitsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.toml")
	writeFile(t, path, text)
	return path
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload writes the file with a marker, makes the daemon read it again, and waits until the
// marker has taken effect.
func (d *daemon) reload(t *testing.T, path, text string) {
	t.Helper()
	marker := freshName("marker")
	writeFile(t, path, text+fmt.Sprintf("\n[groups.%s]\nconcurrency = 1\n", marker))
	d.Signal(syscall.SIGHUP)
	waitFor(t, "the file is read again", func() error {
		if status, body, err := d.get("/v1/groups/" + marker); err != nil || status != 200 {
			return fmt.Errorf("%d %s %v", status, body, err)
		}
		return nil
	})
}

func (d *daemon) isPersisted(t *testing.T, pattern string) bool {
	t.Helper()
	text := strings.ReplaceAll(d.callHTTP(t, "GET", "/v1/groups/"+pattern, "", 200), " ", "")
	return strings.Contains(text, `"persisted":true`)
}

func TestLimitsFileIsApplied(t *testing.T) {
	t.Parallel()
	t.Run("types and groups, in any spelling", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--limits="+limitsFile(t, `
# tenants
types.img.concurrency = 1
types."a b/c".fair = true
[types.video]
rate = 0.001
burst = 2
fair = true
[groups]
"tenant-*" = { concurrency = 1, rate = 5, burst = 10 }
one.concurrency = 0
[groups."api.example.com"]
rate = 2.5
`))
		b.checkRule(t, "tenant-*", 1, 5, 10)
		b.checkRule(t, "one", 0, -1, -1)
		b.checkRule(t, "api.example.com", -1, 2.5, -1)
		if !b.isPersisted(t, "one") {
			t.Error("a rule of the file is persisted")
		}
		if !b.isFair(t, "video") || !b.isFair(t, "a b/c") {
			t.Error("types are not fair")
		}
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(`["img","video","free"]`, `,"prefetch":10`)
		first := s.submitFresh("img", `1`)
		s.submitFresh("img", `1`)
		s.submitFreshWith("free", `1`, groupsField("one"))
		w.wantJob(first)
		for range 2 {
			w.wantJob(s.submitFresh("video", `1`))
		}
		s.submitFresh("video", `1`)
		w.wantJob(s.submitFreshWith("free", `1`, groupsField("tenant-a")))
		s.submitFreshWith("free", `1`, groupsField("tenant-a"))
		w.wantQuiet()
	})
	t.Run("SIGHUP replaces what it said", func(t *testing.T) {
		t.Parallel()
		path := limitsFile(t, "groups.a.concurrency = 1\ngroups.b.concurrency = 0\ntypes.t.fair = true\n")
		b := start(t, "--limits="+path)
		s, w := b.submitter(t), b.workerWithRoom(t, "t")
		heldID := s.submitFreshWith("t", `1`, groupsField("b"))
		w.wantJob(s.submitFreshWith("t", `1`, groupsField("a")))
		second := s.submitFreshWith("t", `1`, groupsField("a"))
		w.wantQuiet()
		b.reload(t, path, "groups.a.concurrency = 2\n")
		ids := map[string]bool{heldID: true, second: true}
		for range 2 {
			id, _ := w.nextJob()
			delete(ids, id)
		}
		if len(ids) > 0 {
			t.Errorf("still held back: %v", ids)
		}
		b.callHTTP(t, "GET", "/v1/groups/b", "", 404)
		if b.isFair(t, "t") {
			t.Error("still fair")
		}
	})
	t.Run("a mistake changes nothing", func(t *testing.T) {
		t.Parallel()
		path := limitsFile(t, "groups.a.concurrency = 1\n")
		b := start(t, "--limits="+path)
		for i, text := range []string{
			"groups.a.concurrency = 5\ngroups.b.rate = -1\n", "groups.a.concurrency = \n", "groups.a.concurrency = 5\nnonsense = 1\n", "groups.a.burst = 5\n",
		} {
			writeFile(t, path, text)
			b.Signal(syscall.SIGHUP)
			waitFor(t, "an error is logged", func() error {
				if got := strings.Count(b.Log.String(), `"level":"error"`); got <= i {
					return fmt.Errorf("%d errors", got)
				}
				return nil
			})
			b.checkRule(t, "a", 1, -1, -1)
			b.callHTTP(t, "GET", "/v1/groups/b", "", 404)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		b.Signal(syscall.SIGHUP)
		waitFor(t, "an error is logged", func() error {
			if strings.Count(b.Log.String(), `"level":"error"`) < 5 {
				return errNotYet
			}
			return nil
		})
		b.checkRule(t, "a", 1, -1, -1)
	})
	t.Run("what was set over HTTP stays and wins", func(t *testing.T) {
		t.Parallel()
		const text = "groups.a.concurrency = 1\ngroups.f.concurrency = 4\ntypes.t.fair = false\ntypes.t.concurrency = 3\n"
		path := limitsFile(t, text)
		b := start(t, "--limits="+path)
		b.setRule(t, "a", `{"concurrency":7}`)
		b.setRule(t, "own", `{"concurrency":8}`)
		b.makeFair(t, "t")
		b.reload(t, path, text)
		b.checkRule(t, "a", 7, -1, -1)
		b.checkRule(t, "own", 8, -1, -1)
		if b.isPersisted(t, "own") {
			t.Error("a rule set over HTTP is not persisted")
		}
		if !b.isFair(t, "t") {
			t.Error("fair set over HTTP is gone")
		}
		s, w := b.submitter(t), b.workerWithRoom(t, "t") // only the file's limits of the type apply
		for range 4 {
			s.submitFresh("t", `1`)
		}
		for range 3 {
			w.nextJob()
		}
		w.wantQuiet()
		b.dropRule(t, "a") // the file's rule applies again
		b.checkRule(t, "a", 1, -1, -1)
		b.callHTTP(t, "DELETE", "/v1/groups/a", "", 409)
		b.callHTTP(t, "DELETE", "/v1/groups/f", "", 409)
		b.checkRule(t, "f", 4, -1, -1)
		b.dropRule(t, "own")
		b.callHTTP(t, "GET", "/v1/groups/own", "", 404)
	})
}

func TestBadLimitsFilesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		names []string
	}{
		"no TOML":           {"groups.a.concurrency = 1\n= 5\n", []string{"2"}},
		"an unknown table":  {"[queues]\nx = 1\n", []string{"queues"}},
		"an unknown key":    {"[groups.a]\nconcurrency = 1\ncolour = 2\n", []string{"colour"}},
		"burst alone":       {"[groups.a]\nburst = 2\n", []string{"burst"}},
		"nothing in a rule": {"[groups.a]\n", []string{"a"}},
		"a wrong kind":      {"[groups.a]\nconcurrency = \"1\"\n", []string{"concurrency"}},
		"out of range":      {"[groups.a]\nconcurrency = 1\nrate = 1e10\n", []string{"rate"}},
		"negative":          {"[groups.a]\nconcurrency = -1\n", []string{"concurrency", "-1"}},
		"an empty pattern":  {"[groups.\"\"]\nconcurrency = 1\n", nil},
		"fair, a number":    {"[types.t]\nfair = 1\n", []string{"fair"}},
		"fair of a group":   {"[groups.g]\nconcurrency = 1\nfair = true\n", []string{"fair"}},
		"twice":             {"groups.a.concurrency = 1\ngroups.a.concurrency = 2\n", []string{"2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := limitsFile(t, c.text)
			out := refusedWith(t, 0, daemonSpec{flags: []string{"--limits=" + path}})
			for _, n := range append(c.names, "limits") {
				if !strings.Contains(out, n) {
					t.Errorf("the error does not name %q:\n%s", n, out)
				}
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		refusedWith(t, 0, daemonSpec{flags: []string{"--limits=/no/such/limits"}})
	})
}
