package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gloom/broker/page/pagetest"
	gloom "gloom/clients/go"
)

// TestJobViewShowsItsRuns: the view of a job shows its runs so far.
func TestJobViewShowsItsRuns(t *testing.T) {
	w := start(t, nil)
	w.startWorker("mail", func(context.Context, *gloom.Job) (any, error) { return nil, errors.New("the server was busy") })
	w.submit(gloom.Job{Type: "mail", ID: "a", Backoff: time.Hour})
	b := w.openPage("#/job/a")
	b.WaitForText("Runs so far", "the server was busy", "worker of tests", "1 time, 3 retries allowed")
	b.CheckAccessible("runs")
	b.CheckPolicy()
}

// TestListingsAreUpToDate: the rows are up to date, and all are of the type that is shown.
func TestListingsAreUpToDate(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "mail", ID: "mail-1"}, gloom.Job{Type: "report", ID: "report-1"})
	b := w.openPage("#/type/mail")
	b.WaitForText("mail-1", "as of")
	mixed := pagetest.Eval[bool](b, `let mixed = false;
		const look = () => { mixed ||= document.querySelector('h1').innerText === 'report' && document.body.innerText.includes('mail-1'); };
		new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
		location.hash = '#/type/report';
		for (let i = 0; i < 300 && !document.body.innerText.includes('report-1'); i++) await new Promise(go => setTimeout(go, 20));
		return mixed`)
	if mixed {
		t.Error("jobs of mail were shown as those of report")
	}
	b.WaitForText("report-1")
	b.WaitUntil(`document.activeElement === document.querySelector('main')`)
	b.GoTo("#/")
	b.WaitForText("Types with most to do")
	w.submit(gloom.Job{Type: "report", ID: "report-2"})
	b.GoTo("#/type/report")
	b.WaitForText("report-1", "report-2")
	b.CheckPolicy()
}

// jobsOfOwnTypes returns n jobs, each of a type of its own.
func jobsOfOwnTypes(n int) (jobs []gloom.Job) {
	for i := range n {
		jobs = append(jobs, gloom.Job{Type: fmt.Sprintf("type-%05d", i), Body: json.RawMessage("1")})
	}
	return jobs
}

// TestOnlyVisibleTypesAreDrawn: only the visible ones of ten thousand types are drawn.
func TestOnlyVisibleTypesAreDrawn(t *testing.T) {
	limit, countText := 10_000, "10,000 types"
	if testing.Short() {
		limit, countText = 2_000, "2,000 types"
	}
	w := start(t, nil)
	jobs := jobsOfOwnTypes(limit)
	last := jobs[limit-1].Type
	w.submit(jobs...)
	b := w.openPage("#/types?sort=type")
	b.WaitForText(countText, "type-00000")
	rows := func() int { return pagetest.Eval[int](b, `return document.querySelectorAll('tbody tr').length`) }
	if n := rows(); n > 100 {
		t.Errorf("%d rows are drawn", n)
	}
	// While the table is scrolled from end to end, no frame takes a long time.
	maxTime := pagetest.Eval[float64](b, `
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
	t.Logf("the slowest of 60 frames took %.0f ms", maxTime)
	b.WaitForText(last)
	if n := rows(); n > 100 {
		t.Errorf("%d rows are drawn", n)
	}
	pagetest.Eval[any](b, `document.querySelector('th button').click()`)
	b.WaitUntil(`document.querySelector('.long').scrollTop === 0`)
	b.WaitForText(last)
	b.GoTo("#/types?filter=E-0177")
	b.WaitForText("10 types", "type-01770")
	b.CheckAccessible("many types")
	b.GoTo("#/types")
	b.WaitForText("type-00000")
	b.SetSize(320, 640)
	if cut := pagetest.Eval[bool](b, `const e = document.querySelector('tbody td.num'); return e.scrollWidth > e.clientWidth`); cut {
		t.Error("in a narrow window figures are cut off")
	}
	b.CheckPolicy()
}

// TestScrolledRowsAreDrawn: rows that are requested during scrolling are drawn when they arrive,
// even if no other data follows.
func TestScrolledRowsAreDrawn(t *testing.T) {
	w := start(t, nil)
	w.submit(jobsOfOwnTypes(500)...)
	b := pagetest.NewTab(t, chromium, chromedp.WithNewBrowserContext())
	b.OnNewDocument(`delete window.SharedWorker;
		window.setInterval = () => 0;
		const ask = window.fetch;
		const quiet = () => new TransformStream({ transform(chunk, to) { window.still || to.enqueue(chunk); } });
		window.fetch = async (url, init) => {
			if (window.still && !url.includes('cursor')) return new Promise(() => {});
			const r = await ask(url, init);
			return url === '/v1/events' ? new Response(r.body.pipeThrough(quiet()), r) : r;
		};`)
	b.Visit(w.url + "/#/types?sort=type")
	b.WaitForText("500 types", "type-00000")
	pagetest.Eval[any](b, `window.still = true; const box = document.querySelector('.long'); box.scrollTop = box.scrollHeight`)
	b.WaitForText("type-00499")
	b.CheckPolicy()
}

// TestColumnFitsEveryAge: the column for the age of the oldest waiting job is wide enough for every
// age.
func TestColumnFitsEveryAge(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("#/types")
	b.WaitForText("report")
	for _, width := range []int64{577, 900, 1280} {
		b.SetSize(width, 900)
		b.WaitUntil(`(() => { const e = document.querySelector('td.time'); e.textContent = '23\u202fh 59\u202fmin'; return e.clientWidth && e.scrollWidth <= e.clientWidth; })()`)
	}
}

// TestHiddenTabHasNoGap: the plots of a tab also show the time during which the tab was hidden.
func TestHiddenTabHasNoGap(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "mail"})
	b := pagetest.NewTab(t, chromium, chromedp.WithNewBrowserContext())
	b.OnNewDocument(`delete globalThis.SharedWorker;
		const now = Date.now, ask = fetch;
		let slept = 0, hidden = false;
		Date.now = () => now() + slept;
		Object.defineProperty(document, 'hidden', { get: () => hidden });
		window.sleep = ms => { hidden = true; document.dispatchEvent(new Event('visibilitychange')); slept += ms; hidden = false; document.dispatchEvent(new Event('visibilitychange')); };
		globalThis.fetch = async (url, init) => {
			const r = await ask(url, init);
			if (url !== '/v1/events' || !slept) return r;
			const moments = Array.from({ length: 12 }, (_, i) => ({ unix_ms: Date.now() - 5000 * (12 - i), submitted: 1, ended: 0, failed: 0, queued: 1, running: 0 }));
			const { readable, writable } = new TransformStream({
				start: c => c.enqueue(new TextEncoder().encode('event: history\ndata: ' + JSON.stringify(moments) + '\n\n')),
				transform: (chunk, c) => c.enqueue(new TextEncoder().encode(new TextDecoder().decode(chunk).replace('event: history', 'event: older'))),
			});
			r.body.pipeTo(writable).catch(() => {});
			return new Response(readable, { headers: { Date: new Date(Date.now()).toUTCString() } });
		};`)
	b.Visit(w.url + "/#/")
	b.WaitForText("1 waiting")
	const queuedPoints = `(await import('/live.js')).series.of.queued`
	b.WaitUntil(`(await import('/live.js')).series.t.length > 1`)
	pagetest.Eval[any](b, `sleep(40_000)`)
	b.WaitUntil(`(s => s.t.at(-1) - s.t[0] > 40 && s.t.at(-1) - s.t.at(-2) < 3)((await import('/live.js')).series)`)
	if gaps := pagetest.Eval[[]any](b, `const q = `+queuedPoints+`; return q.slice(q.findIndex(v => v !== null)).filter(v => v === null)`); len(gaps) > 0 {
		t.Errorf("%d moments are not known", len(gaps))
	}
	b.CheckPolicy()
}

// TestTypeShowsItsOwnFindings: a type shows its own findings even if many others are more severe.
// Similar findings share one card, which can be expanded. The card's advice has buttons for the
// actions that it names.
func TestTypeShowsItsOwnFindings(t *testing.T) {
	w := start(t, nil)
	var jobs []gloom.Job
	for i := range 30 {
		for range 30 - i {
			jobs = append(jobs, gloom.Job{Type: fmt.Sprintf("type-%02d", i)})
		}
	}
	w.submit(jobs...)
	b := w.openPage("#/type/type-29")
	b.WaitForText("no worker serves the type")
	b.GoTo("#/")
	// On a busy machine there may also be the finding that an event loop was late.
	b.WaitUntil(`+document.querySelector('nav .badge.severe')?.innerText >= 30`)
	b.WaitForText("things are wrong", "type-00: 30 jobs are waiting", "29 more like it")
	if n := pagetest.Eval[int](b, `return [...document.querySelectorAll('.findings > li')].filter(e => e.innerText.includes('no worker serves')).length`); n != 1 {
		t.Errorf("%d cards tell the same", n)
	}
	w.callAPI("POST", "/v1/types/type-05/pause", "{}")
	b.WaitForText("type-05: 25 jobs are waiting: the type is paused", "28 more like it")
	pagetest.Eval[any](b, `document.querySelector('[aria-label="Resume: type-05"]').click()`)
	b.WaitForText("type-05 is resumed.", "29 more like it")
	b.ClickButton("29 more like it")
	b.WaitForText("type-29: 1 job is waiting")
	b.CheckAccessible("open findings")
	b.SetTheme("dark")
	b.CheckAccessible("open findings, dark", "color-contrast")
	b.CheckFits(320)
	pagetest.Eval[any](b, `document.querySelector('[aria-label="Forget: type-29"]').click()`)
	b.WaitForText("Forget type-29?", "1 waiting job is discarded")
	b.ClickButton("Forget it")
	b.WaitForText("type-29 is forgotten", "28 more like it")
	b.ClickButton("28 more like it")
	b.WaitForNoText("type-28: 2 jobs are waiting")
	if *screenshotDir != "" {
		b.Screenshot(filepath.Join(*screenshotDir, "findings-320.png"))
	}
	b.CheckPolicy()
}
