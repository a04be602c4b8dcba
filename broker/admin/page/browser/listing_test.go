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

	gloom "gloom/clients/go"
)

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

// typed is n jobs, each of a type of its own.
func typed(n int) (jobs []gloom.Job) {
	for i := range n {
		jobs = append(jobs, gloom.Job{Type: fmt.Sprintf("type-%05d", i), Body: json.RawMessage("1")})
	}
	return jobs
}

// TestManyTypes: of ten thousand types, those in sight are drawn.
func TestManyTypes(t *testing.T) {
	most, shown := 10_000, "10,000 types"
	if testing.Short() {
		most, shown = 2_000, "2,000 types"
	}
	w := start(t, nil)
	jobs := typed(most)
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
	w.submit(typed(500)...)
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

// TestOldest: no time of a waiting job is cut.
func TestOldest(t *testing.T) {
	w := busy(t)
	b := w.open("#/types")
	b.sees("report")
	for _, width := range []int64{577, 900, 1280} {
		b.size(width, 900)
		b.until(`(() => { const e = document.querySelector('td.time'); e.textContent = '23\u202fh 59\u202fmin'; return e.clientWidth && e.scrollWidth <= e.clientWidth; })()`)
	}
}

// TestNoGap: what happened while a tab was hidden is in its plots, too.
func TestNoGap(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "mail"})
	b := newTab(t, chromium, chromedp.WithNewBrowserContext())
	b.onNew(`delete globalThis.SharedWorker;
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
	b.visit(w.url + "/#/")
	b.sees("1 waiting")
	const known = `(await import('/live.js')).series.of.queued`
	b.until(`(await import('/live.js')).series.t.length > 1`)
	eval[any](b, `sleep(40_000)`)
	b.until(`(s => s.t.at(-1) - s.t[0] > 40 && s.t.at(-1) - s.t.at(-2) < 3)((await import('/live.js')).series)`)
	if gaps := eval[[]any](b, `const q = `+known+`; return q.slice(q.findIndex(v => v !== null)).filter(v => v === null)`); len(gaps) > 0 {
		t.Errorf("%d moments are not known", len(gaps))
	}
	b.strict()
}

// TestManyFindings: a type tells what is the matter with it, however many others are worse;
// equal findings are one card, which opens, and whose advice has the buttons that it names.
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
	// A busy machine may add that the broker is late.
	b.until(`+document.querySelector('nav .badge.severe')?.innerText >= 30`)
	b.sees("things are wrong", "type-00: 30 jobs wait", "29 more like it")
	if n := eval[int](b, `return [...document.querySelectorAll('.findings > li')].filter(e => e.innerText.includes('no worker serves')).length`); n != 1 {
		t.Errorf("%d cards tell the same", n)
	}
	w.ask("POST", "/v1/types/type-05/pause", "{}")
	b.sees("type-05: 25 jobs wait: the type is paused", "28 more like it")
	eval[any](b, `document.querySelector('[aria-label="Resume: type-05"]').click()`)
	b.sees("type-05 goes on.", "29 more like it")
	b.press("29 more like it")
	b.sees("type-29: 1 job waits")
	b.accessible("open findings")
	b.theme("dark")
	b.accessible("open findings, dark", "color-contrast")
	b.fits(320)
	eval[any](b, `document.querySelector('[aria-label="Forget: type-29"]').click()`)
	b.sees("Forget type-29?", "1 waiting job is discarded")
	b.press("Forget it")
	b.sees("type-29 is forgotten", "28 more like it")
	b.press("28 more like it")
	b.gone("type-28: 2 jobs wait")
	if *shots != "" {
		b.shot(filepath.Join(*shots, "findings-320.png"))
	}
	b.strict()
}
