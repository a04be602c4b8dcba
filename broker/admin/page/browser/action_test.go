package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gloom/broker"
	"gloom/broker/server"
	gloom "gloom/clients/go"
)

// TestTypeActions does everything that may be done to a type.
func TestTypeActions(t *testing.T) {
	w := busy(t)
	b := w.open("#/type/report")
	b.Forgive("400 (Bad Request)") // of limits that cannot be
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
	b.strict()
}

// TestJobActions does everything that may be done to a job.
func TestJobActions(t *testing.T) {
	w := busy(t)
	b := w.open("#/job/later")
	b.Forgive("404 (Not Found)") // of jobs that are over
	b.sees("delayed", "Why it waits: its delay or backoff")
	b.press("Show the body")
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
	b.sees("later: cancelled.", "No job with this id waits or runs")

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
	b.press("invoice-1")
	b.sees("handed out 1 time", "a@example.org")
	b.press("Close")
	w.ask("POST", "/v1/types/invoice/pause", "{}")
	b.press("Retry")
	b.sees("invoice-2 was handed in again.")
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
	b.sees("1 dead letter handed in again, 2 left.")
	dead(2)
	b.strict()
}

// TestDotNames: browsers take "." and ".." out of paths; what has such a name is seen
// like everything, and what is meant for one letter is not done to all.
func TestDotNames(t *testing.T) {
	w := start(t, nil)
	w.work("mail", broken)
	w.submit(gloom.Job{Type: "mail", ID: "."}, gloom.Job{Type: "mail", ID: ".."}, gloom.Job{Type: "mail", ID: "other"})
	dead := func(v map[string]any) bool { return v["dead"] == 3. }
	w.until("/v1/types/mail", dead)
	b := w.open("#/dead/mail?id=.")
	b.Forgive("404 (Not Found)") // of the job that is over
	b.sees("no such address")
	b.gone("other")
	b.press(".") // the earlier one comes second
	b.sees("handed out 1 time", "a@example.org")
	b.press("Close")
	b.press("Discard")
	b.sees("Discard ..?")
	b.press("Discard it")
	b.sees(".. is discarded.")
	w.until("/v1/types/mail", func(v map[string]any) bool { return v["dead"] == 2. })

	w.submit(gloom.Job{Type: ".", ID: "..", Groups: []string{"."}}, gloom.Job{Type: "..", ID: "."})
	b.at("#/type/.")
	b.sees("none has joined", "no worker has joined its type")
	b.press("Pause")
	b.sees(". is paused")
	eval[any](b, `document.querySelector('[aria-label="Jobs"] tbody a').click()`)
	b.sees("Why it waits: its type is paused")
	b.press("Cancel")
	b.press("Cancel the job")
	b.sees("..: cancelled.")
	b.at("#/groups")
	b.press("Add a rule")
	b.fill("pattern", "..")
	b.fill("concurrency", "3")
	b.press("Set")
	b.sees("The rule for .. is set.")
	if v := w.ask("GET", "/v1/groups/%FF..", ""); v["concurrency"] != 3. {
		t.Errorf("the rule is %v", v)
	}
	b.at("#/job/.")
	b.sees("Why it waits: no worker has joined its type")
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
	eval[any](b, `const e = [...document.querySelectorAll('button')].find(e => e.innerText === 'Drain'); e.focus(); e.click()`)
	b.press("Leave it")
	b.until(`!document.querySelector('dialog') && document.activeElement.innerText === 'Drain'`)
	b.strict()
}

// TestLongBodies: the page lays out what is long or deep, and does not break.
func TestLongBodies(t *testing.T) {
	w := start(t, nil)
	b := w.open("")
	sizes := eval[[]int](b, `const { pretty, members } = await import('/format.js');
		const deep = 200_000, plain = '"' + 'x'.repeat(15e6) + '"', escapes = '"' + '\\"'.repeat(7e6) + '"';
		return [pretty('['.repeat(deep) + ']'.repeat(deep)).length, pretty(plain).length, pretty(escapes).length,
			members('{"body":' + escapes + ',"n":1}').body.length, pretty('{"a":[1,"\\""]}').length]`)
	for i, most := range []int{3_000_000, 15_000_002, 14_000_002, 14_000_002, 32} {
		if sizes[i] > most || sizes[i] < most/2 {
			t.Errorf("text %d came to %d characters, want half of %d to that", i, sizes[i], most)
		}
	}
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
	if err := w.srv.Limits().Load(server.FileLimits{Groups: map[string]broker.Rule{"tenant-*": {Concurrency: file}}}); err != nil {
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
	b.press("Show the body")
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
	b.sees("Show the answer")
	b.gone("the request")
	b.press("Show the answer")
	b.sees("the answer")
	b.strict()
}

// TestRuns: a job tells of its runs so far.
func TestRuns(t *testing.T) {
	w := start(t, nil)
	w.work("mail", func(context.Context, *gloom.Job) (any, error) { return nil, errors.New("the server was busy") })
	w.submit(gloom.Job{Type: "mail", ID: "a", Backoff: time.Hour})
	b := w.open("#/job/a")
	b.sees("Runs so far", "the server was busy", "worker of tests", "1 time, 3 retries allowed")
	b.accessible("runs")
	b.strict()
}

// TestListings: rows are those of the type that is shown, and of now.
func TestListings(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "mail", ID: "mail-1"}, gloom.Job{Type: "report", ID: "report-1"})
	b := w.open("#/type/mail")
	b.sees("mail-1", "as of")
	mixed := eval[bool](b, `let mixed = false;
		const look = () => { mixed ||= document.querySelector('h1').innerText === 'report' && document.body.innerText.includes('mail-1'); };
		new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
		location.hash = '#/type/report';
		for (let i = 0; i < 300 && !document.body.innerText.includes('report-1'); i++) await new Promise(go => setTimeout(go, 20));
		return mixed`)
	if mixed {
		t.Error("jobs of mail were shown as those of report")
	}
	b.sees("report-1")
	b.until(`document.activeElement === document.querySelector('main')`)
	b.at("#/")
	b.sees("Types with most to do")
	w.submit(gloom.Job{Type: "report", ID: "report-2"})
	b.at("#/type/report")
	b.sees("report-1", "report-2")
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
	b.at("#/type/report")
	b.press("Test job")
	b.fill("wait", "0")
	b.press("Submit")
	b.sees("is queued.")
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

// hostile are texts that would do harm where they are not only shown.
var hostile = []string{
	`<img src=x onerror="window.harm=1">`, `"><script>window.harm=2</script>`, `javascript:window.harm=3`,
	`'-alert(1)-'${window.harm=4}`, "new\nline\u2028\u202e\u0000tail", `../../v1/drain?x=%2e%2e#/types`, `</textarea></dialog><b>bold`, strings.Repeat("W", 900),
}

// TestHostile has hostile texts for types, ids, groups, reasons, bodies and client
// names, and looks at each view that shows them.
func TestHostile(t *testing.T) {
	w := start(t, nil)
	b := w.open("")
	b.Forgive("404 (Not Found)")
	enc := func(s string) string { return eval[string](b, `return encodeURIComponent($0)`, s) }
	var jobs []gloom.Job
	for _, text := range hostile {
		body, _ := json.Marshal(map[string]string{text: text})
		w.work("dead"+text, broken)
		jobs = append(jobs, gloom.Job{Type: "t" + text, ID: "i" + text, Body: body, Groups: []string{"g" + text}, Headers: gloom.Headers(body)[:min(len(body), 4000)]},
			gloom.Job{Type: "dead" + text, ID: "d" + text, Body: body, Retries: gloom.NoRetries})
	}
	w.submit(jobs...)
	w.until("/v1/status", func(v map[string]any) bool { return v["dead"] == float64(len(hostile)) })
	for i, text := range hostile {
		first := text
		if len(text) > 100 || strings.ContainsAny(text, "\n\x00") {
			first = text[:3]
		}
		for _, v := range []string{"#/type/" + enc("t"+text), "#/dead/" + enc("dead"+text), "#/jobs?id=" + enc(text), "#/job/" + enc("i"+text)} {
			b.at(v)
			b.sees(first)
			b.fits(320)
		}
		b.press("Show the body")
		b.until(`document.querySelector('pre')`)
		if eval[bool](b, `return 'harm' in window || document.querySelector('main script, main img, main b b') !== null`) {
			t.Errorf("text %d, %.60q, did harm", i, text)
		}
	}
	for _, route := range []string{"#/groups", "#/", "#/types", "#/workers", "#/dead", "#/jobs"} {
		b.at(route)
		b.sees("onerror")
		if eval[bool](b, `return 'harm' in window || document.querySelector('main script, main img, main b b') !== null`) {
			t.Errorf("%s did harm", route)
		}
		for _, width := range []int64{320, 1280} {
			b.fits(width)
		}
	}
	b.accessible("hostile")
	b.strict()
}

// TestDirection: a name that is written from right to left turns nothing else around.
func TestDirection(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "\u202egnp", ID: "\u202eboj"})
	b := w.open("")
	b.Forgive("404 (Not Found)") // once the job is cancelled
	b.sees("no worker serves")
	if eval[bool](b, `const text = document.querySelector('.findings b').nextSibling.nextSibling ?? document.querySelector('.findings b').nextSibling;
		const left = i => { const r = document.createRange(); r.setStart(text, i); r.setEnd(text, i + 1); return r.getBoundingClientRect().left; };
		return left(2) > left(8)`) {
		t.Error("a finding is written from right to left")
	}
	b.at("#/type/" + eval[string](b, `return encodeURIComponent($0)`, "\u202egnp"))
	b.sees(`\u202eboj`)
	for _, what := range []string{"h1", "[aria-label=Jobs] .id"} {
		if text := eval[string](b, `return document.querySelector($0).innerText`, what); text[0] != '\\' {
			t.Errorf("%s is %q", what, text)
		}
	}
	b.at("#/job/" + eval[string](b, `return encodeURIComponent($0)`, "\u202eboj"))
	b.press("Cancel")
	b.sees(`Cancel \u202eboj?`)
	b.press("Cancel the job")
	b.sees(`\u202eboj: cancelled.`)
	b.strict()
}

// TestTokens: the page asks for a token, keeps it to itself, and offers what it
// allows.
func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("secret-a admin\nsecret-w watch\nsecret-s submit\nsecret-ws watch,submit\nsecret-wm watch,submit mail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *server.Options) { o.TokenFile = file })
	b := w.open("#/type/none")
	b.Forgive("401 (Unauthorized)")
	b.Forgive("403 (Forbidden)")
	b.Forgive("404 (Not Found)")
	enter := func(token string) {
		t.Helper()
		b.fill("token", token)
		b.press("Go in")
	}
	b.sees("This broker wants a token")
	b.accessible("the door")
	enter("wrong")
	b.sees("Asking. A wrong token is refused slowly…")
	b.sees("does not know this token")
	enter("secret-s")
	b.sees("This token may not look")
	enter("secret-w")
	b.sees("Overview")
	b.at("#/")
	b.sees("No job has come")
	if text := b.text(); strings.Contains(text, "Drain") || strings.Contains(text, "Submit a test job") {
		t.Errorf("who may watch is offered more:\n%s", text)
	}
	if kept := eval[bool](b, `return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]).includes('secret')`); kept {
		t.Error("the token was kept")
	}
	b.visit(w.url + "/")
	b.sees("This broker wants a token")
	enter("secret-ws")
	b.sees("Submit a test job")
	b.visit(w.url + "/")
	enter("secret-wm")
	b.at("#/type/mail")
	b.sees("Test job")
	b.at("#/type/sms")
	b.sees("No job or worker of this type")
	b.gone("Test job")
	b.visit(w.url + "/")
	enter("secret-a")
	b.sees("Drain")
	b.strict()
}

// TestRestart: a page that stays open says that the broker is away, and goes on
// with the next one.
func TestRestart(t *testing.T) {
	w := start(t, nil)
	b := w.open("")
	b.Forgive("net::ERR", "Failed to fetch")
	w.submit(gloom.Job{Type: "before"})
	b.sees("before")
	submit, http_ := w.srv.SubmitAddr().String(), w.srv.HTTPAddr().String()
	_ = w.srv.Close()
	b.sees("The broker does not answer", "Trying again", "before", "Not known: the broker is away")
	b.gone("All is well")
	b.until(`document.title.startsWith('away')`)
	b.accessible("away")
	b.at("#/workers") // whose script has not come
	b.sees("This view could not be loaded.")
	again := start(t, func(o *server.Options) { o.SubmitAddr, o.HTTPAddr, o.Version = submit, http_, "v2.0.0" })
	b.gone("The broker does not answer")
	b.sees("No worker is connected.")
	b.at("#/")
	b.sees("v2.0.0", "No job has come")
	again.submit(gloom.Job{Type: "after"})
	b.sees("after")
	b.strict()
}

// TestManyTypes: of ten thousand types, those in sight are drawn.
func TestManyTypes(t *testing.T) {
	most, shown := 10_000, "10,000 types"
	if testing.Short() {
		most, shown = 2_000, "2,000 types"
	}
	w := start(t, nil)
	var jobs []gloom.Job
	for i := range most {
		jobs = append(jobs, gloom.Job{Type: fmt.Sprintf("type-%05d", i), Body: json.RawMessage("1")})
	}
	last := jobs[most-1].Type
	w.submit(jobs...)
	b := w.open("#/types?sort=type")
	b.sees(shown, "type-00000")
	rows := func() int { return eval[int](b, `return document.querySelectorAll('tbody tr').length`) }
	if n := rows(); n > 100 {
		t.Errorf("%d rows are drawn", n)
	}
	// While it is scrolled from end to end, no frame takes long.
	worst := eval[float64](b, `
		const box = document.querySelector('.long');
		let last = performance.now(), worst = 0;
		for (let i = 0; i <= 60; i++) {
			box.scrollTop = box.scrollHeight * i / 60;
			await new Promise(requestAnimationFrame);
			const now = performance.now();
			worst = Math.max(worst, now - last);
			last = now;
		}
		return worst`)
	t.Logf("the slowest of 60 frames took %.0f ms", worst)
	b.sees(last)
	if n := rows(); n > 100 {
		t.Errorf("%d rows are drawn", n)
	}
	eval[any](b, `document.querySelector('th button').click()`)
	b.until(`document.querySelector('.long').scrollTop === 0`)
	b.sees(last)
	b.at("#/types?filter=E-0177")
	b.sees("10 types", "type-01770")
	b.accessible("many types")
	b.at("#/types")
	b.sees("type-00000")
	b.size(320, 640)
	if cut := eval[bool](b, `const e = document.querySelector('tbody td.num'); return e.scrollWidth > e.clientWidth`); cut {
		t.Error("in a narrow window figures are cut off")
	}
	b.strict()
}

// TestScrolled: what is asked for while one scrolls is drawn when it comes, though nothing
// else comes any more.
func TestScrolled(t *testing.T) {
	w := start(t, nil)
	var jobs []gloom.Job
	for i := range 500 {
		jobs = append(jobs, gloom.Job{Type: fmt.Sprintf("type-%05d", i), Body: json.RawMessage("1")})
	}
	w.submit(jobs...)
	b := newTab(t, chromium, chromedp.WithNewBrowserContext())
	b.onNew(`delete window.SharedWorker;
		window.setInterval = () => 0;
		const ask = window.fetch;
		const quiet = () => new TransformStream({ transform(chunk, to) { window.still || to.enqueue(chunk); } });
		window.fetch = async (url, init) => {
			if (window.still && !url.includes('cursor')) return new Promise(() => {});
			const r = await ask(url, init);
			return url === '/v1/events' ? new Response(r.body.pipeThrough(quiet()), r) : r;
		};`)
	b.visit(w.url + "/#/types?sort=type")
	b.sees("500 types", "type-00000")
	eval[any](b, `window.still = true; const box = document.querySelector('.long'); box.scrollTop = box.scrollHeight`)
	b.sees("type-00499")
	b.strict()
}

// TestManyFindings: a type tells what is the matter with it, however many others are worse.
func TestManyFindings(t *testing.T) {
	w := start(t, nil)
	var jobs []gloom.Job
	for i := range 30 {
		for range 30 - i {
			jobs = append(jobs, gloom.Job{Type: fmt.Sprintf("type-%02d", i)})
		}
	}
	w.submit(jobs...)
	b := w.open("#/type/type-29")
	b.sees("no worker serves the type")
	b.at("#/")
	b.sees("30 things are wrong", "type-07", "and 22 more")
	b.until(`document.querySelector('nav .badge.severe').innerText === '30'`)
	b.press("and 22 more")
	b.sees("type-19", "and 10 more: gloom findings")
	b.strict()
}

// TestKeyboard goes everywhere without a pointer.
func TestKeyboard(t *testing.T) {
	w := busy(t)
	b := w.open("")
	b.sees("Types with most to do")
	b.keys("?")
	b.sees("find a job or a type", "gloom explain ID and gloom findings")
	b.until(`document.activeElement.closest('dialog')`)
	b.keys("\x1b")
	b.until(`!document.querySelector('dialog')`)
	for i, name := range []string{"Overview", "Types", "Workers", "Submitters", "Groups", "Dead letters", "Jobs"} {
		b.keys(fmt.Sprint(i + 1))
		b.until(`document.querySelector('nav [aria-current]')?.innerText === $0`, name)
	}
	b.keys("/")
	b.until(`document.activeElement.id === 'find'`)
	b.keys("report-07\r")
	b.sees("Why it waits")
	b.Forgive("404 (Not Found)") // no job has such an id
	b.keys("/")
	b.keys("thumb\r")
	b.until(`location.hash === '#/type/thumbnail'`)
	b.keys("/")
	b.keys("no such thing\r")
	b.sees("No job fits.")
	b.keys("/")
	b.keys("invoice-1\r")
	b.sees("failed and is kept: invoice")
	b.at("#/job/invoice-1")
	b.sees("No job with this id", "failed and is kept: invoice")
	// What has the focus is seen, wherever the tabulator goes.
	b.at("#/type/report")
	b.sees("report-00")
	seen := map[string]bool{}
	for range 25 {
		b.keys("\t")
		x := eval[[]string](b, `const e = document.activeElement, s = getComputedStyle(e); return [e.innerText || e.name || e.className, s.outlineStyle]`)
		if seen[x[0]] = true; x[1] == "none" {
			t.Errorf("%q has the focus and does not show it", x[0])
		}
	}
	if !seen["Pause"] || !seen["queued"] {
		t.Errorf("the tabulator came by %v", seen)
	}
	b.strict()
}

// TestTabs opens more tabs of one browser than it has connections for a host.
func TestTabs(t *testing.T) {
	w := start(t, nil)
	tabs := []*tab{w.open("")}
	most := 7
	if *long {
		most = 50
	}
	for len(tabs) < most {
		b := newTab(t, tabs[0].ctx)
		b.visit(w.url + "/")
		tabs = append(tabs, b)
	}
	w.submit(gloom.Job{Type: "news"})
	for _, b := range tabs {
		b.sees("news")
		b.strict()
	}
}
