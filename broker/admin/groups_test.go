package admin_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/settings"
)

// submitJobs submits jobs on a connection that stays open.
func submitJobs(w *world, jobs ...broker.Submission) {
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s := core.AddSubmitter()
		for i := range jobs {
			jobs[i].Body, jobs[i].NoAck = []byte("1"), true
			core.Submit(now, s, &jobs[i])
		}
		return nil
	})
}

func namesToBytes(list ...string) (out [][]byte) {
	for _, n := range list {
		out = append(out, []byte(n))
	}
	return out
}

// checkSame fails unless an answer has exactly these keys and values.
func checkSame(t *testing.T, name string, got, want map[string]any) {
	t.Helper()
	if !maps.EqualFunc(got, want, func(x, y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) }) {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}

// TestRulesAreSetAndRemoved: a rule is set as a whole, shown, and removed; a refused change leaves
// the rule as it was.
func TestRulesAreSetAndRemoved(t *testing.T) {
	w := start(t, nil)
	const path = "/v1/groups/tenant%2F%2A"
	w.call("GET", path, "", 404)
	w.call("DELETE", path, "", 404)
	first := map[string]any{"pattern": "tenant/*", "concurrency": 2, "rate": 5.5, "burst": 10, "persisted": false}
	checkSame(t, "created", w.call("PUT", path, `{"concurrency":2,"rate":5.5,"burst":10}`, 201), first)
	checkSame(t, "shown", w.call("GET", path, "", 200), first)
	for body, want := range map[string][]string{
		``:                           {"missing_field", "concurrency, rate and burst"},
		`{}`:                         {"missing_field", "concurrency"},
		`{"rate":null}`:              {"missing_field", "concurrency"},
		`[1]`:                        {"invalid_body", "[1]"},
		`{"concurency":1}`:           {"invalid_body", "concurency"},
		`{"concurrency":-1}`:         {"invalid_value", "concurrency", "-1", "1000000000"},
		`{"concurrency":1000000001}`: {"invalid_value", "1000000001"},
		`{"concurrency":"1"}`:        {"invalid_type", "concurrency", `"1"`},
		`{"concurrency":1.0}`:        {"invalid_type", "1.0"},
		`{"rate":0}`:                 {"invalid_value", "rate", "above 0"},
		`{"rate":-0.5}`:              {"invalid_value", "-0.5"},
		`{"rate":1000000000.5}`:      {"invalid_value", "1000000000.5"},
		`{"rate":true}`:              {"invalid_type", "true"},
		`{"burst":5}`:                {"invalid_value", "burst", "rate"},
		`{"rate":1,"burst":0}`:       {"invalid_value", "burst", "0"},
		`{"rate":1,"burst":1000001}`: {"invalid_value", "1000001"},
	} {
		e := w.call("PUT", path, body, 400)
		for _, s := range want {
			if !strings.Contains(fmt.Sprint(e), s) {
				t.Errorf("%s: %v does not say %q", body, e, s)
			}
		}
	}
	checkSame(t, "after what was refused", w.call("GET", path, "", 200), first)
	second := map[string]any{"pattern": "tenant/*", "concurrency": 0, "persisted": false}
	checkSame(t, "replaced", w.call("PUT", path, `{"concurrency":0,"rate":null}`, 200), second)
	groups := w.call("GET", "/v1/groups", "", 200)
	if rules := groups["rules"].([]any); len(rules) != 1 || len(groups["groups"].([]any)) != 0 {
		t.Errorf("all: %v", groups)
	} else {
		checkSame(t, "listed", rules[0].(map[string]any), second)
	}
	checkSame(t, "dropped", w.call("DELETE", path, "", 200), second)
	w.call("GET", path, "", 404)
	w.call("PUT", "/v1/groups/"+strings.Repeat("x", 1025), `{"rate":1}`, 400)
	for _, limit := range []string{"0", "-1", "x", "1.5"} {
		w.call("GET", "/v1/groups?limit="+limit, "", 400)
	}
	w.call("GET", "/v1/groups?limit=99999999999999999999", "", 200)
}

// TestBusiestGroupsAreListed: the answer lists the busiest groups, and a job shows which group
// holds it back.
func TestBusiestGroupsAreListed(t *testing.T) {
	w := start(t, nil)
	w.call("PUT", "/v1/groups/h%2A", `{"concurrency":0}`, 201)
	submitJobs(w,
		broker.Submission{ID: []byte("held"), Type: []byte("t"), Groups: namesToBytes("a", "host")},
		broker.Submission{ID: []byte("free"), Type: []byte("t"), Groups: namesToBytes("a")},
		broker.Submission{ID: []byte("later"), Type: []byte("u"), Groups: namesToBytes("a", "b"), Delay: time.Hour},
	)
	for limit, want := range map[int]int{1: 1, 2: 2, 3: 3, 100_000_000: 3} {
		if n := len(w.call("GET", fmt.Sprint("/v1/groups?limit=", limit), "", 200)["groups"].([]any)); n != want {
			t.Errorf("with a limit of %d %d groups are listed", limit, n)
		}
	}
	groupCount := w.call("GET", "/v1/groups", "", 200)["groups"].([]any)
	for i, want := range []map[string]any{
		{"group": "a", "waiting": 3, "running": 0, "held": 1},
		{"group": "b", "waiting": 1, "running": 0, "held": 0},
		{"group": "host", "waiting": 1, "running": 0, "held": 1, "rule": "h*"},
	} {
		checkSame(t, "group", groupCount[i].(map[string]any), want)
	}
	j := w.call("GET", "/v1/jobs/held", "", 200)
	if fmt.Sprint(j["groups"]) != "[a host]" || !strings.Contains(fmt.Sprint(j["holds"]), "host") {
		t.Errorf("the job held back: %v", j)
	}
	checkSame(t, "what holds it", j["held_by"].(map[string]any), map[string]any{"group": "host", "rule": "h*"})
	if j := w.call("GET", "/v1/jobs/free", "", 200); j["held_by"] != nil {
		t.Errorf("the job that is free: %v", j)
	}
	_, f := scrape(t, w)
	if groupCount, heldJobs := metricSum(f, "gloom_groups"), metricSum(f, "gloom_jobs_held_back", "type", "t"); groupCount != 3 || heldJobs != 1 {
		t.Errorf("%v groups and %v jobs held back are counted, want 3 and 1", groupCount, heldJobs)
	}

	if e := w.call("PATCH", "/v1/jobs/held", `{"groups":["c","d","c"]}`, 400); !strings.Contains(fmt.Sprint(e["reason"]), "c") {
		t.Errorf("a group named twice: %v", e)
	}
	w.call("PATCH", "/v1/jobs/held", `{"groups":["c"]}`, 200)
	if j := w.call("GET", "/v1/jobs/held", "", 200); fmt.Sprint(j["groups"]) != "[c]" || j["held_by"] != nil {
		t.Errorf("with another group: %v", j)
	}
	w.call("PATCH", "/v1/jobs/held", `{"groups":[]}`, 200)
	if j := w.call("GET", "/v1/jobs/held", "", 200); fmt.Sprint(j["groups"]) != "[]" {
		t.Errorf("with no group: %v", j)
	}
}

// TestGroupsOfTypeCountOnlyItsJobs: the groups of a type count only its own jobs, also in shared
// snapshots.
func TestGroupsOfTypeCountOnlyItsJobs(t *testing.T) {
	w := start(t, nil)
	w.call("PUT", "/v1/groups/host", `{"concurrency":0}`, 201)
	submitJobs(w,
		broker.Submission{ID: []byte("1"), Type: []byte("mail"), Groups: namesToBytes("acme", "host")},
		broker.Submission{ID: []byte("2"), Type: []byte("mail"), Groups: namesToBytes("acme")},
		broker.Submission{ID: []byte("3"), Type: []byte("report"), Groups: namesToBytes("acme"), Delay: time.Hour},
		broker.Submission{ID: []byte("4"), Type: []byte("plain")},
	)
	acme, host := map[string]any{"group": "acme", "waiting": 2, "running": 0, "held": 1}, map[string]any{"group": "host", "waiting": 1, "running": 0, "held": 1, "rule": "host"}
	for query, want := range map[string][]map[string]any{
		"type=mail":         {acme, host},
		"type=mail&limit=1": {acme},
		"type=report":       {{"group": "acme", "waiting": 1, "running": 0, "held": 0}},
		"type=plain":        nil,
		"type=nosuch":       nil,
		"limit=1":           {{"group": "acme", "waiting": 3, "running": 0, "held": 1}},
	} {
		for _, param := range []string{"", "&lately=false", "&lately=true"} {
			got := w.call("GET", "/v1/groups?"+query+param, "", 200)
			if rules, there := got["rules"].([]any); there != !strings.HasPrefix(query, "type") || there && len(rules) != 1 {
				t.Errorf("%s%s: the rules are %v", query, param, got["rules"])
			}
			groups := got["groups"].([]any)
			if len(groups) != len(want) {
				t.Errorf("%s%s: %v, want %v", query, param, groups, want)
				continue
			}
			for i := range want {
				checkSame(t, query+param, groups[i].(map[string]any), want[i])
			}
		}
	}
	for query, want := range map[string][]string{
		"lately=maybe":                      {"lately", "maybe"},
		"lately=true&limit=201":             {"limit", "200", "201"},
		"type=" + strings.Repeat("x", 1025): {"type", "1024"},
	} {
		e := w.call("GET", "/v1/groups?"+query, "", 400)
		for _, s := range want {
			if !strings.Contains(fmt.Sprint(e), s) {
				t.Errorf("%s: %v does not say %q", query, e, s)
			}
		}
	}
	w.call("GET", "/v1/groups?limit=201", "", 200)
}

// TestGroupRequestsShareSnapshot: requests for recent figures share one snapshot, which is not old;
// a new rule is shown at once.
func TestGroupRequestsShareSnapshot(t *testing.T) {
	w := start(t, nil)
	jobs := 0
	countWaiting := func(path string) (n float64) {
		for _, g := range w.call("GET", path, "", 200)["groups"].([]any) {
			n += g.(map[string]any)["waiting"].(float64)
		}
		return n
	}
	submit := func() {
		submitJobs(w, broker.Submission{ID: fmt.Append(nil, jobs), Type: []byte("t"), Groups: namesToBytes("g")})
		jobs++
	}
	submit()
	for _, path := range []string{"/v1/groups", "/v1/groups?type=t"} {
		recentPath := path + map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "lately=true"
		eventually(t, recentPath+" is answered twice from one look", func() bool {
			before := countWaiting(recentPath)
			submit()
			if count := countWaiting(path); count != float64(jobs) {
				t.Fatalf("%s shows %v jobs of %d", path, count, jobs)
			}
			return countWaiting(recentPath) == before
		})
		eventually(t, recentPath+" shows all jobs", func() bool { return countWaiting(recentPath) == float64(jobs) })
	}
	for i := range 5 {
		w.call("PUT", fmt.Sprint("/v1/groups/r", i), `{"concurrency":0}`, 201)
		if rules := w.call("GET", "/v1/groups?lately=true", "", 200)["rules"].([]any); len(rules) != i+1 {
			t.Errorf("of %d rules %d are shown", i+1, len(rules))
		}
	}
	w.call("DELETE", "/v1/groups/r0", "", 200)
	if rules := w.call("GET", "/v1/groups?lately=true", "", 200)["rules"].([]any); len(rules) != 4 {
		t.Errorf("of 4 rules %d are shown", len(rules))
	}
}

// TestOneGroupTooManyIsRefused: a change that needs one group too many is refused whole.
func TestOneGroupTooManyIsRefused(t *testing.T) {
	w := start(t, func(o *settings.Options) { o.MaxGroups = 2 })
	submitJobs(w, broker.Submission{ID: []byte("x"), Type: []byte("t"), Groups: namesToBytes("a", "b")})
	if e := w.call("PATCH", "/v1/jobs/x", `{"priority":5,"groups":["a","b","c"]}`, 503); e["error"] != "overloaded" || !strings.Contains(fmt.Sprint(e["reason"]), "max-groups") {
		t.Errorf("a group too many: %v", e)
	}
	if j := w.call("GET", "/v1/jobs/x", "", 200); j["priority"] != 0.0 || fmt.Sprint(j["groups"]) != "[a b]" {
		t.Errorf("after it: %v", j)
	}
	w.call("PATCH", "/v1/jobs/x", `{"groups":["a","c"]}`, 200) // b ends, so there is room for c
}

// TestUnknownTypesCanBeConfigured: fairness and bursts can be set for types whether they exist or not.
func TestUnknownTypesCanBeConfigured(t *testing.T) {
	w := start(t, nil)
	if x := w.call("PUT", "/v1/types/new", `{"fair":true}`, 200); x["fair"] != true {
		t.Errorf("fair: %v", x)
	}
	for body, want := range map[string]string{``: "fair", `{"fair":null}`: "fair", `{"fair":1}`: "1", `{"unfair":true}`: "unfair"} {
		if e := w.call("PUT", "/v1/types/new", body, 400); !strings.Contains(fmt.Sprint(e["reason"]), want) {
			t.Errorf("%s: %v", body, e)
		}
	}
	if x := w.call("PUT", "/v1/types/new/limits", `{"rate":2.5,"burst":7}`, 200); fmt.Sprint(x["limits"]) != "map[burst:7 concurrency:0 rate:2.5]" || x["fair"] != true {
		t.Errorf("limits: %v", x)
	}
	for _, body := range []string{`{"burst":7}`, `{"rate":1,"burst":-1}`, `{"rate":1,"burst":1000001}`, `{"rate":1,"burst":"7"}`} {
		if e := w.call("PUT", "/v1/types/new/limits", body, 400); !strings.Contains(fmt.Sprint(e["reason"]), "burst") {
			t.Errorf("%s: %v", body, e)
		}
	}
	if x := w.call("GET", "/v1/types/new", "", 200); fmt.Sprint(x["limits"]) != "map[burst:7 concurrency:0 rate:2.5]" {
		t.Errorf("after what was refused: %v", x)
	}
}

// TestOperatorsOverrideFile: operators override the file: a rule until they remove theirs; a type's
// fairness and its limits each on their own, until the process ends.
func TestOperatorsOverrideFile(t *testing.T) {
	file := func(concurrency int64, types map[string]settings.TypeSettings) settings.FileLimits {
		return settings.FileLimits{Groups: map[string]broker.Rule{"a": {Concurrency: concurrency}, "b": {Concurrency: 7}}, Types: types}
	}
	w := start(t, func(o *settings.Options) {
		o.Limits = file(1, map[string]settings.TypeSettings{"t": {Fair: true, Limits: broker.TypeLimits{Concurrency: 3}}})
	})
	rule := func(name string, concurrency int, persisted bool) {
		t.Helper()
		checkSame(t, name, w.call("GET", "/v1/groups/"+name, "", 200), map[string]any{"pattern": name, "concurrency": concurrency, "persisted": persisted})
	}
	typ := func(fair bool, concurrency float64) {
		t.Helper()
		if x := w.call("GET", "/v1/types/t", "", 200); x["fair"] != fair || x["limits"].(map[string]any)["concurrency"] != concurrency {
			t.Errorf("the type is %v, want fair %v, concurrency %v", x, fair, concurrency)
		}
	}
	load := func(f settings.FileLimits) {
		t.Helper()
		if err := w.srv.Limits().Load(f); err != nil {
			t.Fatal(err)
		}
	}
	rule("a", 1, true)
	typ(true, 3)
	w.call("DELETE", "/v1/groups/a", "", 409)

	checkSame(t, "set", w.call("PUT", "/v1/groups/a", `{"concurrency":5}`, 200), map[string]any{"pattern": "a", "concurrency": 5, "persisted": false})
	w.call("PUT", "/v1/types/t/limits", `{"concurrency":9}`, 200)
	load(file(2, map[string]settings.TypeSettings{"t": {Limits: broker.TypeLimits{Concurrency: 4}}}))
	rule("a", 5, false)
	rule("b", 7, true)
	typ(false, 9) // the file's fairness applies, its limits do not

	w.call("DELETE", "/v1/groups/a", "", 200)
	rule("a", 2, true)
	load(settings.FileLimits{})
	w.call("GET", "/v1/groups/a", "", 404)
	w.call("GET", "/v1/groups/b", "", 404)
	typ(false, 9)

	// Invalid input changes nothing.
	w.call("PUT", "/v1/types/t", `{"fair":true}`, 200)
	badFile := file(3, nil)
	badFile.Groups["c"] = broker.Rule{Concurrency: -5}
	badFile.Types = map[string]settings.TypeSettings{"new": {Fair: true}}
	if err := w.srv.Limits().Load(badFile); err == nil {
		t.Error("a rule that cannot be is loaded")
	}
	for _, name := range []string{"a", "b", "c"} {
		w.call("GET", "/v1/groups/"+name, "", 404)
	}
	w.call("GET", "/v1/types/new", "", 404)
	typ(true, 9)
}
