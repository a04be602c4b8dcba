package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/chromedp/chromedp"

	gloom "gloom/clients/go"
)

// hostileNames are names that a program may misread as a path, markup or code.
var hostileNames = []string{
	`<img src=data:, onerror=window.pwned=1>`,
	`"><script>window.pwned=1</script>`,
	`javascript:window.pwned=1`,
	`' " \ & &lt; ` + "`${1}`",
	"\u202egnp.evil\u202c", "\u202egnp.unclosed",
	"a\x00b\x07\x1b[31m",
	"zero\u200bwidth \ufeff\u2028line\u0085",
	"😀👩‍👩‍👧‍👦é\u0301",
	"..", ".", "../../v1/status", "%2e%2e", "%2F", "%", "a/b?c#d&e=f+g", "//evil.example/x",
	"__proto__", "constructor", "null", "0", "*", "tab\tnew\nline", " edges ",
	strings.Repeat("x", 1000),
	strings.Repeat("Wörter und 空白 ", 40),
}

// escapePattern matches the escapes that the page may show in place of invisible characters.
var escapePattern = regexp.MustCompile(`\\(u[0-9a-f]{4}|[nrt])`)

// comparableText returns a text in a form that can be compared: without characters that are invisible or
// may be shown in another way.
func comparableText(s string) string {
	s = escapePattern.ReplaceAllString(s, "")
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\ufffd' || r >= 0x2400 && r < 0x2440 {
			return -1
		}
		return r
	}, s)
}

// comparableName is like plain, but for a name: a name with spaces at its ends is shown in quotes.
func comparableName(s string) string {
	if strings.Trim(s, " ") != s {
		s = `"` + s + `"`
	}
	return comparableText(s)
}

func quote(s string) []byte {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return data
}

// followLink follows the link or button with a name in the main part of the page.
func (p *pageUser) followLink(role, name string) {
	p.t.Helper()
	want := comparableName(name)
	p.waitUntil(fmt.Sprintf("a click on the %s %.60q", role, name), func() bool {
		inMain := false
		for _, x := range p.elements() {
			inMain = inMain || x.role == "main"
			if inMain && x.role == role && comparableText(x.name) == want && p.click(x) == nil {
				return true
			}
		}
		return false
	})
}

// awaitName waits for a name, or its beginning, in the readable text.
func (p *pageUser) awaitName(place, name string) {
	p.t.Helper()
	if r := []rune(name); len(r) > 200 {
		name = string(r[:200])
	}
	p.expect(fmt.Sprintf("%s: the text %.60q", place, name), func() bool { return strings.Contains(comparableText(p.pageText()), comparableText(name)) })
}

// TestHostileNamesAreShownAsText uses hostile names everywhere: they are shown as text, and their
// links lead to the right view.
func TestHostileNamesAreShownAsText(t *testing.T) {
	t.Parallel()
	names := hostileNames
	if testing.Short() {
		names = []string{`"><img src=data:, onerror=window.pwned=1>\u202egnp` + "\x00😀\u200b\x1b[1m\n", "../%2e%2e/%2F?a=b#c&d=e+f" + strings.Repeat("x", 900)}
	}
	b := start(t, "--page-link", `<b>door=http://127.0.0.1:1/?a=<script>`)
	stop := b.startWorker(&gloom.Worker{Types: []string{"*"}, Headers: true, Concurrency: 8, Handler: func(_ context.Context, j *gloom.Job) (any, error) {
		return nil, gloom.Fatal(errors.New("it says " + j.Type))
	}})
	for _, name := range names {
		b.submitAcked(gloom.Job{ID: name, Type: name, Body: quote(name), Detach: true})
	}
	b.waitUntil("/v1/status", func(v map[string]any) bool { return number(v, "dead") == len(names) })
	stop()
	for _, name := range names {
		headers, err := json.Marshal(map[string]string{name: name})
		if err != nil {
			t.Fatal(err)
		}
		b.submitAcked(gloom.Job{ID: name, Type: name, Groups: []string{name}, Body: quote(name), Headers: headers})
		b.startWorker(&gloom.Worker{Type: "serves " + name[:min(len(name), 900)], Handler: quickHandler}, gloom.ClientName(name))
	}
	p := newPageUser(t)
	p.goTo(b.url(""))
	p.await("heading", "wrong")
	p.checkView("overview")
	for _, route := range []string{"#/workers", "#/submitters", "#/groups", "#/types", "#/jobs"} {
		p.goTo(b.url(route))
		p.await("heading", "^(Workers|Submitters|Groups|Types|Jobs)$")
		for _, name := range names {
			if route != "#/submitters" {
				p.awaitName(route, name)
			}
		}
		p.checkView(route)
		p.setSize(320, 640)
		p.checkFits(route)
		p.setSize(1280, 900)
	}
	for _, name := range names {
		place := fmt.Sprintf("%.40q", name)
		p.goTo(b.url("#/types"))
		p.await("heading", "^Types$")
		p.followLink("link", name)
		p.waitUntil(place+": its type", func() bool { return p.hasHeading(name) })
		p.checkView(place)
		p.setSize(320, 640)
		p.checkFits(place)
		p.setSize(1280, 900)
		p.waitUntil(place+": its job in the list", func() bool { return len(p.rows("Jobs")) == 1 })
		p.run(chromedp.Reload())
		p.waitUntil(place+": its type by its address "+p.currentURL(), func() bool { return p.hasHeading(name) && len(p.rows("Jobs")) == 1 })

		p.goTo(b.url("#/jobs"))
		p.await("heading", "^Jobs$")
		p.followLink("link", name)
		p.waitUntil(place+": its job", func() bool { return p.hasHeading(name) })
		p.awaitText("Why it waits")
		p.await("heading", "^Headers$")
		p.checkView(place)
		p.setSize(320, 640)
		p.checkFits(place)
		p.setSize(1280, 900)

		p.goTo(b.url("#/dead"))
		p.await("heading", "^Dead letters$")
		p.followLink("link", name)
		p.waitUntil(place+": its dead letters", func() bool { return len(p.rows("Dead letters")) == 1 })
		p.awaitName(place, "it says "+name)
		p.followLink("link", name)
		p.waitUntil(place+": the letter", func() bool { return p.hasHeading(name) })
		p.awaitName(place, "it says "+name)
		p.setSize(320, 640)
		p.checkFits(place)
		p.setSize(1280, 900)

		p.goTo(b.url("#/groups"))
		p.await("heading", "^Groups$")
		p.followLink("link", name)
		p.waitUntil(place+": the jobs of its group", func() bool { return len(p.rows("Jobs")) == 1 })
	}
	if eval[bool](p, `return 'pwned' in window`) {
		t.Error("a name was run")
	}
}

// TestReversedNameKeepsSentence uses a name that reverses the direction of writing; this must not affect the
// sentence around the name.
func TestReversedNameKeepsSentence(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	const name = "\u202egnp.unclosed"
	b := start(t)
	b.submitAcked(gloom.Job{ID: name, Type: name, Groups: []string{name}})
	p := newPageUser(t)
	for _, route := range []string{"", viewFragment("type", name)} {
		p.goTo(b.url(route))
		p.awaitText("no worker serves")
		boxes := eval[[]float64](p, `const w = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
			for (let n; n = w.nextNode();) {
				const i = n.data.indexOf('no worker serves'), r = document.createRange();
				if (i < 0) continue;
				const x = i => { r.setStart(n, i); r.setEnd(n, i + 1); return r.getBoundingClientRect().left };
				return [x(i), x(i + 1)];
			}`)
		if len(boxes) != 2 || boxes[0] >= boxes[1] {
			t.Errorf("%q: its sentence is written from right to left: %v", route, boxes)
		}
	}
}

// hasHeading reports whether the page's heading has the name.
func (p *pageUser) hasHeading(name string) bool {
	for _, x := range p.find("heading", "") {
		if x.hasState("level=1") && comparableText(x.name) == comparableName(name) {
			return true
		}
	}
	return false
}
