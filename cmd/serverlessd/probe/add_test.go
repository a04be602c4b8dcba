package probe

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var idPattern = regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{9}-[0-9a-hjkmnp-tv-z]{6}-[0-9a-hjkmnp-tv-z]{5}$`)

// TestLinesAreAddedInAllWays: lines can be added in all documented ways, and the answers are right.
func TestLinesAreAddedInAllWays(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	for _, c := range []struct {
		name, path, body string
		count            int
	}{
		{"a line", "/" + client + "/job/a/add", "x\n", 1},
		{"without /add", "/" + client + "/job/a", "x\n", 1},
		{"two, the last without its newline", "/" + client + "/job/a/add", "x\ny", 2},
		{"empty lines are skipped", "/" + client + "/job/a/add", "\n\nx\n\ny\n\n", 2},
		{"none", "/" + client + "/job/a/add", "", 0},
		{"newlines alone", "/" + client + "/job/a/add", "\n\n\n", 0},
		{"a payload may begin with #", "/" + client + "/job/a/add", "#x\n# y\n", 2},
		{"names are decoded once", "/" + client + "/job/a%2eb%40c/add", "x\n", 1},
		{"a type with all it may have", "/" + client + "/job/A9_.:@+-z/add", "x\n", 1},
		{"a type called add", "/" + client + "/job/add/add", "x\n", 1},
		{"by query", "/add?jobtype=a&client=" + client, "x\n", 1},
		{"a batch", "/" + client + "/job/a/add", "#:Batch bytes=4\nx\ny\n#:EndBatch\n", 2},
		{"a batch in which nothing is a directive", "/" + client + "/job/a/add", "#:Batch bytes=13\n#:EndBatch\nx\n#:EndBatch\n", 2},
		{"a batch of a bare type", "/" + client + "/job/a/add", "#:Batch bytes=2,jobtype=b,date=whenever\nx\n#:EndBatch\n", 1},
		{"a batch of a full type", "/" + client + "/job/a/add", "#:Batch bytes=2,jobtype=" + client + "-b-c\nx\n#:EndBatch\n", 1},
		{"lines and batches", "/" + client + "/job/a/add", "x\n#:Batch bytes=2\ny\n#:EndBatch\nz\n#:Batch bytes=0\n#:EndBatch\n", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := d.expect(t, 200, "POST", c.path, c.body)
			ids, _ := r.json["ids"].([]any)
			if r.json["ok"] != true || r.json["count"] != float64(c.count) || len(ids) != c.count {
				t.Fatalf("%s, want %d jobs", r, c.count)
			}
			for i, id := range ids {
				if !idPattern.MatchString(id.(string)) || i > 0 && id.(string) <= ids[i-1].(string) {
					t.Errorf("id %v, behind %v", id, ids[max(0, i-1)])
				}
				if g := d.job(t, client, id.(string)); g.text("id") != id || g.text("type") == "" {
					t.Errorf("at once: %s", g)
				}
			}
		})
	}
	t.Run("the default client", func(t *testing.T) {
		r := d.expect(t, 200, "POST", "/add?jobtype=probe.default", "x\n")
		id := r.json["ids"].([]any)[0].(string)
		if g := d.job(t, "default", id); g.text("type") != "probe.default" {
			t.Errorf("%s", g)
		}
	})
	t.Run("ids sort by acceptance", func(t *testing.T) {
		var last string
		for range 20 {
			ids := d.add(t, client, "order", "a\nb\nc\n")
			if ids[0] <= last || !slices.IsSorted(ids) {
				t.Fatalf("%v behind %s", ids, last)
			}
			last = ids[2]
		}
	})
	t.Run("many at once", func(t *testing.T) {
		var seen sync.Map
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					for _, id := range d.add(t, client, "many", "a\nb\n") {
						if _, twice := seen.LoadOrStore(id, true); twice {
							t.Errorf("%s was given twice", id)
						}
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestPayloadReachesHandlerUnchanged: a payload with any bytes except newlines reaches the handler
// unchanged.
func TestPayloadReachesHandlerUnchanged(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	d.addHandler(t, client, "raw", "sh", `cat >"$TMPDIR/in"; printf 'R: 200 '; od -An -v -tx1 "$TMPDIR/in" | tr -d ' \n'; echo`)
	for name, payload := range map[string]string{
		"text":          "hello world",
		"bars":          "a|b||c|",
		"NUL":           "a\x00b\x00",
		"CR":            "line\r",
		"no UTF-8":      "\xff\xfe\x80",
		"umlauts":       "äöü€\U0001F600",
		"blanks":        "  \t x  ",
		"quotes":        `"'$(echo x)` + "`id`",
		"a J: line":     "J: raw|x",
		"a # line":      "# nothing",
		"a journal row": "1m8187qcq-6jne19-00000|a-b|x",
	} {
		t.Run(name, func(t *testing.T) {
			id := d.addOne(t, client, "raw", payload)
			if got, want := d.awaitEnd(t, client, id, "ok"), fmt.Sprintf("%x0a", payload); got != want {
				t.Errorf("the handler got %s, want %s", got, want)
			}
		})
	}
}

// TestBadAdds: all lines are accepted, or none.
func TestBadAdds(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	add := "/" + client + "/job/a/add"
	for _, c := range []struct {
		name         string
		status       int
		code         string
		method, path string
		body         string
		words        []string
	}{
		{"a client with a hyphen", 400, "invalid_client", "POST", "/a-b/job/x/add", "x", []string{"a-b"}},
		{"a client too long", 400, "invalid_client", "POST", "/" + strings.Repeat("c", 65) + "/job/x/add", "x", []string{"64"}},
		{"a client that begins with a dot", 400, "invalid_client", "POST", "/.a/job/x/add", "x", nil},
		{"a type with a comma", 400, "invalid_type", "POST", "/" + client + "/job/a,b/add", "x", []string{"a,b"}},
		{"a type with a bar", 400, "invalid_type", "POST", "/" + client + "/job/a%7Cb/add", "x", nil},
		{"a type with a newline", 400, "invalid_type", "POST", "/" + client + "/job/a%0Ab/add", "x", nil},
		{"a type too long", 400, "invalid_type", "POST", "/" + client + "/job/" + strings.Repeat("t", 129) + "/add", "x", []string{"128"}},
		{"a type that begins with a hyphen", 400, "invalid_type", "POST", "/" + client + "/job/-a/add", "x", nil},
		{"no jobtype", 400, "missing_field", "POST", "/add?client=" + client, "x", []string{"jobtype"}},
		{"an empty jobtype", 400, "", "POST", "/add?jobtype=&client=" + client, "x", nil},
		{"a line too long", 413, "too_large", "POST", add, "x\n" + strings.Repeat("y", 4097) + "\n", []string{"4096"}},
		{"a line too many", 413, "too_large", "POST", add, strings.Repeat("y\n", 1001), []string{"1000", "--max-lines"}},
		{"a body too large", 413, "too_large", "POST", add, strings.Repeat("y\n", 40000), []string{"65536"}},
		{"an unknown directive", 400, "invalid_batch", "POST", add, "x\n#:Frob\n", nil},
		{"a batch without its end", 400, "invalid_batch", "POST", add, "x\n#:Batch bytes=2\ny\n", nil},
		{"a batch with a wrong size", 400, "invalid_batch", "POST", add, "x\n#:Batch bytes=3\ny\n#:EndBatch\n", nil},
		{"a batch beyond the body", 400, "invalid_batch", "POST", add, "#:Batch bytes=99999999999\ny\n#:EndBatch\n", nil},
		{"a batch without bytes", 400, "invalid_batch", "POST", add, "#:Batch jobtype=a\ny\n#:EndBatch\n", nil},
		{"an end alone", 400, "invalid_batch", "POST", add, "#:EndBatch\n", nil},
		{"another client's batch", 403, "forbidden", "POST", add, "#:Batch bytes=2,jobtype=other-b\ny\n#:EndBatch\n", []string{"other"}},
		{"a bad delay", 400, "invalid_value", "POST", add + "?delay=soon", "x", []string{"soon"}},
		{"a negative delay", 400, "invalid_value", "POST", add + "?delay=-5s", "x", nil},
		{"a delay of eleven years", 400, "invalid_value", "POST", add + "?delay=4015d", "x", nil},
		{"a bad dt", 400, "invalid_value", "POST", add + "?dt=tomorrow", "x", []string{"tomorrow"}},
		{"a dt beyond ten years", 400, "invalid_value", "POST", add + "?dt=2999-01-01T00:00:00Z", "x", nil},
		{"a bad wait", 400, "invalid_value", "POST", add + "?wait=forever", "x", []string{"forever"}},
		{"a wrong verb", 405, "method_not_allowed", "PUT", add, "x", nil},
		{"an unknown path", 404, "not_found", "POST", "/" + client + "/jobs/a/b/c", "x", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.code == "" {
				if r := d.ask(t, c.method, c.path, c.body); r.status != c.status {
					t.Errorf("%s, want %d", r, c.status)
				}
				return
			}
			d.expectError(t, c.status, c.code, c.method, c.path, c.body, c.words...)
		})
	}
	if k := d.counts(t, client, "a"); k != nil {
		t.Errorf("something was added: %v", k)
	}
	t.Run("Allow", func(t *testing.T) {
		if r := d.ask(t, "PUT", add, ""); !strings.Contains(r.header.Get("Allow"), "POST") {
			t.Errorf("Allow: %q", r.header.Get("Allow"))
		}
	})
}

// TestDelayedJobWaits: a job waits until its time.
func TestDelayedJobWaits(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	d.addHandler(t, client, "d", "sh", `exit 0`)
	dueTime := time.Now().Add(time.Hour).UTC()
	for _, c := range []struct{ name, query, state string }{
		{"in an hour", "?delay=1h", "deferred"},
		{"in milliseconds", "?delay=3600000", "deferred"},
		{"at a time", query("dt", dueTime.Format(time.RFC3339)), "deferred"},
		{"at milliseconds", query("dt", fmt.Sprint(dueTime.UnixMilli())), "deferred"},
		{"in the past", "?dt=2001-01-01T00:00:00Z", "ok"},
		{"none", "?delay=0", "ok"},
		{"soon", "?delay=250ms", "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := d.expect(t, 200, "POST", "/"+client+"/job/d/add"+c.query, "x")
			id := r.json["ids"].([]any)[0].(string)
			waitUntil(t, c.state, func() error {
				if g := d.job(t, client, id); g.text("state") != c.state {
					return fmt.Errorf("%s", g)
				}
				return nil
			})
		})
	}
	t.Run("wait=store", func(t *testing.T) {
		r := d.expect(t, 200, "POST", "/"+client+"/job/late/add?wait=store&delay=1h", "x\ny\n")
		if k := d.counts(t, client, "late"); k["deferred"] != 2.0 || r.json["stored"] == false {
			t.Errorf("%s, counts %v", r, k)
		}
	})
}
