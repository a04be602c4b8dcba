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
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// TestTypeActions does everything that may be done to a type.
func TestTypeActions(t *testing.T) {
	w := busy(t)
	b := w.open("#/type/report")
	b.Forgive("400 (Bad Request)") // of limits that cannot be
	b.Forgive("404 (Not Found)")   // of the type that is forgotten
	is := func(key string, want any) {
		t.Helper()
		w.until("/v1/types/report", func(v map[string]any) bool { return fmt.Sprint(v[key]) == fmt.Sprint(want) })
	}
	b.press("Pause")
	b.sees("report is paused", "Resume")
	is("paused", true)
	b.press("Undo")
	b.sees("Undone.", "Pause")
	is("paused", false)
	b.press("Pause")
	b.press("Resume")
	b.sees("report goes on.")
	is("paused", false)

	b.press("Limits")
	b.accessible("the dialog of limits")
	b.fill("concurrency", "7")
	b.fill("rate", "2.5")
	b.press("Set")
	b.sees("The limits of report are set.", "≤ 7 at a time", "≤ 2.5/s")
	is("limits", map[string]any{"burst": 0, "concurrency": 7, "rate": 2.5})
	b.press("Undo")
	b.gone("≤ 7 at a time")
	is("limits", map[string]any{"burst": 0, "concurrency": 0, "rate": 0})

	b.press("Take turns")
	b.sees("take turns now.")
	is("fair", true)

	b.press("Limits")
	b.fill("burst", "3") // which needs a rate
	b.press("Set")
	b.until(`document.querySelector('dialog [role=status]').innerText.startsWith('Not done: burst needs a rate')`)
	b.accessible("a dialog that did not do it")
	b.press("Leave it")

	// What fits is counted before it is asked about, and after.
	b.at("#/type/report?id=report-1")
	b.sees("report-19")
	b.press("Cancel all that fit")
	b.sees("Cancel 10 jobs of report?")
	b.press("Leave it")
	is("queued", 40)
	b.press("Cancel all that fit")
	b.press("Cancel 10 jobs")
	b.sees("10 jobs of report cancelled, 0 that fit are left.", "No job fits.")
	is("queued", 30)

	w.submit(gloom.Job{Type: "mial"})
	b.at("#/type/mial")
	b.press("Forget")
	b.sees("Forget mial?", "1 waiting job is discarded")
	b.press("Forget it")
	b.sees("mial is forgotten, 1 job discarded.", "No job or worker of this type")
	b.strict()
}

// TestJobActions does everything that may be done to a job.
func TestJobActions(t *testing.T) {
	w := busy(t)
	b := w.open("#/job/later")
	b.Forgive("404 (Not Found)") // of jobs that are over
	b.sees("delayed", "Why it waits: its delay or backoff")
	b.sees(`"n": 12345678901234567890`, `"empty": {}`, `"trace": "t-1"`)
	b.press("Change")
	b.fill("priority", "9223372036854775807")
	b.press("Change")
	b.sees("later is changed.", "9223372036854775807")
	b.press("Undo")
	b.gone("9223372036854775807")
	b.press("Run now")
	b.sees("later is ready.", "queued")
	b.press("Cancel")
	b.sees("Cancel later?", "cannot be undone")
	b.press("Cancel the job")
	b.sees("later: cancelled.", "cancelled by an operator", "Its life")

	b.at("#/job/picture-1")
	b.sees("running")
	b.press("Cancel")
	b.sees("It runs")
	b.press("Cancel the job")
	b.sees("picture-1: unwanted.")
	w.until("/v1/types/thumbnail", func(v map[string]any) bool { return v["queued"] == 0. }) // the worker has gone on to the other
	b.strict()
}

// TestDeadActions retries and discards failed jobs.
func TestDeadActions(t *testing.T) {
	w := busy(t)
	dead := func(n int) {
		t.Helper()
		w.until("/v1/types/invoice", func(v map[string]any) bool { return v["dead"] == float64(n) })
	}
	b := w.open("#/dead/invoice")
	b.sees("invoice-1")
	eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText === 'invoice-1').click()`)
	b.sees("no such address", "a@example.org", "All dead letters of this type")
	b.accessible("a dead letter")
	b.fits(320)
	b.size(1280, 900)
	b.until(`/^#.dead.invoice.invoice-1.no=\d+$/.test(location.hash)`)
	b.visit(w.url + "/" + eval[string](b, `return location.hash`))
	b.sees("a@example.org")
	b.at("#/dead/invoice")
	b.sees("invoice-2")
	w.ask("POST", "/v1/types/invoice/pause", "{}")
	b.press("Retry")
	b.sees("invoice-2 was retried.")
	dead(2)
	b.until(`![...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('invoice-2'))`) // its buttons are gone
	b.press("Discard")
	b.sees("Discard invoice-1?")
	b.press("Discard it")
	b.sees("invoice-1 is discarded.")
	dead(1)
	b.press("Discard all that fit")
	b.sees("Discard 1 dead letter of invoice?")
	b.press("Leave it")
	dead(1)
	b.at("#/dead")
	b.press("Retry all")
	b.sees("Retry 1 dead letter of invoice?")
	w.submit(gloom.Job{Type: "invoice", ID: "invoice-late"})
	w.ask("POST", "/v1/types/invoice/resume", "{}")
	dead(3) // more than was said: this one, and the one that was retried
	w.ask("POST", "/v1/types/invoice/pause", "{}")
	b.press("Retry 1 dead letter")
	b.sees("1 dead letter retried, 2 left.")
	dead(2)
	b.strict()
}

// TestChosen: rows are chosen one by one or all, and what may be done to each is done to
// those; what was refused is told.
func TestChosen(t *testing.T) {
	w := busy(t)
	b := w.open("#/jobs?id=report-0")
	choose := func(name string) {
		t.Helper()
		box := `document.querySelector('[aria-label="Choose ' + $0 + '"]')`
		b.until(box, name)
		eval[any](b, box+`.click()`, name)
	}
	choose("report-03")
	choose("report-05")
	b.accessible("chosen jobs")
	b.fits(320)
	b.size(1280, 900)
	b.press("Cancel 2 chosen")
	b.sees("Cancel 2 jobs?")
	b.press("Cancel 2 jobs")
	b.sees("2 jobs cancelled.")
	b.until(`document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 8`)
	b.until(`![...document.querySelectorAll('button')].some(e => e.innerText.includes('chosen'))`)
	choose("all that are shown")
	b.Forgive("404 (Not Found)") // of what somebody else cancels
	w.ask("DELETE", "/v1/jobs/report-00", "")
	b.press("Cancel 8 chosen")
	b.press("Cancel 8 jobs")
	b.sees("Not done: 1 of 8 refused: ")
	b.press("Leave it")
	w.until("/v1/types/report", func(v map[string]any) bool { return v["queued"] == 30. })

	w.ask("POST", "/v1/types/invoice/pause", "{}")
	b.at("#/dead/invoice")
	choose("invoice-0")
	choose("invoice-2")
	b.press("Retry 2 chosen")
	b.sees("2 dead letters retried.")
	choose("invoice-1")
	b.press("Discard 1 chosen")
	b.press("Discard 1 dead letter")
	b.sees("1 dead letter discarded.", "None is kept.")
	w.until("/v1/types/invoice", func(v map[string]any) bool { return v["dead"] == 0. && v["queued"] == 2. })
	b.strict()
}

// TestReasons: the overview of dead letters tells why they failed, without what differs
// from one to the next; what one needs to retry them is there on a telephone, too.
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
	b.sees("12 × dial … for …: timeout", "1 × no such address")
	b.fits(390)
	b.until(`[...document.querySelectorAll('button')].find(e => e.innerText === 'Retry all')?.checkVisibility()`)
	b.accessible("dead letters by reason")
	eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText.startsWith('dial')).click()`)
	b.until(`document.querySelectorAll('[aria-label="Dead letters"] tbody tr').length === 12`)
	b.until(`[...document.querySelectorAll('button')].find(e => e.innerText === 'Retry')?.checkVisibility()`)
	if *shots != "" {
		b.shot(filepath.Join(*shots, "dead-390.png"))
	}
	b.strict()
}

// TestTwice: what a dialog asks for is done once, and the focus comes back.
func TestTwice(t *testing.T) {
	w := start(t, nil)
	b := w.open("")
	b.press("Submit a test job")
	b.fill("type", "mail")
	b.fill("wait", "0")
	said := eval[bool](b, `const f = document.querySelector('dialog form'); f.requestSubmit(); f.requestSubmit(); f.requestSubmit();
		const go = f.querySelector('button.first');
		return go.innerText === 'Submit…' && go.ariaDisabled === 'true'`)
	if !said {
		t.Error("a dialog does not say that it is at it")
	}
	b.sees("is queued.")
	b.until(`document.querySelectorAll('.notes p').length === 1`)
	if v := w.ask("GET", "/v1/types/mail", ""); v["queued"] != 1. {
		t.Errorf("%v jobs were submitted", v["queued"])
	}
	b.press("Close")
	const drain = `[...document.querySelectorAll('button')].find(e => e.innerText === 'Drain')`
	b.until(drain)
	eval[any](b, `const e = `+drain+`; e.focus(); e.click()`)
	b.press("Leave it")
	b.until(`!document.querySelector('dialog') && document.activeElement.innerText === 'Drain'`)
	b.strict()
}

// TestGroupActions sets and removes rules.
func TestGroupActions(t *testing.T) {
	w := busy(t)
	b := w.open("#/groups")
	b.press("Add a rule")
	b.fill("pattern", "ac*")
	b.fill("concurrency", "0")
	b.press("Set")
	b.sees("The rule for ac* is set.", "an operator")
	b.press("Remove")
	b.sees("The rule for ac* is gone.", "There is no rule")
	b.press("Undo")
	b.sees("an operator")
	b.press("Add a rule") // the same once more
	b.fill("pattern", "ac*")
	b.fill("concurrency", "12")
	b.press("Set")
	rule := func(concurrency float64) {
		t.Helper()
		w.until("/v1/groups/ac*", func(v map[string]any) bool { return v["concurrency"] == concurrency })
	}
	rule(12)
	b.until(`!document.querySelector('dialog') && document.querySelectorAll('.notes button').length > 0`)
	b.press("Undo")
	rule(0)

	// Over a rule of the file an operator's goes again, for good.
	file := int64(5)
	if err := w.srv.Limits().Load(settings.FileLimits{Groups: map[string]broker.Rule{"tenant-*": {Concurrency: file}}}); err != nil {
		t.Fatal(err)
	}
	b.sees("the file of limits")
	b.press("Add a rule")
	b.fill("pattern", "tenant-*")
	b.fill("concurrency", "1")
	b.press("Set")
	b.sees("The rule for tenant-* is set.")
	b.press("Undo")
	w.until("/v1/groups/tenant-*", func(v map[string]any) bool { return v["persisted"] == true && v["concurrency"] == float64(file) })
	b.strict()
}

// TestOver: once a job is over, what was shown of its body is not taken for its
// answer.
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
	b.sees("the request")
	_ = s.Close() // who has got the answer wants it kept no longer
	b.press("Change")
	b.fill("priority", "7")
	b.press("Change")
	b.sees("a is changed.")
	if v := w.ask("GET", "/v1/jobs/a", ""); fmt.Sprint(v["groups"]) != "[ x ]" {
		t.Errorf("its groups came to %q", v["groups"])
	}
	w.work("mail", func(context.Context, *gloom.Job) (any, error) { return "the answer", nil })
	b.sees("the answer")
	b.gone("the request")
	b.strict()
}

// TestBodies: a small body is there at once, a long one once it is asked for; a job's
// groups lead to their jobs.
func TestBodies(t *testing.T) {
	w := start(t, nil)
	long := strings.Repeat("x", 20<<10)
	w.submit(gloom.Job{Type: "mail", ID: "short", Groups: []string{"acme", "a/b"}, Body: json.RawMessage(`"at once"`)},
		gloom.Job{Type: "mail", ID: "long", Body: json.RawMessage(`"` + long + `"`)})
	b := w.open("#/job/short")
	b.sees("at once", "acme, a/b")
	eval[any](b, `[...document.querySelectorAll('.facts a')].find(a => a.innerText === 'a/b').click()`)
	b.until(`document.querySelectorAll('[aria-label="Jobs"] tbody tr').length === 1`)
	b.sees("short")
	b.at("#/job/long")
	b.press("Show the body")
	b.sees(long)
	b.strict()
}

// TestSubmit hands in test jobs, with an answer and without.
func TestSubmit(t *testing.T) {
	w := busy(t)
	b := w.open("")
	b.press("Submit a test job")
	b.accessible("the dialog of a test job")
	b.fill("type", "mail")
	b.fill("body", `{"n":12345678901234567890`)
	b.press("Submit")
	b.sees("The body is no JSON")
	b.fill("body", `{"n":12345678901234567890}`)
	b.press("Submit")
	b.sees("was answered:", `"sent"`)
	b.press("Close")
	b.press("Submit a test job")
	b.fill("type", "rep")
	b.until(`document.querySelector('dialog datalist').options.length === 1 && document.querySelector('dialog option').value === 'report'`)
	b.press("Close")
	b.at("#/type/report")
	b.press("Test job")
	b.fill("wait", "0")
	b.press("Submit")
	b.sees("is queued.")
	eval[any](b, `document.querySelector('dialog a').click()`)
	b.until(`location.hash.startsWith('#/job/') && !document.querySelector('dialog')`)
	b.sees("Why it waits")
	b.strict()
}

// TestDrain asks before it ends the broker.
func TestDrain(t *testing.T) {
	w := start(t, nil)
	b := w.open("")
	b.press("Drain")
	b.sees("Drain the broker?")
	b.press("Leave it")
	b.press("Drain")
	b.press("Drain and stop")
	b.sees("The broker drains")
	select {
	case <-w.srv.Asked():
	case <-time.After(patience):
		t.Error("the broker was not asked to drain")
	}
	b.strict()
}
