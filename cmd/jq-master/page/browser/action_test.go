package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gloom/broker/page/pagetest"
)

// status returns the status of a job, for operators.
func (w *world) status(id string) string {
	w.t.Helper()
	return w.ask("GET", "/v1/jobs/"+id, nil)["status"].(string)
}

// TestJobActions: actions on a job take effect, the page confirms them, and those that can be
// undone are undone.
func TestJobActions(t *testing.T) {
	w, ids := startBusy(t)
	b := w.open("#/job/" + ids["queued"])
	b.ClickButton("Priority")
	b.Fill("priority", "-5")
	b.ClickButton("Change")
	b.WaitForText("The priority is changed.", "-5")
	b.ClickButton("Undo")
	b.WaitForText("Undone.")
	b.ClickButton("Cancel")
	b.ClickButton("Cancel the job")
	b.WaitForText("The job is cancelled.", "cancelled")
	if got := w.status(ids["queued"]); got != "cancelled" {
		t.Errorf("the job is %s", got)
	}
	b.ClickButton("Retry")
	b.WaitForText("The job is retried.", "no worker serves its name")
	b.GoTo("#/job/" + ids["retrying"])
	b.ClickButton("Run now")
	b.WaitForText("The job is retried.")
	worker := w.worker("another", 1, "sms")
	w.take(worker, 1)
	b.WaitForText("run 2: running")
	b.WaitForNoText("Run now")
	b.GoTo("#/workers")
	b.WaitForText("another")
	pagetest.Eval[any](b, `[...document.querySelectorAll('tr')].find(r => r.innerText.includes('another')).querySelector('button').click()`)
	b.ClickButton("Unregister it")
	b.WaitForText("another is unregistered.", "leaving")
	b.GoTo("#/job/" + ids["running"])
	b.ClickButton("Cancel")
	b.WaitForText("Cancel the running job?")
	b.ClickButton("Cancel the job")
	// The note of the first cancel may still be there.
	w.waitUntil("/v1/jobs/"+ids["running"], func(_ int, v map[string]any) bool { return v["status"] == "cancelled" })
	b.WaitForText("The job is cancelled.", "run 1: cancelled")
	b.CheckPolicy()
}

// TestCancelOfDelayedJobIsNotUndone: a job that is retried after its cancellation runs at once, so Undo
// is not offered for a job that is not due yet.
func TestCancelOfDelayedJobIsNotUndone(t *testing.T) {
	w := start(t)
	b := w.open("#/job/" + w.job(`{"name":"mail","argument":{},"delay":3600}`))
	b.ClickButton("Cancel")
	b.ClickButton("Cancel the job")
	b.WaitForText("The job is cancelled.")
	if pagetest.Eval[bool](b, `return [...document.querySelectorAll('button')].some(e => e.innerText === 'Undo')`) {
		t.Error("Undo is offered")
	}
}

// TestDuplicateEnqueuesSameJob: Duplicate enqueues another job with the same attributes, and the
// numbers are as the pusher wrote them.
func TestDuplicateEnqueuesSameJob(t *testing.T) {
	w, ids := startBusy(t)
	b := w.open("#/job/" + ids["done"])
	b.ClickButton("Duplicate")
	b.WaitForText("Another job like this one?")
	b.CheckAccessible("a dialog")
	b.ClickButton("Duplicate it")
	b.WaitForText("It is added.", "9223372036854775809")
	b.WaitUntil(`location.hash !== $0`, "#/job/"+ids["done"])
	b.WaitForText("queued", "will be kept")
	id := strings.TrimPrefix(pagetest.Eval[string](b, `return location.hash`), "#/job/")
	old, copiedJob := w.ask("GET", "/v1/jobs/"+ids["done"], nil), w.ask("GET", "/v1/jobs/"+id, nil)
	for _, k := range []string{"name", "argument", "priority", "max_retry", "timeout", "keep_result"} {
		if fmt.Sprint(old[k]) != fmt.Sprint(copiedJob[k]) {
			t.Errorf("%s is %v, was %v", k, copiedJob[k], old[k])
		}
	}
	b.CheckPolicy()
}

// TestPauseName: a name is paused by means of a constraint, and resumed by a button or by Undo.
func TestPauseName(t *testing.T) {
	w := start(t)
	w.ask("PUT", "/v1/constraints/paused%20"+strings.Repeat("n", 200), `{"match":{},"concurrency":0,"enabled":false}`) // the longest name can be paused
	id := w.job(`{"name":"mail","argument":{"to":"user@example.org","n":9223372036854775809}}`)
	w.worker("mailer", 1, "mail")
	b := w.open("#/jobs")
	b.WaitForText(`{"to":"user@example.org","n":9223372036854775809}`)
	b.GoTo("#/names")
	b.ClickButton("Pause")
	b.WaitForText("mail is paused.", "Resume")
	w.waitUntil("/v1/jobs/"+id, func(_ int, v map[string]any) bool { return fmt.Sprint(v["blocked_by"]) == "[paused mail]" })
	b.CheckAccessible("paused")
	b.ClickButton("Undo")
	b.WaitForText("Undone.", "Pause")
	b.ClickButton("Pause")
	b.ClickButton("Resume")
	b.WaitForText("mail is resumed.")
	w.waitUntil("/v1/jobs/"+id, func(_ int, v map[string]any) bool { return fmt.Sprint(v["blocked_by"]) == "[]" })
	b.CheckPolicy()
}

// TestNameIsPausedOnlyWhileConstraintHolds: a name is not shown as paused if its constraint is turned
// off, or was changed to let jobs run.
func TestNameIsPausedOnlyWhileConstraintHolds(t *testing.T) {
	w := start(t)
	w.job(`{"name":"mail","argument":{}}`)
	w.job(`{"name":"report","argument":{}}`)
	pause := func(name, limits string) {
		w.ask("PUT", "/v1/constraints/paused%20"+name, `{"match":{"field":"/name","op":"eq","value":"`+name+`"},`+limits+`}`)
	}
	const offers = `[...document.querySelectorAll('tr')].some(r => r.innerText.startsWith($0) && r.innerText.includes($1))`
	pause("report", `"concurrency":0`)
	for _, limits := range []string{`"concurrency":0,"enabled":false`, `"concurrency":5`} {
		pause("mail", limits)
		b := w.open("#/names")
		b.WaitUntil(offers, "report", "Resume")
		b.WaitUntil(offers, "mail", "Pause")
		b.ClickButton("Pause")
		b.WaitForText("mail is paused.")
		b.WaitUntil(offers, "mail", "Resume")
		if v := w.ask("GET", "/v1/constraints/paused%20mail", nil); v["concurrency"] != 0. || v["enabled"] != true {
			t.Errorf("the constraint is %v", v)
		}
	}
}

// TestKeptErrorsAreFinding: kept jobs with an error are a finding, and the name of a job is a link
// to the jobs with this name.
func TestKeptErrorsAreFinding(t *testing.T) {
	w := start(t)
	mailer := w.worker("mailer", 1, "mail")
	for range 2 {
		w.job(`{"name":"mail","argument":{},"max_retry":0}`)
		w.reportDone(mailer, w.take(mailer, 1)[0], failure)
	}
	b := w.open("#/")
	b.WaitForText("mail: 2 jobs ended with an error, 0 done", "Since the start: 2 enqueued")
	b.GoTo("#/jobs?status=error")
	b.WaitForText("no such mailbox")
	pagetest.Eval[any](b, `[...document.querySelectorAll('td a.name')].find(a => a.innerText === 'mail').click()`)
	b.WaitUntil(`location.hash === '#/jobs?status=error&name=mail'`)
	b.CheckPolicy()
}

// TestActionOnMatchingJobsCountsFirst: an action on all matching or on chosen jobs first shows the
// number of the jobs, and then changes the jobs.
func TestActionOnMatchingJobsCountsFirst(t *testing.T) {
	w := start(t)
	for i := range 30 {
		w.job(fmt.Sprintf(`{"name":"report","argument":{"of":%d,"big":%d},"priority":3}`, i, 9223372036854775800+uint64(i)))
	}
	w.job(`{"name":"mail","argument":{}}`)
	b := w.open("#/jobs")
	b.WaitForText("report", "mail", "31")
	pagetest.Eval[any](b, `document.querySelector('summary').click()`)
	b.Fill("field", "/argument/big")
	pagetest.Eval[any](b, `document.querySelector('[name=op]').value = 'ge'`)
	b.Fill("value", "9223372036854775810")
	b.ClickButton("Add")
	b.WaitUntil(`document.querySelector('[name=match]').value === '{"field":"/argument/big","op":"ge","value":9223372036854775810}'`)
	b.WaitUntil(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 20`)
	b.Fill("field", "/argument/of")
	pagetest.Eval[any](b, `document.querySelector('[name=op]').value = 'in'`)
	b.Fill("value", "[10, 11, 12, 1]")
	b.ClickButton("Add")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 3`)
	b.CheckAccessible("built")
	b.ClickButton("Priority of all that match")
	b.WaitForText("Change the priority of 3 jobs?")
	b.CheckAccessible("counted")
	w.job(`{"name":"report","argument":{"of":10,"big":9223372036854775810},"priority":3}`) // enqueued too late to be included
	b.Fill("priority", "-2147483648")
	b.ClickButton("Change the priority of 3 jobs")
	b.WaitForText("3 jobs changed.", "-2147483648")
	first := w.ask("POST", "/v1/jobs/query", `{"match":{"field":"/priority","op":"lt","value":0}}`)["jobs"].([]any)
	if len(first) != 3 {
		t.Errorf("%d jobs have another priority", len(first))
	}
	worker := w.worker("one", 3, "report")
	for _, id := range w.take(worker, 3) {
		if j := w.ask("GET", "/v1/jobs/"+id, nil); j["priority"] != -2147483648. {
			t.Errorf("the worker got a job of priority %v first", j["priority"])
		}
	}
	b.ClickButton("Clear")
	b.ClickButton("queued 29") // the button also shows the count
	b.WaitUntil(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 29`)
	b.WaitUntil(`[...document.querySelectorAll('.pick input')].slice(1, 3).map(e => e.checked || e.click()).length`)
	b.ClickButton("Cancel 2 selected")
	b.ClickButton("Cancel 2 jobs")
	b.WaitForText("2 jobs cancelled.")
	b.ClickButton("Cancel all that match")
	b.WaitForText("Cancel 27 jobs?")
	b.ClickButton("Cancel 27 jobs")
	b.WaitForText("27 jobs cancelled.", "No job matches.")
	b.GoTo("#/jobs?status=cancelled&name=report")
	b.ClickButton("Retry all that match")
	b.WaitForText("Retry 28 jobs?")
	b.ClickButton("Retry 28 jobs")
	b.WaitForText("28 jobs retried.")
	b.GoTo("#/jobs?match=" + "%7B%22field%22%3A%22%2Fnosuch%22%2C%22op%22%3A%22eq%22%2C%22value%22%3A1%7D")
	b.Ignore("400 (Bad Request)")
	b.WaitForText("must begin with an attribute")
	b.Fill("match", "{")
	b.ClickButton("Search")
	b.WaitForText("The matcher is not valid JSON.")
	b.CheckPolicy()
}

// TestConstraintChangesAreUndone: a constraint is added, refused, changed, turned off and removed,
// and each change is undone.
func TestConstraintChangesAreUndone(t *testing.T) {
	w, _ := startBusy(t)
	b := w.open("#/constraints")
	b.Ignore("400 (Bad Request)")
	b.ClickButton("Add a constraint")
	b.CheckAccessible("a constraint")
	b.Fill("id", "big")
	b.Fill("match", `{"field":"/argument/n","op":"gt","value":9223372036854775808}`)
	b.ClickButton("Set")
	b.WaitForText("Not done: rate or concurrency is required")
	b.Fill("concurrency", "1")
	b.ClickButton("Set")
	b.WaitForText("The constraint big is set.", "1 at a time")
	b.WaitUntil(`[...document.querySelectorAll('code')].some(c => c.textContent.includes('9223372036854775808'))`)
	row := func(button string) {
		t.Helper()
		const it = `[...[...document.querySelectorAll('tr')].find(r => r.innerText.startsWith('big'))?.querySelectorAll('button') ?? []].find(e => e.innerText === $0)`
		b.WaitUntil(it, button)
		pagetest.Eval[any](b, it+`.click()`, button)
	}
	row("Change")
	b.Fill("rate", "2.5")
	b.ClickButton("Set")
	b.WaitForText("2.5 a second, 3 at once")
	row("Turn off")
	b.WaitForText("The constraint big is off.")
	row("Turn on")
	b.WaitForText("The constraint big is on.")
	row("Remove")
	b.WaitForText("The constraint big was removed.")
	b.ClickButton("Undo")
	b.WaitForText("Undone.", "big")
	if v := w.ask("GET", "/v1/constraints/big", nil); v["rate"] != 2.5 || v["enabled"] != true {
		t.Errorf("it came back as %v", v)
	}
	pagetest.Eval[any](b, `[...document.querySelectorAll('tr')].find(r => r.innerText.startsWith('per-user')).querySelector('td.num a').click()`)
	b.WaitForText("mail")
	b.WaitUntil(`location.hash.startsWith('#/jobs?status=queued&match=') && document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 1`)
	b.CheckPolicy()
}

// TestConstraintStaysOff: changing a constraint, and undoing the change, does not turn it on again after
// another tab has turned it off.
func TestConstraintStaysOff(t *testing.T) {
	w, _ := startBusy(t)
	b := w.open("#/constraints")
	b.ClickButton("Change")
	b.WaitForText("Constraint per-user")
	v := w.ask("GET", "/v1/constraints/per-user", nil)
	w.ask("PUT", "/v1/constraints/per-user", map[string]any{"match": v["match"], "per": v["per"], "concurrency": v["concurrency"], "enabled": false})
	b.Fill("concurrency", "7")
	b.ClickButton("Set")
	b.WaitForText("The constraint per-user is set.", "7 at a time")
	if got := w.ask("GET", "/v1/constraints/per-user", nil); got["enabled"] != false || got["concurrency"] != 7. {
		t.Errorf("the constraint is %v", got)
	}
	b.ClickButton("Undo")
	b.WaitForText("Undone.")
	if got := w.ask("GET", "/v1/constraints/per-user", nil); got["enabled"] != false || got["concurrency"] != v["concurrency"] {
		t.Errorf("after Undo the constraint is %v, was %v", got, v)
	}
}

// TestDotConstraintIsChanged: browsers remove "." and ".." from paths. Constraints with such ids are
// set, turned off and removed like all others.
func TestDotConstraintIsChanged(t *testing.T) {
	w := start(t)
	b := w.open("#/constraints")
	b.ClickButton("Add a constraint")
	b.Fill("id", "..")
	b.Fill("match", "{}")
	b.Fill("concurrency", "3")
	b.ClickButton("Set")
	b.WaitForText("The constraint .. is set.", "3 at a time")
	b.ClickButton("Turn off")
	b.WaitForText("The constraint .. is off.", "Turn on")
	b.ClickButton("Remove")
	b.WaitForText("The constraint .. was removed.", "There is no constraint")
}

// TestUndoRestoresSchedule: a schedule is paused, resumed and deleted, and Undo restores it as it
// was.
func TestUndoRestoresSchedule(t *testing.T) {
	w, _ := startBusy(t)
	before := w.ask("GET", "/v1/schedules/nightly", nil)
	b := w.open("#/schedules")
	b.ClickButton("Pause")
	b.WaitForText("nightly is paused.", "paused")
	b.ClickButton("Resume")
	b.WaitForText("nightly is resumed.")
	b.GoTo("#/schedules/nightly")
	b.ClickButton("Delete")
	b.ClickButton("Delete it")
	b.WaitForText("nightly is deleted.")
	b.Ignore("404 (Not Found)")
	b.ClickButton("Undo")
	b.WaitForText("Undone.", "Due next")
	after := w.ask("GET", "/v1/schedules/nightly", nil)
	for _, key := range []string{"cron", "zone", "job", "note", "paused"} {
		if fmt.Sprint(after[key]) != fmt.Sprint(before[key]) {
			t.Errorf("%s is %v, was %v", key, after[key], before[key])
		}
	}
	b.CheckPolicy()
}

// TestUndoRestoresScheduleOfOtherTab: the list may be older than the schedule, which another tab has
// changed. Undo restores the one that was deleted.
func TestUndoRestoresScheduleOfOtherTab(t *testing.T) {
	w, _ := startBusy(t)
	b := w.open("#/schedules")
	b.WaitForText("nightly")
	w.ask("PUT", "/v1/schedules/nightly", `{"cron":"7 7 * * *","job":{"name":"report","argument":{"of":"new"}}}`)
	b.ClickButton("Delete")
	b.ClickButton("Delete it")
	b.WaitForText("nightly is deleted.")
	b.ClickButton("Undo")
	b.WaitForText("Undone.")
	if v := w.ask("GET", "/v1/schedules/nightly", nil); v["cron"] != "7 7 * * *" {
		t.Errorf("it came back as %v", v)
	}
}

// TestForeignPageIsRefused: a page of another site cannot do what this page may do.
func TestForeignPageIsRefused(t *testing.T) {
	w := start(t)
	id := w.job(`{"name":"mail","argument":{}}`)
	for _, path := range []string{"/v1/jobs/priority", "/v1/jobs/cancel", "/v1/jobs/" + id + "/priority", "/v1/jobs/" + id + "/cancel"} {
		r, err := http.NewRequest("POST", w.url+path, strings.NewReader(`{"all":true,"priority":1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "text/plain")
		r.Header.Set("Origin", "http://127.0.0.1:1")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}
