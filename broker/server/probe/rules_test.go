package probe

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// setRule sets the rule of a pattern of groups.
func (d *daemon) setRule(t tb, pattern, limits string) string {
	t.Helper()
	return d.callHTTP(t, "PUT", "/v1/groups/"+url.PathEscape(pattern), limits, 200)
}

func (d *daemon) dropRule(t tb, pattern string) {
	t.Helper()
	d.callHTTP(t, "DELETE", "/v1/groups/"+url.PathEscape(pattern), "", 200)
}

// checkRule reads a rule over HTTP and checks it; -1 stands for null or an absent key.
func (d *daemon) checkRule(t tb, pattern string, concurrency, rate, burst float64) {
	t.Helper()
	var rule map[string]any
	text := d.callHTTP(t, "GET", "/v1/groups/"+url.PathEscape(pattern), "", 200)
	if err := json.Unmarshal([]byte(text), &rule); err != nil {
		t.Fatalf("GET rule %q: %v: %s", pattern, err, text)
	}
	for key, want := range map[string]float64{"concurrency": concurrency, "rate": rate, "burst": burst} {
		if got, value := rule[key].(float64); want < 0 && value || want >= 0 && (!value || got != want) {
			t.Errorf("rule %q: %s is %v, want %v (-1: not said)", pattern, key, rule[key], want)
		}
	}
}

func TestRulesAreSetAndDropped(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("set, told, replaced whole, dropped", func(t *testing.T) {
		p := freshName("rule") + "-*"
		if text := b.setRule(t, p, `{"concurrency":2,"rate":5.5,"burst":10}`); !strings.Contains(strings.ReplaceAll(text, " ", ""), `"persisted":false`) {
			t.Errorf("PUT says %s, want persisted false", text)
		}
		b.checkRule(t, p, 2, 5.5, 10)
		b.setRule(t, p, `{"rate":1000000000}`)
		b.checkRule(t, p, -1, 1e9, -1)
		b.setRule(t, p, `{"concurrency":0,"rate":null,"burst":null}`)
		b.checkRule(t, p, 0, -1, -1)
		b.setRule(t, p, `{"concurrency":1000000000,"rate":0.000001,"burst":1000000}`)
		b.dropRule(t, p)
		b.callHTTP(t, "GET", "/v1/groups/"+url.PathEscape(p), "", 404)
		b.callHTTP(t, "DELETE", "/v1/groups/"+url.PathEscape(p), "", 404)
	})
	t.Run("names that need escaping", func(t *testing.T) {
		base := freshName("rule")
		for _, p := range []string{base + "/a/*", base + " é😀", base + "?x=1#y%25", base + "/../z", "*" + base, base + "%2F", base + "+", base + `"q"`, base + "//"} {
			b.setRule(t, p, `{"concurrency":7}`)
			b.checkRule(t, p, 7, -1, -1)
			found := false
			for _, r := range b.listGroups(t, "").Rules {
				found = found || r["pattern"] == p
			}
			if !found {
				t.Errorf("%q is not among the rules", p)
			}
			b.dropRule(t, p)
		}
	})
	t.Run("refused, and the old rule stays", func(t *testing.T) {
		p := freshName("rule")
		path := "/v1/groups/" + p
		b.setRule(t, p, `{"concurrency":2}`)
		for _, c := range []struct{ body, names string }{
			{``, ""}, {`{}`, ""}, {`{"concurrency":null}`, ""}, {`[]`, ""}, {`null`, ""}, {`7`, ""}, {`{"concurrency":`, ""}, {`{"concurrency":3} {}`, ""},
			{`{"concurrency":3,"colour":"red"}`, "colour"}, {`{"Concurrency":3}`, "Concurrency"},
			{`{"concurrency":-1}`, "concurrency -1"}, {`{"concurrency":1000000001}`, "concurrency 1000000001"}, {`{"concurrency":1.5}`, "concurrency 1.5"},
			{`{"concurrency":"3"}`, "concurrency"}, {`{"concurrency":true}`, "concurrency"}, {`{"concurrency":99999999999999999999}`, "concurrency"},
			{`{"rate":0}`, "rate 0"}, {`{"rate":-1}`, "rate -1"}, {`{"rate":1000000001}`, "rate 1000000001"}, {`{"rate":1e400}`, "rate"}, {`{"rate":"5"}`, "rate"},
			{`{"rate":5,"burst":0}`, "burst 0"}, {`{"rate":5,"burst":1000001}`, "burst 1000001"}, {`{"rate":5,"burst":1.5}`, "burst 1.5"}, {`{"rate":5,"burst":"1"}`, "burst"},
			{`{"burst":5}`, "burst rate"}, {`{"concurrency":1,"burst":5}`, "burst rate"}, {`{"concurrency":1,"rate":null,"burst":5}`, "burst rate"},
		} {
			body := strings.ReplaceAll(b.callHTTP(t, "PUT", path, c.body, 400), ",", "")
			for _, part := range strings.Fields(c.names) {
				if !strings.Contains(body, part) {
					t.Errorf("PUT %s: %s does not name %q", c.body, body, part)
				}
			}
			b.checkRule(t, p, 2, -1, -1)
		}
	})
	t.Run("a pattern that is none", func(t *testing.T) {
		b.callHTTP(t, "PUT", "/v1/groups/"+strings.Repeat("p", 1025), `{"concurrency":1}`, 400)
		b.setRule(t, strings.Repeat("p", 1024), `{"concurrency":1}`)
		b.dropRule(t, strings.Repeat("p", 1024))
		b.callHTTP(t, "PUT", "/v1/groups/%ff", `{"concurrency":1}`, 400)
	})
	t.Run("the busiest first, and limit", func(t *testing.T) {
		b := start(t)
		s, w := b.submitter(t), b.workerWithRoom(t, "t")
		for i := range 120 {
			for range 1 + i%7 {
				s.submitFreshWith("t", `1`, groupsField(fmt.Sprintf("g-%d", i)))
			}
		}
		w.nextJob()
		s.submitFreshWith("u", `1`, groupsField("most"))
		for range 20 {
			s.submitFreshWith("u", `1`, groupsField("most")+`,"delay_ms":60000`)
		}
		for query, want := range map[string]int{"": 100, "?limit=1": 1, "?limit=7": 7, "?limit=121": 121, "?limit=5000": 121} {
			l := b.listGroups(t, query)
			if len(l.Groups) != want {
				t.Errorf("%q: %d groups, want %d", query, len(l.Groups), want)
				continue
			}
			if g := l.Groups[0]; g != (groupInfo{"most", 21, 0, 0}) {
				t.Errorf("%q: first is %+v", query, g)
			}
			for i := 1; i < len(l.Groups); i++ {
				if a, b := l.Groups[i-1], l.Groups[i]; a.Waiting+a.Running < b.Waiting+b.Running {
					t.Errorf("%q: %+v before %+v", query, a, b)
				}
			}
		}
		for _, value := range []string{"0", "-1", "x", "1.5", "1e3", "-99999999999999999999999"} {
			if status, body, err := b.get("/v1/groups?limit=" + value); err != nil || status != 400 {
				t.Errorf("limit=%s: status %d, %v, %.200s", value, status, err, body)
			}
		}
	})
	t.Run("hostile patterns cost next to nothing", func(t *testing.T) {
		b := start(t)
		for i := range 50 {
			b.setRule(t, strings.Repeat("*a", 500)+fmt.Sprintf("*-%d", i), `{"concurrency":5}`)
		}
		s := b.submitter(t)
		begin := time.Now()
		for i := range 50 {
			s.submitFreshWith("t", `1`, groupsField(strings.Repeat("a", 1000)+fmt.Sprint(i)))
		}
		checkSoonAfter(t, begin, 0, "submitted under hostile patterns")
	})
	t.Run("with tokens", func(t *testing.T) {
		b := start(t, "--token-file="+tokenFile(t, tokenLines))
		for token, want := range map[string]int{"": 401, "wrong": 401, "sub-1": 403, "admin-1": 200} {
			for _, c := range [][2]string{{"PUT", "/v1/groups/g"}, {"GET", "/v1/groups/g"}, {"GET", "/v1/groups"}, {"PUT", "/v1/types/t"}} {
				body := ""
				if c[0] == "PUT" {
					body = map[bool]string{true: `{"concurrency":1}`, false: `{"fair":true}`}[c[1] == "/v1/groups/g"]
				}
				if status, body, err := b.requestWith(c[0], c[1], token, body); err != nil || status != want && !(want == 200 && status == 201) {
					t.Errorf("%s %s with %q: %d %s %v, want %d", c[0], c[1], token, status, body, err, want)
				}
			}
		}
	})
}

func TestGroupsAreLimited(t *testing.T) {
	t.Parallel()
	b := start(t, "--max-groups=3")
	s, w := b.submitter(t), b.worker(t)
	first := s.submitFreshWith("t", `1`, groupsField("a", "b"))
	s.submitFreshWith("t", `1`, groupsField("c")+`,"delay_ms":60000`)
	expectRefusal := func(fields string) {
		t.Helper()
		id := freshName("group")
		s.sendSubmit(id, "t", `1`, fields)
		wantOverloaded(t, s, id, "max-groups")
		s.sendSubmit(id, "t", `1`, `,"ack":false`+fields)
		wantOverloaded(t, s, id, "max-groups")
		if got := b.jobState(t, id); got != "" {
			t.Errorf("a refused job is %q", got)
		}
	}
	expectRefusal(groupsField("d"))
	expectRefusal(groupsField("a", "d", "b"))
	known := s.submitFreshWith("t", `1`, groupsField("c", "a", "b"))
	s.submitFresh("t", `1`) // a job without groups is not subject to the limit
	s.cancel(known)

	f := s.changeFails("overloaded", first, `"priority":9,"groups":["a","x","y"]`)
	checkReason(t, f, "max-groups")
	if job := b.jobInfo(t, first); job["priority"] != 0.0 || fmt.Sprint(job["groups"]) != "[a b]" {
		t.Errorf("a refused change changed %v", job)
	}
	b.callHTTP(t, "PATCH", "/v1/jobs/"+first, `{"priority":9,"groups":["a","x","y"]}`, 503)
	s.change(first, `"groups":["x","y"]`) // the groups that only this job had give way to the new ones
	expectRefusal(groupsField("a"))
	w.join("t")
	w.wantJob(first)
	w.respond(`1`)
	s.wantResult(first, `1`)
	s.submitFreshWith("t", `1`, groupsField("a", "b")) // the old groups were forgotten with their last job
}
