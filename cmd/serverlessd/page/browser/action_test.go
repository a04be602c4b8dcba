package browser

import (
	"fmt"
	"strings"
	"testing"

	"gloom/broker/page/pagetest"
)

// oneJob: each action on a job takes effect and is reported, and so is a refusal.
func oneJob(t *testing.T, w *world, ids map[string]string) {
	b := w.open(jobPath("acme", ids["failed"]))
	b.ClickButton("Retry")
	b.WaitForText("The job is retried.")
	w.awaitState("acme", ids["failed"], "failed") // again
	lateID := w.add("acme", "report", "late\n", "")[0]
	b.GoTo(jobPath("acme", lateID))
	b.ClickButton("Cancel")
	b.WaitForText("Cancel the job?")
	b.CheckAccessible("a dialog")
	w.ask("DELETE", "/acme/job/get/"+lateID, "") // another user has deleted the job meanwhile
	b.Ignore("404 (Not Found)")
	b.ClickButton("Cancel the job")
	b.WaitForText("Not done: there is no job")
	b.ClickButton("Leave it")
	b.WaitForText("There is no job with this id, or it has been forgotten.")
	soonID := w.add("acme", "report", "soon\n", "")[0]
	b.GoTo(jobPath("acme", soonID))
	b.ClickButton("Cancel")
	b.ClickButton("Cancel the job")
	b.WaitForText("The job is cancelled.")
	if got := w.state("acme", soonID); got != "404" {
		t.Errorf("the job is %s", got)
	}
	hour := w.add("acme", "greet", "hour\n", "&delay=1h")
	b.GoTo(jobPath("acme", hour[0]))
	b.WaitForText("it is not due until")
	b.ClickButton("Run now")
	b.WaitForText("The job is due now.")
	w.awaitState("acme", hour[0], "ok")
	b.ClickButton("Duplicate")
	b.ClickButton("Duplicate it")
	b.WaitForText("It is added.")
	b.WaitUntil(`location.hash !== $0 && document.body.innerText.includes('hello hour')`, jobPath("acme", hour[0]))
	hour = append(w.add("acme", "greet", "hour\n", "&delay=1h"), w.add("acme", "greet", "hour\n", "&delay=1h")...)
	b.GoTo("#/jobs?state=deferred&of=acme-greet")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 3`)
	b.WaitUntil(`[...document.querySelectorAll('.pick input')].slice(1, 3).map(e => e.checked || e.click()).length`)
	b.ClickButton("Run 2 selected now")
	b.WaitForText("2 jobs are due now.")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 1`)
	for _, id := range hour {
		w.awaitState("acme", id, "ok")
	}
	b.CheckPolicy()
}

// manyJobs: actions on the chosen jobs, or on all that match, take effect after the page has shown
// how many they are.
func manyJobs(t *testing.T, w *world, _ map[string]string) {
	w.addHandler("bulk", "no", "exit 65")
	var last string
	for _, id := range w.add("bulk", "no", strings.Repeat("x\n", 60), "") {
		last = id
	}
	w.add("bulk", "none", "1\n2\n3\n", "")
	w.awaitState("bulk", last, "failed")
	b := w.open("#/jobs?of=bulk-no&state=failed")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 50`)
	b.ClickButton("More")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 60`)
	b.WaitUntil(`[...document.querySelectorAll('.pick input')].slice(1, 3).map(e => e.checked || e.click()).length`)
	b.ClickButton("Retry 2 selected")
	b.ClickButton("Retry 2 jobs")
	b.WaitForText("2 jobs retried.")
	w.waitUntil("all have failed again", func() bool {
		return strings.Contains(fmt.Sprint(w.ask("GET", "/bulk/state", "")["types"]), "failed:60")
	})
	w.addHandler("bulk", "no", "exit 0")
	b.ClickButton("Retry all failed")
	b.WaitForText("Retry 60 failed jobs of bulk-no?")
	b.ClickButton("Retry them")
	b.WaitForText("60 jobs retried.")
	w.awaitState("bulk", last, "ok")
	b.GoTo("#/jobs?state=failed") // the list of all clients: only one job of acme is left
	b.ClickButton("Retry all failed")
	b.WaitForText("Retry 1 failed job?")
	b.ClickButton("Retry them")
	b.WaitForText("1 job retried.")
	w.waitUntil("it has failed again", func() bool {
		return strings.Contains(fmt.Sprint(w.ask("GET", "/acme/state", "")["types"]), "failed:1")
	})
	b.GoTo("#/jobs?of=bulk-none&state=waiting")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 3`)
	pagetest.Eval[any](b, `document.querySelector('.pick input').click()`)
	b.ClickButton("Cancel 3 selected")
	b.ClickButton("Cancel 3 jobs")
	b.WaitForText("3 jobs cancelled.", "No job matches.")
	b.CheckPolicy()
}

// handlers: a handler is refused, added, tried, changed, viewed, replaced by its earlier version
// and deleted, and each change is undone.
func handlers(t *testing.T, w *world, _ map[string]string) {
	b := w.open("#/handlers")
	b.Ignore("400 (Bad Request)", "404 (Not Found)")
	b.ClickButton("Add a handler")
	b.CheckAccessible("a handler")
	b.Fill("client", "acme")
	b.Fill("type", "shout")
	b.Fill("body", "if")
	b.ClickButton("Add it")
	b.WaitForText("Not done:")
	b.Fill("body", `read x; echo "R: 200 $x!"`)
	b.Fill("options", `{"timeout": "7s"}`)
	b.ClickButton("Add it")
	b.WaitForText("The handler of acme-shout is added.", `read x; echo "R: 200 $x!"`, "7s")
	b.ClickButton("Try with a line")
	b.Fill("line", "hey")
	b.ClickButton("Run it")
	b.WaitForText("It is added.", "run 1: answered", "hey!")
	b.GoTo("#/handlers/acme/shout")
	b.ClickButton("New version")
	b.Fill("body", `echo "R: 200 second"`)
	b.ClickButton("Add it")
	b.WaitForText(`echo "R: 200 second"`, "Use again")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Versions] tbody tr').length === 2`)
	pagetest.Eval[any](b, `document.querySelector('[aria-label=Versions] tbody tr:last-child a').click()`)
	b.WaitForText(`read x; echo "R: 200 $x!"`)
	b.ClickButton("Use again")
	b.WaitForText("It is in use again, as a new version.")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Versions] tbody tr').length === 3`)
	source := func() any { return w.ask("GET", "/acme/handler/get/shout", "")["body"] }
	if got := source(); got != `read x; echo "R: 200 $x!"` {
		t.Errorf("in use is %v", got)
	}
	b.ClickButton("Undo")
	b.WaitForText("Undone.")
	if got := source(); got != `echo "R: 200 second"` {
		t.Errorf("in use is %v", got)
	}
	b.GoTo("#/handlers/acme/shout")
	b.WaitForText("second")
	b.ClickButton("Delete")
	w.ask("PUT", "/acme/handler/add/shout", `{"lang":"sh","body":"echo third","options":{"timeout":"7s"}}`) // by another tab
	b.ClickButton("Delete all versions")
	b.WaitForText("It is deleted.", "This type has no handler")
	b.ClickButton("Undo")
	b.WaitForText("Undone.", "third")
	if h := w.ask("GET", "/acme/handler/get/shout", ""); h["options"].(map[string]any)["timeout"] != "7s" {
		t.Errorf("it came back as %v", h)
	}
	b.CheckPolicy()
}

// schedules: a schedule is paused, resumed, deleted and restored.
func schedules(t *testing.T, w *world, _ map[string]string) {
	before := w.ask("GET", "/acme/schedule/nightly", "")
	b := w.open("#/schedules")
	b.ClickButton("Pause")
	b.WaitForText("nightly is paused.", "paused")
	b.ClickButton("Resume")
	b.WaitForText("nightly is resumed.")
	b.GoTo("#/schedules/acme/nightly")
	b.ClickButton("Delete")
	b.ClickButton("Delete it")
	b.WaitForText("nightly is deleted.")
	b.Ignore("404 (Not Found)")
	b.ClickButton("Undo")
	b.WaitForText("Undone.", "Due next")
	after := w.ask("GET", "/acme/schedule/nightly", "")
	for _, key := range []string{"cron", "zone", "job", "note", "paused"} {
		if fmt.Sprint(after[key]) != fmt.Sprint(before[key]) {
			t.Errorf("%s is %v, was %v", key, after[key], before[key])
		}
	}
	b.CheckPolicy()
}

// journal: jobs that were set aside are put back; the daemon stops handing out jobs, and starts
// again.
func journal(t *testing.T, w *world, _ map[string]string) {
	b := w.open("#/journal")
	b.WaitForText("Set aside")
	b.ClickButton("Put back")
	b.WaitForText("2 jobs put back.")
	b.WaitForNoText("Put all back")
	w.waitUntil("the store has them", func() bool {
		return strings.Contains(fmt.Sprint(w.ask("GET", "/acme/state", "")["types"].(map[string]any)["large"]), "waiting:2")
	})
	b.ClickButton("Stop")
	b.CheckAccessible("a stop")
	pagetest.Eval[any](b, `document.querySelector('dialog .danger.first').click()`)
	b.WaitForText("No more jobs are handed out here.")
	b.GoTo("#/")
	b.WaitForText("hands out no jobs")
	b.ClickButton("Start")
	b.WaitForText("Jobs are handed out again.")
	b.WaitForNoText("hands out no jobs")
	b.CheckPolicy()
}
