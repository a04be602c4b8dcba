package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/page/pagetest"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// TestTypeActions uses every action that the page offers for a type.
func TestTypeActions(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("#/type/report")
	b.Ignore("400 (Bad Request)") // of invalid limits
	b.Ignore("404 (Not Found)")   // for the forgotten type
	awaitField := func(key string, want any) {
		t.Helper()
		w.waitUntil("/v1/types/report", func(v map[string]any) bool { return fmt.Sprint(v[key]) == fmt.Sprint(want) })
	}
	b.ClickButton("Pause")
	b.WaitForText("report is paused", "Resume")
	awaitField("paused", true)
	b.ClickButton("Undo")
	b.WaitForText("Undone.", "Pause")
	awaitField("paused", false)
	b.ClickButton("Pause")
	b.ClickButton("Resume")
	b.WaitForText("report is resumed.")
	awaitField("paused", false)

	b.ClickButton("Limits")
	b.CheckAccessible("the dialog of limits")
	b.Fill("concurrency", "7")
	b.Fill("rate", "2.5")
	b.ClickButton("Set")
	b.WaitForText("The limits of report are set.", "≤ 7 at a time", "≤ 2.5/s")
	awaitField("limits", map[string]any{"burst": 0, "concurrency": 7, "rate": 2.5})
	b.ClickButton("Undo")
	b.WaitForNoText("≤ 7 at a time")
	awaitField("limits", map[string]any{"burst": 0, "concurrency": 0, "rate": 0})

	b.ClickButton("Take turns")
	b.WaitForText("take turns now.")
	awaitField("fair", true)

	b.ClickButton("Limits")
	b.Fill("burst", "3") // invalid without a rate
	b.ClickButton("Set")
	b.WaitUntil(`document.querySelector('dialog [role=status]').innerText.startsWith('Not done: burst needs a rate')`)
	b.CheckAccessible("a dialog that did not do it")
	b.ClickButton("Leave it")

	// The matching jobs are counted before the page asks, and again after the action.
	b.GoTo("#/type/report?id=report-1")
	b.WaitForText("report-19")
	b.ClickButton("Cancel all that match")
	b.WaitForText("Cancel 10 jobs of report?")
	b.ClickButton("Leave it")
	awaitField("queued", 40)
	b.ClickButton("Cancel all that match")
	b.ClickButton("Cancel 10 jobs")
	b.WaitForText("10 jobs of report cancelled; 0 matching remain.", "No job matches.")
	awaitField("queued", 30)

	w.submit(gloom.Job{Type: "mial"})
	b.GoTo("#/type/mial")
	b.ClickButton("Forget")
	b.WaitForText("Forget mial?", "1 waiting job is discarded")
	b.ClickButton("Forget it")
	b.WaitForText("mial is forgotten, 1 job discarded.", "No job or worker of this type")
	b.CheckPolicy()
}

// TestJobActions uses every action that the page offers for a job.
func TestJobActions(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("#/job/later")
	b.Ignore("404 (Not Found)") // for jobs that have ended
	b.WaitForText("delayed", "Why it waits: its delay or backoff")
	b.WaitForText(`"n": 12345678901234567890`, `"empty": {}`, `"trace": "t-1"`)
	b.ClickButton("Change")
	b.Fill("priority", "9223372036854775807")
	b.ClickButton("Change")
	b.WaitForText("later is changed.", "9223372036854775807")
	b.ClickButton("Undo")
	b.WaitForNoText("9223372036854775807")
	b.ClickButton("Run now")
	b.WaitForText("later is ready.", "queued")
	b.ClickButton("Cancel")
	b.WaitForText("Cancel later?", "cannot be undone")
	b.ClickButton("Cancel the job")
	b.WaitForText("later: cancelled.", "cancelled by an operator", "History")

	b.GoTo("#/job/picture-1")
	b.WaitForText("running")
	b.ClickButton("Cancel")
	b.WaitForText("It is running")
	b.ClickButton("Cancel the job")
	b.WaitForText("picture-1: unwanted.")
	w.waitUntil("/v1/types/thumbnail", func(v map[string]any) bool { return v["queued"] == 0. }) // the worker has continued with the other job
	b.CheckPolicy()
}

// TestDeadActions retries and discards failed jobs.
func TestDeadActions(t *testing.T) {
	w := startBusyBroker(t)
	awaitDead := func(n int) {
		t.Helper()
		w.waitUntil("/v1/types/invoice", func(v map[string]any) bool { return v["dead"] == float64(n) })
	}
	b := w.openPage("#/dead/invoice")
	b.WaitForText("invoice-1")
	pagetest.Eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText === 'invoice-1').click()`)
	b.WaitForText("no such address", "a@example.org", "All dead letters of this type")
	b.CheckAccessible("a dead letter")
	b.CheckFits(320)
	b.SetSize(1280, 900)
	b.WaitUntil(`/^#.dead.invoice.invoice-1.no=\d+$/.test(location.hash)`)
	b.Visit(w.url + "/" + pagetest.Eval[string](b, `return location.hash`))
	b.WaitForText("a@example.org")
	b.GoTo("#/dead/invoice")
	b.WaitForText("invoice-2")
	w.callAPI("POST", "/v1/types/invoice/pause", "{}")
	b.ClickButton("Retry")
	b.WaitForText("invoice-2 was retried.")
	awaitDead(2)
	b.WaitUntil(`![...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('invoice-2'))`) // its row is gone
	b.ClickButton("Discard")
	b.WaitForText("Discard invoice-1?")
	b.ClickButton("Discard it")
	b.WaitForText("invoice-1 is discarded.")
	awaitDead(1)
	b.ClickButton("Discard all that match")
	b.WaitForText("Discard 1 dead letter of invoice?")
	b.ClickButton("Leave it")
	awaitDead(1)
	b.GoTo("#/dead")
	b.ClickButton("Retry all")
	b.WaitForText("Retry 1 dead letter of invoice?")
	w.submit(gloom.Job{Type: "invoice", ID: "invoice-late"})
	w.callAPI("POST", "/v1/types/invoice/resume", "{}")
	awaitDead(3) // two more than the dialog said: invoice-late, and the job that was retried
	w.callAPI("POST", "/v1/types/invoice/pause", "{}")
	b.ClickButton("Retry 1 dead letter")
	b.WaitForText("1 dead letter retried, 2 left.")
	awaitDead(2)
	b.CheckPolicy()
}

// TestActionsApplyToChosenRows: rows are chosen one by one or all together, and the actions apply
// to the chosen rows. Refusals are reported.
func TestActionsApplyToChosenRows(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("#/jobs?id=report-0")
	choose := func(name string) {
		t.Helper()
		box := `document.querySelector('[aria-label="Choose ' + $0 + '"]')`
		b.WaitUntil(box, name)
		pagetest.Eval[any](b, box+`.click()`, name)
	}
	choose("report-03")
	choose("report-05")
	b.CheckAccessible("chosen jobs")
	b.CheckFits(320)
	b.SetSize(1280, 900)
	b.ClickButton("Cancel 2 selected")
	b.WaitForText("Cancel 2 jobs?")
	b.ClickButton("Cancel 2 jobs")
	b.WaitForText("2 jobs cancelled.")
	b.WaitUntil(`document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 8`)
	b.WaitUntil(`![...document.querySelectorAll('button')].some(e => e.innerText.includes('selected'))`)
	choose("all that are shown")
	b.Ignore("404 (Not Found)") // for the job that another client cancels
	w.callAPI("DELETE", "/v1/jobs/report-00", "")
	b.ClickButton("Cancel 8 selected")
	b.ClickButton("Cancel 8 jobs")
	b.WaitForText("Not done: 1 of 8 refused: ")
	b.ClickButton("Leave it")
	w.waitUntil("/v1/types/report", func(v map[string]any) bool { return v["queued"] == 30. })

	w.callAPI("POST", "/v1/types/invoice/pause", "{}")
	b.GoTo("#/dead/invoice")
	choose("invoice-0")
	choose("invoice-2")
	b.ClickButton("Retry 2 selected")
	b.WaitForText("2 dead letters retried.")
	choose("invoice-1")
	b.ClickButton("Discard 1 selected")
	b.ClickButton("Discard 1 dead letter")
	b.WaitForText("1 dead letter discarded.", "None is kept.")
	w.waitUntil("/v1/types/invoice", func(v map[string]any) bool { return v["dead"] == 0. && v["queued"] == 2. })
	b.CheckPolicy()
}

// TestReasonsOfDeadLettersAreGrouped: the overview of dead letters shows the reasons of failures,
// and counts reasons that differ only in numbers and ids as one reason. A phone, too, shows
// everything that a person needs to retry the jobs.
func TestReasonsOfDeadLettersAreGrouped(t *testing.T) {
	w := start(t, nil)
	w.startWorker("mail", func(_ context.Context, j *gloom.Job) (any, error) {
		if j.ID == "odd" {
			return nil, gloom.Fatal(errors.New("no such address"))
		}
		return nil, gloom.Fatal(fmt.Errorf("dial 10.0.0.%d:25 for %s: timeout", len(j.ID), j.ID))
	})
	jobs := []gloom.Job{{Type: "mail", ID: "odd"}}
	for i := range 12 {
		jobs = append(jobs, gloom.Job{Type: "mail", ID: fmt.Sprint("mail-", i)})
	}
	w.submit(jobs...)
	w.waitUntil("/v1/types/mail", func(v map[string]any) bool { return v["dead"] == 13. })
	b := w.openPage("#/dead")
	b.WaitForText("12 × dial … for …: timeout", "1 × no such address")
	b.CheckFits(390)
	b.WaitUntil(`[...document.querySelectorAll('button')].find(e => e.innerText === 'Retry all')?.checkVisibility()`)
	b.CheckAccessible("dead letters by reason")
	pagetest.Eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText.startsWith('dial')).click()`)
	b.WaitUntil(`document.querySelectorAll('[aria-label="Dead letters"] tbody tr').length === 12`)
	b.WaitUntil(`[...document.querySelectorAll('button')].find(e => e.innerText === 'Retry')?.checkVisibility()`)
	if *screenshotDir != "" {
		b.Screenshot(filepath.Join(*screenshotDir, "dead-390.png"))
	}
	b.CheckPolicy()
}

// TestRepeatedSubmitActsOnce: a dialog's action is carried out once, even if the form is submitted
// several times. When the dialog is closed, the focus returns to the element that had it before.
func TestRepeatedSubmitActsOnce(t *testing.T) {
	w := start(t, nil)
	b := w.openPage("")
	b.ClickButton("Submit a test job")
	b.Fill("type", "mail")
	b.Fill("wait", "0")
	shown := pagetest.Eval[bool](b, `const f = document.querySelector('dialog form'); f.requestSubmit(); f.requestSubmit(); f.requestSubmit();
		const go = f.querySelector('button.first');
		return go.innerText === 'Submit…' && go.ariaDisabled === 'true'`)
	if !shown {
		t.Error("a dialog does not say that it is working")
	}
	b.WaitForText("is queued.")
	b.WaitUntil(`document.querySelectorAll('.notes p').length === 1`)
	if v := w.callAPI("GET", "/v1/types/mail", ""); v["queued"] != 1. {
		t.Errorf("%v jobs were submitted", v["queued"])
	}
	b.ClickButton("Close")
	const drain = `[...document.querySelectorAll('button')].find(e => e.innerText === 'Drain')`
	b.WaitUntil(drain)
	pagetest.Eval[any](b, `const e = `+drain+`; e.focus(); e.click()`)
	b.ClickButton("Leave it")
	b.WaitUntil(`!document.querySelector('dialog') && document.activeElement.innerText === 'Drain'`)
	b.CheckPolicy()
}

// TestGroupActions sets and removes rules.
func TestGroupActions(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("#/groups")
	b.ClickButton("Add a rule")
	b.Fill("pattern", "ac*")
	b.Fill("concurrency", "0")
	b.ClickButton("Set")
	b.WaitForText("The rule for ac* is set.", "an operator")
	b.ClickButton("Remove")
	b.WaitForText("The rule for ac* was removed.", "There is no rule")
	b.ClickButton("Undo")
	b.WaitForText("an operator")
	b.ClickButton("Add a rule") // the dialog can also change the rule of a pattern that has one
	b.Fill("pattern", "ac*")
	b.Fill("concurrency", "12")
	b.ClickButton("Set")
	rule := func(concurrency float64) {
		t.Helper()
		w.waitUntil("/v1/groups/ac*", func(v map[string]any) bool { return v["concurrency"] == concurrency })
	}
	rule(12)
	b.WaitUntil(`!document.querySelector('dialog') && document.querySelectorAll('.notes button').length > 0`)
	b.ClickButton("Undo")
	rule(0)

	// Undo removes an operator's rule for good: the rule of the file is in force again.
	file := int64(5)
	if err := w.srv.Limits().Load(settings.FileLimits{Groups: map[string]broker.Rule{"tenant-*": {Concurrency: file}}}); err != nil {
		t.Fatal(err)
	}
	b.WaitForText("the file of limits")
	b.ClickButton("Add a rule")
	b.Fill("pattern", "tenant-*")
	b.Fill("concurrency", "1")
	b.ClickButton("Set")
	b.WaitForText("The rule for tenant-* is set.")
	b.ClickButton("Undo")
	w.waitUntil("/v1/groups/tenant-*", func(v map[string]any) bool { return v["persisted"] == true && v["concurrency"] == float64(file) })
	b.CheckPolicy()
}

// TestEndedJobShowsNoBodyAsAnswer: once a job has ended, its body is not shown as its answer.
func TestEndedJobShowsNoBodyAsAnswer(t *testing.T) {
	w := start(t, nil)
	s, err := gloom.Dial(w.ctx, gloom.Addrs(w.srv.SubmitAddr().String()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Submit(w.ctx, gloom.Job{Type: "mail", ID: "a", Keep: time.Hour, Groups: []string{" x "}, Body: json.RawMessage(`"the request"`)})
	if err != nil {
		t.Fatal(err)
	}
	b := w.openPage("#/job/a")
	b.WaitForText("the request")
	_ = s.Close() // its client has the answer, so the outcome is no longer kept
	b.ClickButton("Change")
	b.Fill("priority", "7")
	b.ClickButton("Change")
	b.WaitForText("a is changed.")
	if v := w.callAPI("GET", "/v1/jobs/a", ""); fmt.Sprint(v["groups"]) != "[ x ]" {
		t.Errorf("its groups came to %q", v["groups"])
	}
	w.startWorker("mail", func(context.Context, *gloom.Job) (any, error) { return "the answer", nil })
	b.WaitForText("the answer")
	b.WaitForNoText("the request")
	b.CheckPolicy()
}

// TestLongBodyIsShownOnRequest: a small body is shown at once, a long one on request; a job's
// groups are links to their jobs.
func TestLongBodyIsShownOnRequest(t *testing.T) {
	w := start(t, nil)
	longBody := strings.Repeat("x", 20<<10)
	w.submit(gloom.Job{Type: "mail", ID: "short", Groups: []string{"acme", "a/b"}, Body: json.RawMessage(`"at once"`)},
		gloom.Job{Type: "mail", ID: "long", Body: json.RawMessage(`"` + longBody + `"`)})
	b := w.openPage("#/job/short")
	b.WaitForText("at once", "acme, a/b")
	pagetest.Eval[any](b, `[...document.querySelectorAll('.facts a')].find(a => a.innerText === 'a/b').click()`)
	b.WaitUntil(`document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 1`)
	b.WaitForText("short")
	b.GoTo("#/job/long")
	b.ClickButton("Show the body")
	b.WaitForText(longBody)
	b.CheckPolicy()
}

// TestTestJobsAreSubmitted submits test jobs, with and without an answer.
func TestTestJobsAreSubmitted(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("")
	b.ClickButton("Submit a test job")
	b.CheckAccessible("the dialog of a test job")
	b.Fill("type", "mail")
	b.Fill("body", `{"n":12345678901234567890`)
	b.ClickButton("Submit")
	b.WaitForText("The body is not JSON")
	b.Fill("body", `{"n":12345678901234567890}`)
	b.ClickButton("Submit")
	b.WaitForText("was answered:", `"sent"`)
	b.ClickButton("Close")
	b.ClickButton("Submit a test job")
	b.Fill("type", "rep")
	b.WaitUntil(`document.querySelector('dialog datalist').options.length === 1 && document.querySelector('dialog option').value === 'report'`)
	b.ClickButton("Close")
	b.GoTo("#/type/report")
	b.ClickButton("Test job")
	b.Fill("wait", "0")
	b.ClickButton("Submit")
	b.WaitForText("is queued.")
	pagetest.Eval[any](b, `document.querySelector('dialog a').click()`)
	b.WaitUntil(`location.hash.startsWith('#/job/') && !document.querySelector('dialog')`)
	b.WaitForText("Why it waits")
	b.GoTo("#/job/later")
	b.ClickButton("Duplicate")
	b.WaitUntil(`document.querySelector('dialog [name=body]').value.includes('"n": 12345678901234567890')`)
	b.Fill("wait", "0")
	b.ClickButton("Submit")
	b.WaitForText("is queued.")
	b.CheckPolicy()
}

// TestDrainAsksFirst: the page asks before it drains the broker.
func TestDrainAsksFirst(t *testing.T) {
	w := start(t, nil)
	b := w.openPage("")
	b.ClickButton("Drain")
	b.WaitForText("Drain the broker?")
	b.ClickButton("Leave it")
	b.ClickButton("Drain")
	b.ClickButton("Drain and stop")
	b.WaitForText("The broker is draining")
	select {
	case <-w.srv.DrainAsked():
	case <-time.After(patience):
		t.Error("the broker was not asked to drain")
	}
	b.CheckPolicy()
}
