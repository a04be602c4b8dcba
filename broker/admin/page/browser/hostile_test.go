package browser

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	gloom "gloom/clients/go"
)

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
	eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText === '.').click()`) // the earlier one comes second
	b.sees("All dead letters of this type", "a@example.org")
	b.at("#/dead/mail?id=.")
	b.until(`document.querySelectorAll('[aria-label="Dead letters"] tbody tr').length === 2`)
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

// hostile are texts that do harm unless they are shown as nothing but text.
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

// TestInvisible: names without any ink are seen and clicked all the same.
func TestInvisible(t *testing.T) {
	w := start(t, nil)
	names := map[string]string{"   ": `"   "`, "\u200b": `\u200b`, "\u3164": `\u3164`, "\u2800\u00a0": `\u2800\u00a0`, "mail ": `"mail "`, "\U000e0001": `\ue0001`, "👩\u200d💻": "👩\u200d💻"}
	for name := range names {
		w.submit(gloom.Job{Type: name, ID: name, Groups: []string{name}})
	}
	b := w.open("")
	for _, route := range []string{"#/", "#/types", "#/jobs", "#/groups"} {
		b.at(route)
		b.until(`document.querySelectorAll('main table a.name').length >= $0`, len(names))
		texts := eval[[]string](b, `return [...document.querySelectorAll('main a.name')].map(a => a.textContent)`)
		for name, shown := range names {
			if !slices.Contains(texts, shown) {
				t.Errorf("%s: %q is not shown as %s: %q", route, name, shown, texts)
			}
		}
		b.accessible("invisible " + route)
	}
	b.at("#/types")
	b.until(`location.hash !== '#/types' || [...document.querySelectorAll('main a.name')].find(a => a.textContent === $0)?.click()`, names["   "])
	b.until(`document.querySelector('h1')?.textContent === $0`, names["   "])
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
