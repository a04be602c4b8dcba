package browser

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"gloom/broker/page/pagetest"
	gloom "gloom/clients/go"
)

// TestDotNamesAreShown: browsers remove "." and ".." from paths. Things with such names are shown like
// all others, and an action on one dead letter does not apply to all letters of its type.
func TestDotNamesAreShown(t *testing.T) {
	w := start(t, nil)
	w.startWorker("mail", failingHandler)
	w.submit(gloom.Job{Type: "mail", ID: "."}, gloom.Job{Type: "mail", ID: ".."}, gloom.Job{Type: "mail", ID: "other"})
	hasThreeDead := func(v map[string]any) bool { return v["dead"] == 3. }
	w.waitUntil("/v1/types/mail", hasThreeDead)
	b := w.openPage("#/dead/mail?id=.")
	b.Ignore("404 (Not Found)") // for the job that has ended
	b.WaitForText("no such address")
	b.WaitForNoText("other")
	pagetest.Eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText === '.').click()`) // the earlier letter is the second one
	b.WaitForText("All dead letters of this type", "a@example.org")
	b.GoTo("#/dead/mail?id=.")
	b.WaitUntil(`document.querySelectorAll('[aria-label="Dead letters"] tbody tr').length === 2`)
	b.ClickButton("Discard")
	b.WaitForText("Discard ..?")
	b.ClickButton("Discard it")
	b.WaitForText(".. is discarded.")
	w.waitUntil("/v1/types/mail", func(v map[string]any) bool { return v["dead"] == 2. })

	w.submit(gloom.Job{Type: ".", ID: "..", Groups: []string{"."}}, gloom.Job{Type: "..", ID: "."})
	b.GoTo("#/type/.")
	b.WaitForText("none has joined", "no worker has joined its type")
	b.ClickButton("Pause")
	b.WaitForText(". is paused")
	pagetest.Eval[any](b, `document.querySelector('[aria-label="Jobs"] tbody a').click()`)
	b.WaitForText("Why it waits: its type is paused")
	b.ClickButton("Cancel")
	b.ClickButton("Cancel the job")
	b.WaitForText("..: cancelled.")
	b.GoTo("#/groups")
	b.ClickButton("Add a rule")
	b.Fill("pattern", "..")
	b.Fill("concurrency", "3")
	b.ClickButton("Set")
	b.WaitForText("The rule for .. is set.")
	if v := w.callAPI("GET", "/v1/groups/%FF..", ""); v["concurrency"] != 3. {
		t.Errorf("the rule is %v", v)
	}
	b.GoTo("#/job/.")
	b.WaitForText("Why it waits: no worker has joined its type")
	b.CheckPolicy()
}

// TestLongBodiesDoNotBreakPage: the page lays out long and deep values, and does not break.
func TestLongBodiesDoNotBreakPage(t *testing.T) {
	w := start(t, nil)
	b := w.openPage("")
	sizes := pagetest.Eval[[]int](b, `const { indent, members } = await import('/format.js');
		const deep = 200_000, plain = '"' + 'x'.repeat(15e6) + '"', escapes = '"' + '\\"'.repeat(7e6) + '"';
		return [indent('['.repeat(deep) + ']'.repeat(deep)).length, indent(plain).length, indent(escapes).length,
			members('{"body":' + escapes + ',"n":1}').body.length, indent('{"a":[1,"\\""]}').length]`)
	for i, limit := range []int{3_000_000, 15_000_002, 14_000_002, 14_000_002, 32} {
		if sizes[i] > limit || sizes[i] < limit/2 {
			t.Errorf("text %d came to %d characters, want half of %d to that", i, sizes[i], limit)
		}
	}
	b.CheckPolicy()
}

// hostileTexts are texts that do harm unless they are shown as plain text.
var hostileTexts = []string{
	`<img src=x onerror="window.harm=1">`, `"><script>window.harm=2</script>`, `javascript:window.harm=3`,
	`'-alert(1)-'${window.harm=4}`, "new\nline\u2028\u202e\u0000tail", `../../v1/drain?x=%2e%2e#/types`, `</textarea></dialog><b>bold`, strings.Repeat("W", 900),
}

// TestHostileTextsAreShownAsText uses hostile texts as types, ids, groups, reasons, bodies and
// client names, and visits each view that shows them.
func TestHostileTextsAreShownAsText(t *testing.T) {
	w := start(t, nil)
	b := w.openPage("")
	b.Ignore("404 (Not Found)")
	enc := func(s string) string { return pagetest.Eval[string](b, `return encodeURIComponent($0)`, s) }
	var jobs []gloom.Job
	for _, text := range hostileTexts {
		body, _ := json.Marshal(map[string]string{text: text})
		w.startWorker("dead"+text, failingHandler)
		jobs = append(jobs, gloom.Job{Type: "t" + text, ID: "i" + text, Body: body, Groups: []string{"g" + text}, Headers: gloom.Headers(body)[:min(len(body), 4000)]},
			gloom.Job{Type: "dead" + text, ID: "d" + text, Body: body, Retries: gloom.NoRetries})
	}
	w.submit(jobs...)
	w.waitUntil("/v1/status", func(v map[string]any) bool { return v["dead"] == float64(len(hostileTexts)) })
	for i, text := range hostileTexts {
		first := text
		if len(text) > 100 || strings.ContainsAny(text, "\n\x00") {
			first = text[:3]
		}
		for _, v := range []string{"#/type/" + enc("t"+text), "#/dead/" + enc("dead"+text), "#/jobs?id=" + enc(text), "#/job/" + enc("i"+text)} {
			b.GoTo(v)
			b.WaitForText(first)
			b.CheckFits(320)
		}
		b.WaitUntil(`document.querySelector('pre')`)
		if pagetest.Eval[bool](b, `return 'harm' in window || document.querySelector('main script, main img, main b b') !== null`) {
			t.Errorf("text %d, %.60q, did harm", i, text)
		}
	}
	for _, route := range []string{"#/groups", "#/", "#/types", "#/workers", "#/dead", "#/jobs"} {
		b.GoTo(route)
		b.WaitForText("onerror")
		if pagetest.Eval[bool](b, `return 'harm' in window || document.querySelector('main script, main img, main b b') !== null`) {
			t.Errorf("%s did harm", route)
		}
		for _, width := range []int64{320, 1280} {
			b.CheckFits(width)
		}
	}
	b.CheckAccessible("hostile")
	b.CheckPolicy()
}

// TestInvisibleNamesCanBeClicked: even names without visible characters can be seen and clicked.
func TestInvisibleNamesCanBeClicked(t *testing.T) {
	w := start(t, nil)
	names := map[string]string{"   ": `"   "`, "\u200b": `\u200b`, "\u3164": `\u3164`, "\u2800\u00a0": `\u2800\u00a0`, "mail ": `"mail "`, "\U000e0001": `\ue0001`, "👩\u200d💻": "👩\u200d💻"}
	for name := range names {
		w.submit(gloom.Job{Type: name, ID: name, Groups: []string{name}})
	}
	b := w.openPage("")
	for _, route := range []string{"#/", "#/types", "#/jobs", "#/groups"} {
		b.GoTo(route)
		b.WaitUntil(`document.querySelectorAll('main table a.name').length >= $0`, len(names))
		texts := pagetest.Eval[[]string](b, `return [...document.querySelectorAll('main a.name')].map(a => a.textContent)`)
		for name, shownName := range names {
			if !slices.Contains(texts, shownName) {
				t.Errorf("%s: %q is not shown as %s: %q", route, name, shownName, texts)
			}
		}
		b.CheckAccessible("invisible " + route)
	}
	b.GoTo("#/types")
	b.WaitUntil(`location.hash !== '#/types' || [...document.querySelectorAll('main a.name')].find(a => a.textContent === $0)?.click()`, names["   "])
	b.WaitUntil(`document.querySelector('h1')?.textContent === $0`, names["   "])
	b.CheckPolicy()
}

// TestRightToLeftNameKeepsDirection: a name that is written from right to left does not change the
// direction of the text around it.
func TestRightToLeftNameKeepsDirection(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "\u202egnp", ID: "\u202eboj"})
	b := w.openPage("")
	b.Ignore("404 (Not Found)") // after the job is cancelled
	b.WaitForText("no worker serves")
	if pagetest.Eval[bool](b, `const text = document.querySelector('.findings b').nextSibling.nextSibling ?? document.querySelector('.findings b').nextSibling;
		const left = i => { const r = document.createRange(); r.setStart(text, i); r.setEnd(text, i + 1); return r.getBoundingClientRect().left; };
		return left(2) > left(8)`) {
		t.Error("a finding is written from right to left")
	}
	b.GoTo("#/type/" + pagetest.Eval[string](b, `return encodeURIComponent($0)`, "\u202egnp"))
	b.WaitForText(`\u202eboj`)
	for _, selector := range []string{"h1", "[aria-label=Jobs] .id"} {
		if text := pagetest.Eval[string](b, `return document.querySelector($0).innerText`, selector); text[0] != '\\' {
			t.Errorf("%s is %q", selector, text)
		}
	}
	b.GoTo("#/job/" + pagetest.Eval[string](b, `return encodeURIComponent($0)`, "\u202eboj"))
	b.ClickButton("Cancel")
	b.WaitForText(`Cancel \u202eboj?`)
	b.ClickButton("Cancel the job")
	b.WaitForText(`\u202eboj: cancelled.`)
	b.CheckPolicy()
}
