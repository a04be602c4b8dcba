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
	b.Press("Retry")
	b.Sees("The job is retried.")
	w.awaitState("acme", ids["failed"], "failed") // again
	late := w.add("acme", "report", "late\n", "")[0]
	b.At(jobPath("acme", late))
	b.Press("Cancel")
	b.Sees("Cancel the job?")
	b.Accessible("a dialog")
	w.ask("DELETE", "/acme/job/get/"+late, "") // another user has deleted the job meanwhile
	b.Forgive("404 (Not Found)")
	b.Press("Cancel the job")
	b.Sees("Not done: there is no job")
	b.Press("Leave it")
	b.Sees("There is no job with this id, or it has been forgotten.")
	soon := w.add("acme", "report", "soon\n", "")[0]
	b.At(jobPath("acme", soon))
	b.Press("Cancel")
	b.Press("Cancel the job")
	b.Sees("The job is cancelled.")
	if got := w.state("acme", soon); got != "404" {
		t.Errorf("the job is %s", got)
	}
	hour := w.add("acme", "greet", "hour\n", "&delay=1h")
	b.At(jobPath("acme", hour[0]))
	b.Sees("it is not due until")
	b.Press("Run now")
	b.Sees("The job is due now.")
	w.awaitState("acme", hour[0], "ok")
	b.Press("Duplicate")
	b.Press("Duplicate it")
	b.Sees("It is added.")
	b.Until(`location.hash !== $0 && document.body.innerText.includes('hello hour')`, jobPath("acme", hour[0]))
	hour = append(w.add("acme", "greet", "hour\n", "&delay=1h"), w.add("acme", "greet", "hour\n", "&delay=1h")...)
	b.At("#/jobs?state=deferred&of=acme-greet")
	b.Until(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 3`)
	b.Until(`[...document.querySelectorAll('.pick input')].slice(1, 3).map(e => e.checked || e.click()).length`)
	b.Press("Run 2 selected now")
	b.Sees("2 jobs are due now.")
	b.Until(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 1`)
	for _, id := range hour {
		w.awaitState("acme", id, "ok")
	}
	b.Strict()
}

// manyJobs: actions on the chosen jobs, or on all that match, take effect after the page has shown
// how many they are.
func manyJobs(t *testing.T, w *world, _ map[string]string) {
	w.handler("bulk", "no", "exit 65")
	var last string
	for _, id := range w.add("bulk", "no", strings.Repeat("x\n", 60), "") {
		last = id
	}
	w.add("bulk", "none", "1\n2\n3\n", "")
	w.awaitState("bulk", last, "failed")
	b := w.open("#/jobs?of=bulk-no&state=failed")
	b.Until(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 50`)
	b.Press("More")
	b.Until(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 60`)
	b.Until(`[...document.querySelectorAll('.pick input')].slice(1, 3).map(e => e.checked || e.click()).length`)
	b.Press("Retry 2 selected")
	b.Press("Retry 2 jobs")
	b.Sees("2 jobs retried.")
	w.waitUntil("all have failed again", func() bool {
		return strings.Contains(fmt.Sprint(w.ask("GET", "/bulk/state", "")["types"]), "failed:60")
	})
	w.handler("bulk", "no", "exit 0")
	b.Press("Retry all failed")
	b.Sees("Retry 60 failed jobs of bulk-no?")
	b.Press("Retry them")
	b.Sees("60 jobs retried.")
	w.awaitState("bulk", last, "ok")
	b.At("#/jobs?state=failed") // the list of all clients: only one job of acme is left
	b.Press("Retry all failed")
	b.Sees("Retry 1 failed job?")
	b.Press("Retry them")
	b.Sees("1 job retried.")
	w.waitUntil("it has failed again", func() bool {
		return strings.Contains(fmt.Sprint(w.ask("GET", "/acme/state", "")["types"]), "failed:1")
	})
	b.At("#/jobs?of=bulk-none&state=waiting")
	b.Until(`document.querySelectorAll('[aria-label=Jobs] tbody tr').length === 3`)
	pagetest.Eval[any](b, `document.querySelector('.pick input').click()`)
	b.Press("Cancel 3 selected")
	b.Press("Cancel 3 jobs")
	b.Sees("3 jobs cancelled.", "No job matches.")
	b.Strict()
}

// handlers: a handler is refused, added, tried, changed, viewed, replaced by its earlier version
// and deleted, and each change is undone.
func handlers(t *testing.T, w *world, _ map[string]string) {
	b := w.open("#/handlers")
	b.Forgive("400 (Bad Request)", "404 (Not Found)")
	b.Press("Add a handler")
	b.Accessible("a handler")
	b.Fill("client", "acme")
	b.Fill("type", "shout")
	b.Fill("body", "if")
	b.Press("Add it")
	b.Sees("Not done:")
	b.Fill("body", `read x; echo "R: 200 $x!"`)
	b.Fill("options", `{"timeout": "7s"}`)
	b.Press("Add it")
	b.Sees("The handler of acme-shout is added.", `read x; echo "R: 200 $x!"`, "7s")
	b.Press("Try with a line")
	b.Fill("line", "hey")
	b.Press("Run it")
	b.Sees("It is added.", "run 1: answered", "hey!")
	b.At("#/handlers/acme/shout")
	b.Press("New version")
	b.Fill("body", `echo "R: 200 second"`)
	b.Press("Add it")
	b.Sees(`echo "R: 200 second"`, "Use again")
	b.Until(`document.querySelectorAll('[aria-label=Versions] tbody tr').length === 2`)
	pagetest.Eval[any](b, `document.querySelector('[aria-label=Versions] tbody tr:last-child a').click()`)
	b.Sees(`read x; echo "R: 200 $x!"`)
	b.Press("Use again")
	b.Sees("It is in use again, as a new version.")
	b.Until(`document.querySelectorAll('[aria-label=Versions] tbody tr').length === 3`)
	source := func() any { return w.ask("GET", "/acme/handler/get/shout", "")["body"] }
	if got := source(); got != `read x; echo "R: 200 $x!"` {
		t.Errorf("in use is %v", got)
	}
	b.Press("Undo")
	b.Sees("Undone.")
	if got := source(); got != `echo "R: 200 second"` {
		t.Errorf("in use is %v", got)
	}
	b.At("#/handlers/acme/shout")
	b.Sees("second")
	b.Press("Delete")
	b.Press("Delete all versions")
	b.Sees("It is deleted.", "This type has no handler")
	b.Press("Undo")
	b.Sees("Undone.", "second")
	if h := w.ask("GET", "/acme/handler/get/shout", ""); h["options"].(map[string]any)["timeout"] != "7s" {
		t.Errorf("it came back as %v", h)
	}
	b.Strict()
}

// schedules: a schedule is paused, resumed, deleted and restored.
func schedules(t *testing.T, w *world, _ map[string]string) {
	before := w.ask("GET", "/acme/schedule/nightly", "")
	b := w.open("#/schedules")
	b.Press("Pause")
	b.Sees("nightly is paused.", "paused")
	b.Press("Resume")
	b.Sees("nightly is resumed.")
	b.At("#/schedules/acme/nightly")
	b.Press("Delete")
	b.Press("Delete it")
	b.Sees("nightly is deleted.")
	b.Forgive("404 (Not Found)")
	b.Press("Undo")
	b.Sees("Undone.", "Due next")
	after := w.ask("GET", "/acme/schedule/nightly", "")
	for _, key := range []string{"cron", "zone", "job", "note", "paused"} {
		if fmt.Sprint(after[key]) != fmt.Sprint(before[key]) {
			t.Errorf("%s is %v, was %v", key, after[key], before[key])
		}
	}
	b.Strict()
}

// journal: jobs that were set aside are put back; the daemon stops handing out jobs, and starts
// again.
func journal(t *testing.T, w *world, _ map[string]string) {
	b := w.open("#/journal")
	b.Sees("Set aside")
	b.Press("Put back")
	b.Sees("2 jobs put back.")
	b.Gone("Put all back")
	w.waitUntil("the store has them", func() bool {
		return strings.Contains(fmt.Sprint(w.ask("GET", "/acme/state", "")["types"].(map[string]any)["large"]), "waiting:2")
	})
	b.Press("Stop")
	b.Accessible("a stop")
	pagetest.Eval[any](b, `document.querySelector('dialog .danger.first').click()`)
	b.Sees("No more jobs are handed out here.")
	b.At("#/")
	b.Sees("hands out no jobs")
	b.Press("Start")
	b.Sees("Jobs are handed out again.")
	b.Gone("hands out no jobs")
	b.Strict()
}
