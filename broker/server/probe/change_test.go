package probe

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// change changes a waiting job and reads the ok; keys are the keys to change, in JSON.
func (s submitter) change(id, keys string) {
	s.t.Helper()
	s.send(`{"action":"change","id":%s,%s}`, quote(id), keys)
	s.wantAck(id)
}

func (s submitter) changeFails(code, id, keys string) frame {
	s.t.Helper()
	s.send(`{"action":"change","id":%s,%s}`, quote(id), keys)
	return s.wantErrorFor(code, id)
}

// jobInfo returns the description of a job over HTTP.
func (d *daemon) jobInfo(t tb, id string) map[string]any {
	t.Helper()
	var job map[string]any
	body := d.callHTTP(t, "GET", "/v1/jobs/"+url.PathEscape(id), "", 200)
	if err := json.Unmarshal([]byte(body), &job); err != nil {
		t.Fatalf("GET job %q: %v: %s", id, err, body)
	}
	return job
}

// checkOrder joins a new worker, checks that it gets these jobs in this order, and answers them.
func (d *daemon) checkOrder(t tb, typ string, ids ...string) {
	t.Helper()
	w := d.servingWorker(t, typ)
	for _, id := range ids {
		w.wantJob(id)
		w.respond(`1`)
	}
	w.wantQuiet()
	w.retire()
}

func TestChangeTakesEffect(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("priority, up and down", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		first, second, third := s.submitFresh(typ, `1`), s.submitFresh(typ, `2`), s.submitFresh(typ, `3`)
		s.change(third, `"priority":5`)
		s.change(first, `"priority":-5`)
		b.checkOrder(t, typ, third, second, first)
	})
	t.Run("age stays", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		first, second, third := s.submitFresh(typ, `1`), s.submitFresh(typ, `2`), s.submitFreshWith(typ, `3`, `,"priority":5`)
		s.change(second, `"priority":5`)
		s.change(first, `"priority":5`)
		b.checkOrder(t, typ, first, second, third)
	})
	t.Run("priority of a delayed one", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		lateID := s.submitFreshWith(typ, `1`, `,"delay_ms":60000`)
		otherID := s.submitFresh(typ, `2`)
		s.change(lateID, `"priority":1`)
		if got := b.jobState(t, lateID); got != "delayed" {
			t.Errorf("state %q, want delayed", got)
		}
		s.change(lateID, `"delay_ms":0`)
		b.checkOrder(t, typ, lateID, otherID)
	})
	t.Run("what is not named stays", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":60000,"priority":7,"groups":["g-`+typ+`"]`)
		s.change(id, `"delay_ms":50000`)
		s.change(id, `"groups":null,"delay_ms":null,"priority":8`)
		if got := b.jobState(t, id); got != "delayed" {
			t.Errorf("state %q, want delayed", got)
		}
		s.change(id, `"delay_ms":0`)
		job := b.jobInfo(t, id)
		if job["priority"] != 8.0 || fmt.Sprint(job["groups"]) != "[g-"+typ+"]" {
			t.Errorf("priority and groups did not stay: %v", job)
		}
	})
	t.Run("groups replaced and emptied", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"groups":["a-`+typ+`","b-`+typ+`"]`)
		s.change(id, `"groups":["c-`+typ+`"]`)
		if got := fmt.Sprint(b.jobInfo(t, id)["groups"]); got != "[c-"+typ+"]" {
			t.Errorf("groups %s", got)
		}
		s.change(id, `"groups":[]`)
		if got := fmt.Sprint(b.jobInfo(t, id)["groups"]); got != "[]" && got != "<nil>" {
			t.Errorf("groups %s, want none", got)
		}
		b.checkOrder(t, typ, id)
	})
	t.Run("delay_ms counts from now", func(t *testing.T) {
		t.Parallel()
		typ := freshName("change")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":60000`)
		begin := time.Now()
		s.change(id, `"delay_ms":250`)
		w.wantJob(id)
		checkNotBefore(t, begin, 250*ms, "handed out")
		checkSoonAfter(t, begin, 250*ms, "handed out")
	})
	t.Run("a queued one is put off", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		first, second := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		s.change(first, `"delay_ms":60000`)
		b.checkOrder(t, typ, second)
		s.wantResult(second, `1`)
		s.change(first, `"delay_ms":0`)
		b.checkOrder(t, typ, first)
	})
	t.Run("delay_ms 0: ready, in the place by its submit", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		first := s.submitFreshWith(typ, `1`, `,"delay_ms":60000`)
		second := s.submitFresh(typ, `1`)
		s.change(first, `"delay_ms":0`)
		s.change(second, `"delay_ms":0`) // the second job is ready already, so this changes nothing
		b.checkOrder(t, typ, first, second)
	})
	t.Run("made ready, it goes to an idle worker", func(t *testing.T) {
		typ := freshName("change")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":60000`)
		s.change(id, `"delay_ms":0,"priority":1,"groups":["x"]`)
		w.wantJob(id)
	})
	t.Run("a retry that waits out its backoff", func(t *testing.T) {
		typ := freshName("change")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"retries":1,"backoff_ms":60000`)
		w.wantJob(id)
		w.fail("")
		s.change(id, `"delay_ms":0`)
		w.wantJob(id)
		w.fail("") // the run that was used still counts
		s.wantErrorFor("job_failed", id)
	})
	t.Run("the deadline stays", func(t *testing.T) {
		t.Parallel()
		typ := freshName("change")
		s := b.submitter(t)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"expires_ms":2000`)
		s.change(id, `"delay_ms":60000`) // accepted although it is beyond the deadline
		s.wantErrorFor("expired", id)
		checkNotBefore(t, begin, 2000*ms, "expired")
		checkSoonAfter(t, begin, 2000*ms, "expired")
	})
	t.Run("many in one segment", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		id, otherID := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		var batch []byte
		for i := range 200 {
			batch = append(batch, packFrame(fmt.Sprintf(`{"action":"change","id":%q,"priority":%d}`, id, i%2-1))...)
		}
		s.writeRaw(batch)
		for range 200 {
			s.wantAck(id)
		}
		b.checkOrder(t, typ, id, otherID) // the last of these changes has set priority 0
	})
	t.Run("with ack false at the submit", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		id := freshName("job")
		s.sendSubmit(id, typ, `1`, `,"ack":false`)
		s.change(id, `"priority":3`) // "ack" concerns only the submit
	})
	t.Run("ids by value", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		s.submit(typ+"é", typ, `1`)
		s.send(`{"action":"change","id":"%s\u00e9","priority":1}`, typ)
		s.wantAck(typ + "é")
	})
}

func TestRefusedChangeChangesNothing(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("running", func(t *testing.T) {
		typ := freshName("change")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		checkReason(t, s.changeFails("invalid_state", id, `"priority":1`), "running")
		w.respond(`2`)
		s.wantResult(id, `2`)
		s.changeFails("unknown_id", id, `"priority":1`)
	})
	t.Run("detached and running", func(t *testing.T) {
		typ := freshName("change")
		s, other, w := b.submitter(t), b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"detach":true`)
		w.wantJob(id)
		checkReason(t, other.changeFails("invalid_state", id, `"delay_ms":0`), "running")
	})
	t.Run("never heard of, ended, cancelled", func(t *testing.T) {
		typ := freshName("change")
		s := b.submitter(t)
		s.changeFails("unknown_id", "no such job", `"priority":1`)
		id := s.submitFresh(typ, `1`)
		s.cancel(id)
		s.changeFails("unknown_id", id, `"priority":1`)
	})
	t.Run("another connection's: waiting, running, kept", func(t *testing.T) {
		typ := freshName("change")
		s, other, w := b.submitter(t), b.submitter(t), b.servingWorker(t, typ)
		runningID := s.submitFresh(typ, `1`)
		w.wantJob(runningID)
		waitingID := s.submitFresh(typ, `1`)
		keptID := s.submitFreshWith(typ, `1`, `,"keep_ms":60000`)
		for _, id := range []string{runningID, waitingID, keptID} {
			other.changeFails("unknown_id", id, `"priority":9`)
		}
		w.respond(`1`)
		w.wantJob(waitingID)
	})
	t.Run("of a kept one whose connection is gone", func(t *testing.T) {
		typ := freshName("change")
		s, other := b.submitter(t), b.submitter(t)
		first := s.submitFreshWith(typ, `1`, `,"keep_ms":60000`)
		second := s.submitFreshWith(typ, `1`, `,"keep_ms":60000`)
		boundID := s.submitFresh(typ, `1`)
		s.close()
		b.waitState(t, boundID, "")
		other.change(second, `"priority":9`)
		b.checkOrder(t, typ, second, first)
		other.changeFails("unknown_id", first, `"priority":9`) // an outcome is kept; the job does not wait
	})
	t.Run("of detached ones, by anybody", func(t *testing.T) {
		typ := freshName("change")
		s, other := b.submitter(t), b.submitter(t)
		first := s.submitFreshWith(typ, `1`, `,"detach":true`)
		second := s.submitFreshWith(typ, `1`, `,"detach":true`)
		other.change(second, `"priority":9`)
		b.checkOrder(t, typ, second, first)
	})
	t.Run("on the worker port", func(t *testing.T) {
		w := b.worker(t)
		for _, verb := range []string{"change", "attach"} {
			w.send(`{"action":%q,"id":"x","priority":1}`, verb)
			checkReason(t, w.wantError("invalid_action"), "not_a_master")
		}
	})
	t.Run("id", func(t *testing.T) {
		s := b.submitter(t)
		for _, verb := range []string{"change", "attach"} {
			for keys, code := range map[string]string{`"priority":1`: "missing_field", `"id":null,"priority":1`: "missing_field|invalid_type",
				`"id":5,"priority":1`: "invalid_type", `"id":"","priority":1`: "invalid_type", `"id":"\ud800","priority":1`: "invalid_type"} {
				s.send(`{"action":%q,%s}`, verb, keys)
				checkReason(t, s.wantError(code), "id")
			}
		}
	})

	typ := freshName("change")
	s := b.submitter(t)
	first := s.submitFresh(typ, `1`)
	id := s.submitFreshWith(typ, `1`, `,"groups":["old-`+typ+`"]`)
	seventeen := make([]string, 17)
	for i := range seventeen {
		seventeen[i] = fmt.Sprintf("g%d", i)
	}
	for _, c := range []struct {
		keys, code string
		names      []string
	}{
		{`"x":1`, "missing_field", nil},
		{`"priority":null`, "missing_field", nil},
		{`"priority":null,"groups":null,"delay_ms":null`, "missing_field", nil},
		{`"priority":1.5`, "invalid_type", []string{"priority", "1.5"}},
		{`"priority":"9"`, "invalid_type", []string{"priority"}},
		{`"priority":9223372036854775808`, "invalid_type|invalid_value", []string{"priority"}},
		{`"priority":9,"delay_ms":-1`, "invalid_value", []string{"delay_ms", "-1", year}},
		{`"priority":9,"delay_ms":` + plusOne(year), "invalid_value", []string{"delay_ms", plusOne(year), year}},
		{`"priority":9,"delay_ms":5.0`, "invalid_type", []string{"delay_ms", "5.0", year}},
		{`"priority":9,"delay_ms":"5"`, "invalid_type", []string{"delay_ms", year}},
		{`"priority":9,"groups":"g"`, "invalid_type", []string{"groups"}},
		{`"priority":9,"groups":{"g":1}`, "invalid_type", []string{"groups"}},
		{`"priority":9,"groups":[5]`, "invalid_type", []string{"groups"}},
		{`"priority":9,"groups":[""]`, "invalid_type", []string{"groups"}},
		{`"priority":9,"groups":["\ud800"]`, "invalid_type", []string{"groups"}},
		{`"priority":9,"groups":["` + strings.Repeat("g", 1025) + `"]`, "invalid_type|invalid_value", []string{"groups", "1024"}},
		{`"priority":9,"groups":["same","same"]`, "invalid_value", []string{"groups", "same"}},
		{`"priority":9,"groups":["\u0067","g"]`, "invalid_value", []string{"groups", "g"}},
		{`"priority":9,"groups":` + jsonList(seventeen...), "invalid_value", []string{"groups", "16"}},
		{`"groups":["new"],"priority":[]`, "invalid_type", []string{"priority"}},
		{`"delay_ms":60000,"priority":true`, "invalid_type", []string{"priority"}},
	} {
		t.Run(fmt.Sprintf("%.80s", c.keys), func(t *testing.T) {
			s := submitter{&conn{t, s.net, s.in}}
			checkReason(t, s.changeFails(c.code, id, c.keys), c.names...)
		})
	}
	t.Run("and none of it changed anything", func(t *testing.T) {
		if got := fmt.Sprint(b.jobInfo(t, id)["groups"]); got != "[old-"+typ+"]" {
			t.Errorf("groups %s", got)
		}
		b.checkOrder(t, typ, first, id)
	})
}

func TestJobsAreChangedOverHTTP(t *testing.T) {
	t.Parallel()
	b := shared(t)
	patch := func(t *testing.T, id, body string, want int) string {
		t.Helper()
		return b.callHTTP(t, "PATCH", "/v1/jobs/"+url.PathEscape(id), body, want)
	}
	t.Run("priority", func(t *testing.T) {
		typ := freshName("patch")
		s := b.submitter(t)
		first, second := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		patch(t, second, `{"priority":5}`, 200)
		b.checkOrder(t, typ, second, first)
		s.wantResult(second, `1`)
		s.wantResult(first, `1`)
		s.wantQuiet() // a change over HTTP sends the submitter no frame
	})
	t.Run("delay_ms", func(t *testing.T) {
		typ := freshName("patch")
		s := b.submitter(t)
		first, second := s.submitFresh(typ, `1`), s.submitFreshWith(typ, `1`, `,"delay_ms":60000`)
		patch(t, first, `{"delay_ms":60000}`, 200)
		if got := b.jobState(t, first); got != "delayed" {
			t.Errorf("state %q", got)
		}
		patch(t, second, `{"delay_ms":0}`, 200)
		b.checkOrder(t, typ, second)
	})
	t.Run("groups", func(t *testing.T) {
		typ := freshName("patch")
		s := b.submitter(t)
		id := s.submitFresh(typ, `1`)
		patch(t, id, `{"groups":["a","b"]}`, 200)
		if got := fmt.Sprint(b.jobInfo(t, id)["groups"]); got != "[a b]" {
			t.Errorf("groups %s", got)
		}
		patch(t, id, `{"groups":[],"priority":2}`, 200)
	})
	t.Run("any waiting job: kept, detached", func(t *testing.T) {
		typ := freshName("patch")
		s := b.submitter(t)
		patch(t, s.submitFreshWith(typ, `1`, `,"detach":true`), `{"priority":5}`, 200)
		patch(t, s.submitFreshWith(typ, `1`, `,"keep_ms":60000`), `{"priority":5}`, 200)
	})
	t.Run("ids that need escaping", func(t *testing.T) {
		s := b.submitter(t)
		typ := freshName("patch")
		for _, id := range []string{typ + "/a?b#c%d", typ + "é😀", typ + "/../x"} {
			s.submit(id, typ, `1`)
			patch(t, id, `{"priority":5}`, 200)
		}
	})
	t.Run("unknown and ended: 404", func(t *testing.T) {
		typ := freshName("patch")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		patch(t, "no such job", `{"priority":5}`, 404)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		patch(t, id, `{"priority":5}`, 409)
		w.respond(`1`)
		patch(t, id, `{"priority":5}`, 404)
	})
	t.Run("refused: 400", func(t *testing.T) {
		typ := freshName("patch")
		s := b.submitter(t)
		first, id := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		for _, c := range []struct{ body, names string }{
			{``, ""}, {`{}`, ""}, {`{"priority":null}`, ""}, {`[]`, ""}, {`5`, ""}, {`{"priority":9`, ""}, {`{"priority":9}{}`, ""},
			{`{"priority":9,"colour":1}`, "colour"},
			{`{"priority":"9"}`, "priority"}, {`{"priority":1.5}`, "priority"}, {`{"priority":9223372036854775808}`, "priority"},
			{`{"priority":9,"delay_ms":-1}`, "delay_ms"}, {`{"priority":9,"delay_ms":` + plusOne(year) + `}`, "delay_ms"},
			{`{"priority":9,"groups":"g"}`, "groups"}, {`{"priority":9,"groups":[""]}`, "groups"}, {`{"priority":9,"groups":["same","same"]}`, "same"},
		} {
			if body := patch(t, id, c.body, 400); !strings.Contains(body, c.names) {
				t.Errorf("PATCH %s: %s does not name %q", c.body, body, c.names)
			}
		}
		b.checkOrder(t, typ, first, id)
	})
}

func TestTokensLimitChanges(t *testing.T) {
	t.Parallel()
	b := start(t, "--token-file="+tokenFile(t, tokenLines))
	owner, other, stranger := b.submitterAs(t, "all-1"), b.submitterAs(t, "img-1"), b.submitterAs(t, "work-1")
	expectRefusal := func(s submitter, id string) {
		t.Helper()
		s.send(`{"action":"change","id":%q,"priority":1}`, id)
		s.wantError("forbidden|unknown_id")
	}
	privateID := owner.submitFreshWith("private", `1`, `,"detach":true`)
	expectRefusal(other, privateID)    // the token does not cover the type
	expectRefusal(stranger, privateID) // the token lacks the scope submit
	sharedID := owner.submitFreshWith("img-a", `1`, `,"detach":true`)
	other.change(sharedID, `"priority":5`)
	expectRefusal(stranger, sharedID)
	keptID := owner.submitFreshWith("img-a", `1`, `,"keep_ms":60000`)
	boundID := owner.submitFresh("img-a", `1`)
	owner.close()
	other.change(sharedID, `"priority":6`)
	successor := b.submitterAs(t, "all-1")
	waitFor(t, "the owner is gone", func() error {
		successor.send(`{"action":"change","id":%q,"priority":1}`, keptID)
		f := successor.recv()
		if f.has("error") {
			return fmt.Errorf("%s", f)
		}
		return nil
	})
	other.changeFails("unknown_id", keptID, `"priority":9`) // another token's job
	other.cancelFails("unknown_id", keptID)
	other.changeFails("unknown_id", boundID, `"priority":9`)
	successor.cancel(keptID)
}

func TestAgeOrdersJobs(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("among its equals", func(t *testing.T) {
		typ := freshName("age")
		s := b.submitter(t)
		first := s.submitFresh(typ, `1`)
		oldID := s.submitFreshWith(typ, `1`, `,"age_ms":60000`)
		olderID := s.submitFreshWith(typ, `1`, `,"age_ms":120000`)
		highID := s.submitFreshWith(typ, `1`, `,"priority":1`)
		lowID := s.submitFreshWith(typ, `1`, `,"priority":-1,"age_ms":`+year)
		lastID := s.submitFreshWith(typ, `1`, `,"age_ms":null`)
		b.checkOrder(t, typ, highID, olderID, oldID, first, lastID, lowID)
	})
	t.Run("0 is now, ties by order", func(t *testing.T) {
		typ := freshName("age")
		s := b.submitter(t)
		first, second, third := s.submitFresh(typ, `1`), s.submitFreshWith(typ, `1`, `,"age_ms":0`), s.submitFresh(typ, `1`)
		b.checkOrder(t, typ, first, second, third)
	})
	t.Run("told as age, also after a retry", func(t *testing.T) {
		typ := freshName("age")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"age_ms":3600000`)
		checkAge := func(when string) {
			t.Helper()
			if age, _ := b.jobInfo(t, id)["age_seconds"].(float64); age < 3600 || age > 3700 {
				t.Errorf("%s: age_seconds %v, want a bit more than 3600", when, age)
			}
		}
		w.wantJob(id)
		checkAge("running")
		w.leave()
		w.fail(`,"delay_ms":60000`)
		checkAge("delayed")
		s.change(id, `"delay_ms":0`)
		checkAge("queued")
		youngerID := s.submitFreshWith(typ, `1`, `,"age_ms":1800000`)
		b.checkOrder(t, typ, id, youngerID)
	})
	t.Run("deadlines and delays count from now", func(t *testing.T) {
		typ := freshName("age")
		s := b.submitter(t)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"age_ms":3600000,"expires_ms":250,"delay_ms":100`)
		if got := b.jobState(t, id); got != "delayed" && roundedSince(begin) < 100*ms {
			t.Errorf("state %q, want delayed", got)
		}
		s.wantErrorFor("expired", id)
		checkNotBefore(t, begin, 250*ms, "expired")
	})
	t.Run("refused", func(t *testing.T) {
		s := b.submitter(t)
		for _, n := range []integerKey{{"age_ms", "0", year}, {"keep_ms", "0", "86400000"}} {
			refuse := func(v, code string, names ...string) {
				t.Helper()
				id := freshName("age")
				s.sendSubmit(id, "t", `1`, fmt.Sprintf(`,%q:%s`, n.key, v))
				checkReason(t, s.wantErrorFor(code, id), append(names, n.key, n.high)...)
				s.submit(id, freshName("age"), `1`)
			}
			for _, v := range nonIntegers {
				refuse(v, "invalid_type")
			}
			refuse(`-1`, "invalid_value", "-1")
			refuse(plusOne(n.high), "invalid_value", plusOne(n.high))
			for _, v := range hugeNumbers {
				refuse(v, "invalid_value")
			}
			for _, v := range []string{n.low, n.high, "null"} {
				s.submitFreshWith(freshName("age"), `1`, fmt.Sprintf(`,%q:%s`, n.key, v))
			}
		}
	})
}
