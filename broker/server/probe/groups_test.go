package probe

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// groupInfo is a group in the answer of GET /v1/groups.
type groupInfo struct {
	Group                  string
	Waiting, Running, Held int
}

// groupList is the answer of GET /v1/groups.
type groupList struct {
	Rules  []map[string]any
	Groups []groupInfo
}

func (d *daemon) listGroups(t tb, query string) (l groupList) {
	t.Helper()
	text := d.callHTTP(t, "GET", "/v1/groups"+query, "", 200)
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatalf("GET groups: %v: %s", err, text)
	}
	return l
}

// checkGroup checks the counts of a group. If all are zero, the group must not be listed.
func (d *daemon) checkGroup(t tb, group string, waiting, running, held int) {
	t.Helper()
	got, want := groupInfo{Group: group}, groupInfo{group, waiting, running, held}
	for _, g := range d.listGroups(t, "?limit=1000000").Groups {
		if g.Group == group {
			got = g
			if g.Waiting+g.Running == 0 {
				t.Errorf("a group without jobs is listed: %+v", g)
			}
		}
	}
	if got != want {
		t.Errorf("groups tell %+v, want %+v", got, want)
	}
}

func groupsField(groups ...string) string { return `,"groups":` + jsonList(groups...) }

// workerWithRoom returns a worker with room for a hundred jobs.
func (d *daemon) workerWithRoom(t tb, typ string) worker {
	t.Helper()
	return d.workerWithPrefetch(t, typ, "100")
}

func TestGroupRulesHoldJobsBack(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("without a rule they change nothing", func(t *testing.T) {
		typ := freshName("group")
		s := b.submitter(t)
		first, second, third := s.submitFreshWith(typ, `1`, groupsField("a", "b")), s.submitFresh(typ, `1`), s.submitFreshWith(typ, `1`, groupsField("a"))
		b.checkOrder(t, typ, first, second, third)
	})
	t.Run("sixteen, and null", func(t *testing.T) {
		s := b.submitter(t)
		var names []string
		for i := range 16 {
			names = append(names, fmt.Sprintf("g%d", i))
		}
		s.submitFreshWith(freshName("group"), `1`, groupsField(names...))
		s.submitFreshWith(freshName("group"), `1`, `,"groups":null`)
		s.submitFreshWith(freshName("group"), `1`, groupsField(strings.Repeat("g", 1024), "é😀\n*"))
	})
	t.Run("concurrency, each group for itself", func(t *testing.T) {
		p, typ := freshName("group"), freshName("group")
		b.setRule(t, p+"-*", `{"concurrency":2}`)
		s := b.submitter(t)
		var a []string
		for range 4 {
			a = append(a, s.submitFreshWith(typ, `1`, groupsField(p+"-a")))
		}
		otherID := s.submitFreshWith(typ, `1`, groupsField(p+"-b"))
		freeID := s.submitFresh(typ, `1`)
		w := b.workerWithRoom(t, typ)
		for _, id := range []string{a[0], a[1], otherID, freeID} { // a job that is held back holds no other back
			w.wantJob(id)
		}
		w.wantQuiet()
		b.checkGroup(t, p+"-a", 2, 2, 2)
		b.checkGroup(t, p+"-b", 0, 1, 0)
		w.respondTo(a[1], `1`)
		w.wantJob(a[2])
		w.send(`{"action":"fail","id":%q,"retry":false}`, a[0])
		w.wantOK()
		w.wantJob(a[3])
		for _, id := range []string{a[2], a[3], otherID, freeID} {
			w.respondTo(id, `1`)
		}
		b.checkGroup(t, p+"-a", 0, 0, 0)
	})
	t.Run("across types", func(t *testing.T) {
		g, type1, type2 := freshName("group"), freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		s, w, other := b.submitter(t), b.servingWorker(t, type1), b.servingWorker(t, type2)
		id := s.submitFreshWith(type1, `1`, groupsField(g))
		w.wantJob(id)
		next := s.submitFreshWith(type2, `1`, groupsField(g))
		other.wantQuiet()
		w.respond(`1`)
		other.wantJob(next)
	})
	t.Run("all groups of a job, or none", func(t *testing.T) {
		g, h, typ := freshName("group"), freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		b.setRule(t, h, `{"concurrency":1}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		first := s.submitFreshWith(typ, `1`, groupsField(g))
		w.wantJob(first)
		bothID := s.submitFreshWith(typ, `1`, groupsField(h, g)) // waits for g, and takes up no place in h
		second := s.submitFreshWith(typ, `1`, groupsField(h))
		w.wantJob(second)
		w.respondTo(first, `1`)
		w.wantQuiet()
		b.checkGroup(t, h, 1, 1, 1)
		b.checkGroup(t, g, 1, 0, 1) // a rule of any of its groups holds it back
		w.respondTo(second, `1`)
		w.wantJob(bothID)
	})
	t.Run("all rules that fit", func(t *testing.T) {
		p, typ := freshName("group"), freshName("group")
		b.setRule(t, p+"*", `{"concurrency":3}`)
		b.setRule(t, "*"+p+"-a", `{"concurrency":1}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		w.wantJob(s.submitFreshWith(typ, `1`, groupsField(p+"-a")))
		s.submitFreshWith(typ, `1`, groupsField(p+"-a"))
		for range 3 {
			w.wantJob(s.submitFreshWith(typ, `1`, groupsField(p+"-b")))
		}
		s.submitFreshWith(typ, `1`, groupsField(p+"-b"))
		w.wantQuiet()
	})
	t.Run("with the limit of the type", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		b.limitType(t, typ, `{"concurrency":2}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		first, second := s.submitFreshWith(typ, `1`, groupsField(g)), s.submitFreshWith(typ, `1`, groupsField(g))
		third, fourth := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		w.wantJob(first)
		w.wantJob(third)
		w.wantQuiet()
		w.respondTo(third, `1`)
		w.wantJob(fourth) // the type has room again; the second job still waits for its group
		w.respondTo(first, `1`)
		w.wantJob(second)
	})
	t.Run("concurrency 0 holds all", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":0}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		heldID := s.submitFreshWith(typ, `1`, groupsField(g))
		w.wantJob(s.submitFresh(typ, `1`))
		w.wantQuiet()
		b.setRule(t, g, `{"concurrency":1}`)
		w.wantJob(heldID)
	})
	t.Run("a changed rule counts at once, nothing is stopped", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":3}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		var ids []string
		for range 6 {
			ids = append(ids, s.submitFreshWith(typ, `1`, groupsField(g)))
		}
		for _, id := range ids[:3] {
			w.wantJob(id)
		}
		b.setRule(t, g, `{"concurrency":1}`)
		b.checkGroup(t, g, 3, 3, 3)
		w.respondTo(ids[0], `1`)
		w.respondTo(ids[1], `1`)
		w.wantQuiet()
		w.respondTo(ids[2], `1`)
		w.wantJob(ids[3])
		b.setRule(t, g, `{"concurrency":2}`)
		w.wantJob(ids[4])
		b.dropRule(t, g)
		w.wantJob(ids[5])
	})
	t.Run("a rule for what waits already", func(t *testing.T) {
		p, typ := freshName("group"), freshName("group")
		s := b.submitter(t)
		first, second := s.submitFreshWith(typ, `1`, groupsField(p+"-x")), s.submitFreshWith(typ, `1`, groupsField(p+"-x"))
		b.setRule(t, p+"-*", `{"concurrency":1}`)
		w := b.workerWithRoom(t, typ)
		w.wantJob(first)
		w.wantQuiet()
		w.respondTo(first, `1`)
		w.wantJob(second)
	})
	t.Run("groups by value, and only whole", func(t *testing.T) {
		p, typ := freshName("group"), freshName("group")
		b.setRule(t, p+"é", `{"concurrency":0}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		s.submitFreshWith(typ, `1`, `,"groups":["`+p+`\u00e9"]`)
		w.wantQuiet()
		w.wantJob(s.submitFreshWith(typ, `1`, groupsField(p)))
		w.wantJob(s.submitFreshWith(typ, `1`, groupsField(p+"éé")))
	})
	t.Run("rate and burst", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"rate":0.001,"burst":3}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		var ids []string
		for range 5 {
			ids = append(ids, s.submitFreshWith(typ, `1`, groupsField(g)))
		}
		for _, id := range ids[:3] { // a new bucket has all its tokens
			w.wantJob(id)
		}
		w.wantQuiet()
		b.checkGroup(t, g, 2, 3, 2)
		w.respondTo(ids[0], `1`) // the answer returns no token
		w.wantQuiet()
		b.setRule(t, g, `{"rate":0.001,"burst":100}`) // the new rate begins with the tokens that are left
		w.wantQuiet()
		b.setRule(t, g, `{"concurrency":100}`)
		w.wantJob(ids[3])
		w.wantJob(ids[4])
	})
	t.Run("the default burst is the rate, at least 1", func(t *testing.T) {
		p, typ := freshName("group"), freshName("group")
		b.setRule(t, p+"-slow", `{"rate":0.001}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		w.wantJob(s.submitFreshWith(typ, `1`, groupsField(p+"-slow")))
		s.submitFreshWith(typ, `1`, groupsField(p+"-slow"))
		w.wantQuiet()
	})
	t.Run("a rate paces", func(t *testing.T) {
		t.Parallel()
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"rate":10,"burst":1}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		begin := time.Now()
		for range 5 {
			s.submitFreshWith(typ, `1`, groupsField(g))
		}
		for range 5 {
			w.nextJob()
		}
		checkNotBefore(t, begin, 395*ms, "five at ten a second")
		checkSoonAfter(t, begin, 400*ms, "five at ten a second")
	})
	t.Run("release gives back place and token, fail does not", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"rate":0.001,"burst":1,"concurrency":1}`)
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, groupsField(g))
		for range 5 {
			w.wantJob(id)
			w.release("")
		}
		w.wantJob(id)
		w.release(`,"delay_ms":60000`)
		next := s.submitFreshWith(typ, `1`, groupsField(g))
		w.wantJob(next)
		w.fail("")
		w.wantQuiet()
	})
	t.Run("an unwanted run holds its place to its end", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		id := s.submitFreshWith(typ, `1`, groupsField(g))
		w.wantJob(id)
		s.cancel(id)
		next := s.submitFreshWith(typ, `1`, groupsField(g))
		w.wantQuiet()
		w.respondTo(id, `1`)
		w.wantJob(next)
	})
	t.Run("an overdue one has given it back", func(t *testing.T) {
		t.Parallel()
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		s, w, other := b.submitter(t), b.worker(t), b.worker(t)
		w.join(typ)
		id := s.submitFreshWith(typ, `1`, groupsField(g)+`,"timeout_ms":3000,"retries":0`)
		w.wantJob(id)
		next := s.submitFreshWith(typ, `1`, groupsField(g))
		other.join(typ)
		other.wantQuiet()
		s.wantErrorFor("job_failed", id)
		other.wantJob(next)
	})
	t.Run("a retry that waits holds none", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, groupsField(g)+`,"backoff_ms":60000`)
		w.wantJob(id)
		next := s.submitFreshWith(typ, `1`, groupsField(g))
		w.fail("")
		w.wantJob(next)
		b.checkGroup(t, g, 1, 1, 0) // a delayed job is not held back
	})
	t.Run("a lost worker gives places back", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":2}`)
		s, w := b.submitter(t), b.workerWithRoom(t, typ)
		first, second, third := s.submitFreshWith(typ, `1`, groupsField(g)), s.submitFreshWith(typ, `1`, groupsField(g)), s.submitFreshWith(typ, `1`, groupsField(g))
		w.wantJob(first)
		w.wantJob(second)
		w.close()
		b.waitState(t, second, "queued") // if the broker met the next worker first, lost jobs would wait for 100 ms
		w = b.workerWithRoom(t, typ)
		w.wantJob(first)
		w.wantJob(second)
		w.respondTo(first, `1`)
		w.wantJob(third)
	})
	t.Run("held back, then cancelled, expired or left", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":0}`)
		s, latecomer, other := b.submitter(t), b.submitter(t), b.submitter(t)
		cancelledID, expiredID := s.submitFreshWith(typ, `1`, groupsField(g)), latecomer.submitFreshWith(typ, `1`, groupsField(g)+`,"expires_ms":50`)
		leftID := other.submitFreshWith(typ, `1`, groupsField(g))
		s.cancel(cancelledID)
		latecomer.wantErrorFor("expired", expiredID)
		other.close()
		b.waitState(t, leftID, "")
		b.checkGroup(t, g, 0, 0, 0)
	})
	t.Run("change into and out of a group that holds", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":0}`)
		s, w := b.submitter(t), b.worker(t)
		first, second := s.submitFreshWith(typ, `1`, groupsField(g)), s.submitFresh(typ, `1`)
		s.change(second, `"groups":`+jsonList(g))
		w.join(typ)
		w.wantQuiet()
		b.checkGroup(t, g, 2, 0, 2)
		s.change(first, `"groups":[]`)
		w.wantJob(first)
		w.respond(`1`)
		s.wantResult(first, `1`)
		b.callHTTP(t, "PATCH", "/v1/jobs/"+second, `{"groups":["elsewhere"]}`, 200)
		w.wantJob(second)
	})
	t.Run("explain names the group that holds", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":0}`)
		s := b.submitter(t)
		b.servingWorker(t, typ)
		job := b.jobInfo(t, s.submitFreshWith(typ, `1`, groupsField("free-"+g, g)))
		if holds, _ := job["holds"].(string); !strings.Contains(holds, g) {
			t.Errorf("holds %q does not name %q", holds, g)
		}
		if got := fmt.Sprint(job["groups"]); got != "[free-"+g+" "+g+"]" {
			t.Errorf("groups %s", got)
		}
	})
	t.Run("pause of the type is not held back", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":5}`)
		b.callHTTP(t, "POST", "/v1/types/"+typ+"/pause", "{}", 200)
		b.submitter(t).submitFreshWith(typ, `1`, groupsField(g)+`,"detach":true`)
		b.checkGroup(t, g, 1, 0, 0)
	})
	t.Run("priority among who may run", func(t *testing.T) {
		g, typ := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		s := b.submitter(t)
		lowID := s.submitFreshWith(typ, `1`, groupsField(g))
		highID := s.submitFreshWith(typ, `1`, groupsField(g)+`,"priority":5`)
		freeID := s.submitFreshWith(typ, `1`, `,"priority":1`)
		w := b.workerWithRoom(t, typ)
		w.wantJob(highID)
		w.wantJob(freeID)
		w.wantQuiet()
		w.respondTo(highID, `1`)
		w.wantJob(lowID)
	})
	t.Run("kept outcomes are in no group", func(t *testing.T) {
		g := freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		b.makeOutcome(t, freshName("group"), `1`, groupsField(g))
		b.checkGroup(t, g, 0, 0, 0)
		b.makeOutcome(t, freshName("group"), `1`, groupsField(g))
	})
	t.Run("through a pattern of types", func(t *testing.T) {
		g, p := freshName("group"), freshName("group")
		b.setRule(t, g, `{"concurrency":1}`)
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"*"), `,"prefetch":10`)
		first := s.submitFreshWith(p+"-a", `1`, groupsField(g))
		second := s.submitFreshWith(p+"-b", `1`, groupsField(g))
		third := s.submitFresh(p+"-c", `1`)
		w.wantJob(first)
		w.wantJob(third)
		w.respondTo(first, `1`)
		w.wantJob(second)
	})
	t.Run("never metric labels", func(t *testing.T) {
		g := freshName("label-of-a-group")
		b.submitter(t).submitFreshWith(freshName("group"), `1`, groupsField(g)+`,"detach":true`)
		if _, text, err := b.get("/metrics"); err != nil || strings.Contains(text, g) {
			t.Errorf("group in the metrics, or %v", err)
		}
	})
}

func TestInvalidGroupsAreRefused(t *testing.T) {
	t.Parallel()
	b := shared(t)
	s := b.submitter(t)
	seventeen := make([]string, 17)
	for i := range seventeen {
		seventeen[i] = fmt.Sprintf("g%d", i)
	}
	for _, c := range []struct{ groups, code, names string }{
		{`[]`, "invalid_value", "1"}, {`"g"`, "invalid_type", ""}, {`5`, "invalid_type", "5"}, {`{}`, "invalid_type", ""}, {`true`, "invalid_type", ""},
		{`[5]`, "invalid_type", "5"}, {`[null]`, "invalid_type", ""}, {`["a",["b"]]`, "invalid_type", ""}, {`[""]`, "invalid_type", ""},
		{`["\udc00"]`, "invalid_type", ""}, {`["` + strings.Repeat("g", 1025) + `"]`, "invalid_type|invalid_value", "1024"},
		{`["same","other","same"]`, "invalid_value", "same"}, {`["\u0061","a"]`, "invalid_value", "a"},
		{jsonList(seventeen...), "invalid_value", "16"},
	} {
		t.Run(fmt.Sprintf("%.60s", c.groups), func(t *testing.T) {
			s := submitter{&conn{t, s.net, s.in}}
			id := freshName("group")
			s.sendSubmit(id, "t", `1`, `,"groups":`+c.groups)
			checkReason(t, s.wantErrorFor(c.code, id), "groups", c.names)
			s.sendSubmit(id, "t", `1`, `,"ack":false,"groups":`+c.groups)
			s.wantErrorFor(c.code, id)
			s.submit(id, freshName("group"), `1`)
		})
	}
}
