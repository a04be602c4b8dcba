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
	w := busy(t)
	b := w.open("#/type/report")
	b.Forgive("400 (Bad Request)") // of invalid limits
	b.Forgive("404 (Not Found)")   // for the forgotten type
	is := func(key string, want any) {
		t.Helper()
		w.until("/v1/types/report", func(v map[string]any) bool { return fmt.Sprint(v[key]) == fmt.Sprint(want) })
	}
	b.Press("Pause")
	b.Sees("report is paused", "Resume")
	is("paused", true)
	b.Press("Undo")
	b.Sees("Undone.", "Pause")
	is("paused", false)
	b.Press("Pause")
	b.Press("Resume")
	b.Sees("report is resumed.")
	is("paused", false)

	b.Press("Limits")
	b.Accessible("the dialog of limits")
	b.Fill("concurrency", "7")
	b.Fill("rate", "2.5")
	b.Press("Set")
	b.Sees("The limits of report are set.", "≤ 7 at a time", "≤ 2.5/s")
	is("limits", map[string]any{"burst": 0, "concurrency": 7, "rate": 2.5})
	b.Press("Undo")
	b.Gone("≤ 7 at a time")
	is("limits", map[string]any{"burst": 0, "concurrency": 0, "rate": 0})

	b.Press("Take turns")
	b.Sees("take turns now.")
	is("fair", true)

	b.Press("Limits")
	b.Fill("burst", "3") // invalid without a rate
	b.Press("Set")
	b.Until(`document.querySelector('dialog [role=status]').innerText.startsWith('Not done: burst needs a rate')`)
	b.Accessible("a dialog that did not do it")
	b.Press("Leave it")

	// The matching jobs are counted before the page asks, and again after the action.
	b.At("#/type/report?id=report-1")
	b.Sees("report-19")
	b.Press("Cancel all that match")
	b.Sees("Cancel 10 jobs of report?")
	b.Press("Leave it")
	is("queued", 40)
	b.Press("Cancel all that match")
	b.Press("Cancel 10 jobs")
	b.Sees("10 jobs of report cancelled, 0 that match are left.", "No job matches.")
	is("queued", 30)

	w.submit(gloom.Job{Type: "mial"})
	b.At("#/type/mial")
	b.Press("Forget")
	b.Sees("Forget mial?", "1 waiting job is discarded")
	b.Press("Forget it")
	b.Sees("mial is forgotten, 1 job discarded.", "No job or worker of this type")
	b.Strict()
}

// TestJobActions uses every action that the page offers for a job.
func TestJobActions(t *testing.T) {
	w := busy(t)
	b := w.open("#/job/later")
	b.Forgive("404 (Not Found)") // for jobs that have ended
	b.Sees("delayed", "Why it waits: its delay or backoff")
	b.Sees(`"n": 12345678901234567890`, `"empty": {}`, `"trace": "t-1"`)
	b.Press("Change")
	b.Fill("priority", "9223372036854775807")
	b.Press("Change")
	b.Sees("later is changed.", "9223372036854775807")
	b.Press("Undo")
	b.Gone("9223372036854775807")
	b.Press("Run now")
	b.Sees("later is ready.", "queued")
	b.Press("Cancel")
	b.Sees("Cancel later?", "cannot be undone")
	b.Press("Cancel the job")
	b.Sees("later: cancelled.", "cancelled by an operator", "Its life")

	b.At("#/job/picture-1")
	b.Sees("running")
	b.Press("Cancel")
	b.Sees("It is running")
	b.Press("Cancel the job")
	b.Sees("picture-1: unwanted.")
	w.until("/v1/types/thumbnail", func(v map[string]any) bool { return v["queued"] == 0. }) // the worker has continued with the other job
	b.Strict()
}

// TestDeadActions retries and discards failed jobs.
func TestDeadActions(t *testing.T) {
	w := busy(t)
	dead := func(n int) {
		t.Helper()
		w.until("/v1/types/invoice", func(v map[string]any) bool { return v["dead"] == float64(n) })
	}
	b := w.open("#/dead/invoice")
	b.Sees("invoice-1")
	pagetest.Eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText === 'invoice-1').click()`)
	b.Sees("no such address", "a@example.org", "All dead letters of this type")
	b.Accessible("a dead letter")
	b.Fits(320)
	b.Size(1280, 900)
	b.Until(`/^#.dead.invoice.invoice-1.no=\d+$/.test(location.hash)`)
	b.Visit(w.url + "/" + pagetest.Eval[string](b, `return location.hash`))
	b.Sees("a@example.org")
	b.At("#/dead/invoice")
	b.Sees("invoice-2")
	w.ask("POST", "/v1/types/invoice/pause", "{}")
	b.Press("Retry")
	b.Sees("invoice-2 was retried.")
	dead(2)
	b.Until(`![...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('invoice-2'))`) // its row is gone
	b.Press("Discard")
	b.Sees("Discard invoice-1?")
	b.Press("Discard it")
	b.Sees("invoice-1 is discarded.")
	dead(1)
	b.Press("Discard all that match")
	b.Sees("Discard 1 dead letter of invoice?")
	b.Press("Leave it")
	dead(1)
	b.At("#/dead")
	b.Press("Retry all")
	b.Sees("Retry 1 dead letter of invoice?")
	w.submit(gloom.Job{Type: "invoice", ID: "invoice-late"})
	w.ask("POST", "/v1/types/invoice/resume", "{}")
	dead(3) // two more than the dialog said: invoice-late, and the job that was retried
	w.ask("POST", "/v1/types/invoice/pause", "{}")
	b.Press("Retry 1 dead letter")
	b.Sees("1 dead letter retried, 2 left.")
	dead(2)
	b.Strict()
}

// TestChosen: rows are chosen one by one or all together, and the actions apply to the
// chosen ones; refusals are reported.
func TestChosen(t *testing.T) {
	w := busy(t)
	b := w.open("#/jobs?id=report-0")
	choose := func(name string) {
		t.Helper()
		box := `document.querySelector('[aria-label="Choose ' + $0 + '"]')`
		b.Until(box, name)
		pagetest.Eval[any](b, box+`.click()`, name)
	}
	choose("report-03")
	choose("report-05")
	b.Accessible("chosen jobs")
	b.Fits(320)
	b.Size(1280, 900)
	b.Press("Cancel 2 selected")
	b.Sees("Cancel 2 jobs?")
	b.Press("Cancel 2 jobs")
	b.Sees("2 jobs cancelled.")
	b.Until(`document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 8`)
	b.Until(`![...document.querySelectorAll('button')].some(e => e.innerText.includes('selected'))`)
	choose("all that are shown")
	b.Forgive("404 (Not Found)") // for the job that another client cancels
	w.ask("DELETE", "/v1/jobs/report-00", "")
	b.Press("Cancel 8 selected")
	b.Press("Cancel 8 jobs")
	b.Sees("Not done: 1 of 8 refused: ")
	b.Press("Leave it")
	w.until("/v1/types/report", func(v map[string]any) bool { return v["queued"] == 30. })

	w.ask("POST", "/v1/types/invoice/pause", "{}")
	b.At("#/dead/invoice")
	choose("invoice-0")
	choose("invoice-2")
	b.Press("Retry 2 selected")
	b.Sees("2 dead letters retried.")
	choose("invoice-1")
	b.Press("Discard 1 selected")
	b.Press("Discard 1 dead letter")
	b.Sees("1 dead letter discarded.", "None is kept.")
	w.until("/v1/types/invoice", func(v map[string]any) bool { return v["dead"] == 0. && v["queued"] == 2. })
	b.Strict()
}

// TestReasons: the overview of dead letters shows why jobs failed, and counts reasons that
// differ only in numbers and ids as one. What is needed to retry the jobs is visible on a
// telephone, too.
func TestReasons(t *testing.T) {
	w := start(t, nil)
	w.work("mail", func(_ context.Context, j *gloom.Job) (any, error) {
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
	w.until("/v1/types/mail", func(v map[string]any) bool { return v["dead"] == 13. })
	b := w.open("#/dead")
	b.Sees("12 × dial … for …: timeout", "1 × no such address")
	b.Fits(390)
	b.Until(`[...document.querySelectorAll('button')].find(e => e.innerText === 'Retry all')?.checkVisibility()`)
	b.Accessible("dead letters by reason")
	pagetest.Eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText.startsWith('dial')).click()`)
	b.Until(`document.querySelectorAll('[aria-label="Dead letters"] tbody tr').length === 12`)
	b.Until(`[...document.querySelectorAll('button')].find(e => e.innerText === 'Retry')?.checkVisibility()`)
	if *shots != "" {
		b.Shot(filepath.Join(*shots, "dead-390.png"))
	}
	b.Strict()
}

// TestTwice: a dialog's action is carried out once, even if the form is submitted several times;
// when the dialog is closed, the focus returns to where it was.
func TestTwice(t *testing.T) {
	w := start(t, nil)
	b := w.open("")
	b.Press("Submit a test job")
	b.Fill("type", "mail")
	b.Fill("wait", "0")
	shown := pagetest.Eval[bool](b, `const f = document.querySelector('dialog form'); f.requestSubmit(); f.requestSubmit(); f.requestSubmit();
		const go = f.querySelector('button.first');
		return go.innerText === 'Submit…' && go.ariaDisabled === 'true'`)
	if !shown {
		t.Error("a dialog does not say that it is working")
	}
	b.Sees("is queued.")
	b.Until(`document.querySelectorAll('.notes p').length === 1`)
	if v := w.ask("GET", "/v1/types/mail", ""); v["queued"] != 1. {
		t.Errorf("%v jobs were submitted", v["queued"])
	}
	b.Press("Close")
	const drain = `[...document.querySelectorAll('button')].find(e => e.innerText === 'Drain')`
	b.Until(drain)
	pagetest.Eval[any](b, `const e = `+drain+`; e.focus(); e.click()`)
	b.Press("Leave it")
	b.Until(`!document.querySelector('dialog') && document.activeElement.innerText === 'Drain'`)
	b.Strict()
}

// TestGroupActions sets and removes rules.
func TestGroupActions(t *testing.T) {
	w := busy(t)
	b := w.open("#/groups")
	b.Press("Add a rule")
	b.Fill("pattern", "ac*")
	b.Fill("concurrency", "0")
	b.Press("Set")
	b.Sees("The rule for ac* is set.", "an operator")
	b.Press("Remove")
	b.Sees("The rule for ac* was removed.", "There is no rule")
	b.Press("Undo")
	b.Sees("an operator")
	b.Press("Add a rule") // the dialog can also change the rule of a pattern that has one
	b.Fill("pattern", "ac*")
	b.Fill("concurrency", "12")
	b.Press("Set")
	rule := func(concurrency float64) {
		t.Helper()
		w.until("/v1/groups/ac*", func(v map[string]any) bool { return v["concurrency"] == concurrency })
	}
	rule(12)
	b.Until(`!document.querySelector('dialog') && document.querySelectorAll('.notes button').length > 0`)
	b.Press("Undo")
	rule(0)

	// Undo removes an operator's rule for good: the rule of the file is in force again.
	file := int64(5)
	if err := w.srv.Limits().Load(settings.FileLimits{Groups: map[string]broker.Rule{"tenant-*": {Concurrency: file}}}); err != nil {
		t.Fatal(err)
	}
	b.Sees("the file of limits")
	b.Press("Add a rule")
	b.Fill("pattern", "tenant-*")
	b.Fill("concurrency", "1")
	b.Press("Set")
	b.Sees("The rule for tenant-* is set.")
	b.Press("Undo")
	w.until("/v1/groups/tenant-*", func(v map[string]any) bool { return v["persisted"] == true && v["concurrency"] == float64(file) })
	b.Strict()
}

// TestOver: once a job has ended, its body is not shown as its answer.
func TestOver(t *testing.T) {
	w := start(t, nil)
	s, err := gloom.Dial(w.ctx, gloom.Addrs(w.srv.SubmitAddr().String()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Submit(w.ctx, gloom.Job{Type: "mail", ID: "a", Keep: time.Hour, Groups: []string{" x "}, Body: json.RawMessage(`"the request"`)})
	if err != nil {
		t.Fatal(err)
	}
	b := w.open("#/job/a")
	b.Sees("the request")
	_ = s.Close() // its client has the answer, so the outcome is no longer kept
	b.Press("Change")
	b.Fill("priority", "7")
	b.Press("Change")
	b.Sees("a is changed.")
	if v := w.ask("GET", "/v1/jobs/a", ""); fmt.Sprint(v["groups"]) != "[ x ]" {
		t.Errorf("its groups came to %q", v["groups"])
	}
	w.work("mail", func(context.Context, *gloom.Job) (any, error) { return "the answer", nil })
	b.Sees("the answer")
	b.Gone("the request")
	b.Strict()
}

// TestBodies: a small body is shown at once, a long one on request; a job's groups are
// links to their jobs.
func TestBodies(t *testing.T) {
	w := start(t, nil)
	long := strings.Repeat("x", 20<<10)
	w.submit(gloom.Job{Type: "mail", ID: "short", Groups: []string{"acme", "a/b"}, Body: json.RawMessage(`"at once"`)},
		gloom.Job{Type: "mail", ID: "long", Body: json.RawMessage(`"` + long + `"`)})
	b := w.open("#/job/short")
	b.Sees("at once", "acme, a/b")
	pagetest.Eval[any](b, `[...document.querySelectorAll('.facts a')].find(a => a.innerText === 'a/b').click()`)
	b.Until(`document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 1`)
	b.Sees("short")
	b.At("#/job/long")
	b.Press("Show the body")
	b.Sees(long)
	b.Strict()
}

// TestSubmit submits test jobs, with and without an answer.
func TestSubmit(t *testing.T) {
	w := busy(t)
	b := w.open("")
	b.Press("Submit a test job")
	b.Accessible("the dialog of a test job")
	b.Fill("type", "mail")
	b.Fill("body", `{"n":12345678901234567890`)
	b.Press("Submit")
	b.Sees("The body is not JSON")
	b.Fill("body", `{"n":12345678901234567890}`)
	b.Press("Submit")
	b.Sees("was answered:", `"sent"`)
	b.Press("Close")
	b.Press("Submit a test job")
	b.Fill("type", "rep")
	b.Until(`document.querySelector('dialog datalist').options.length === 1 && document.querySelector('dialog option').value === 'report'`)
	b.Press("Close")
	b.At("#/type/report")
	b.Press("Test job")
	b.Fill("wait", "0")
	b.Press("Submit")
	b.Sees("is queued.")
	pagetest.Eval[any](b, `document.querySelector('dialog a').click()`)
	b.Until(`location.hash.startsWith('#/job/') && !document.querySelector('dialog')`)
	b.Sees("Why it waits")
	b.At("#/job/later")
	b.Press("Duplicate")
	b.Until(`document.querySelector('dialog [name=body]').value.includes('"n": 12345678901234567890')`)
	b.Fill("wait", "0")
	b.Press("Submit")
	b.Sees("is queued.")
	b.Strict()
}

// TestDrain: the page asks before it drains the broker.
func TestDrain(t *testing.T) {
	w := start(t, nil)
	b := w.open("")
	b.Press("Drain")
	b.Sees("Drain the broker?")
	b.Press("Leave it")
	b.Press("Drain")
	b.Press("Drain and stop")
	b.Sees("The broker is draining")
	select {
	case <-w.srv.DrainAsked():
	case <-time.After(patience):
		t.Error("the broker was not asked to drain")
	}
	b.Strict()
}
