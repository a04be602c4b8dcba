package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Tab is a tab of the browser, in a profile of its own unless it is shared.
type Tab struct {
	t   *testing.T
	ctx context.Context
	*Recorder
}

// NewTab opens a tab in a browser, 1280 pixels wide.
func NewTab(t *testing.T, parent context.Context, opts ...chromedp.ContextOption) *Tab {
	t.Helper()
	ctx, end := chromedp.NewContext(parent, opts...)
	t.Cleanup(end)
	b := &Tab{t: t, ctx: ctx, Recorder: Record(t, ctx)}
	b.SetSize(1280, 900)
	return b
}

// Context returns the tab's context, for chromedp.
func (b *Tab) Context() context.Context { return b.ctx }

// Must runs an action that must not fail.
func (b *Tab) Must(call func() error) {
	b.t.Helper()
	if err := call(); err != nil {
		b.t.Fatal(err)
	}
}

// OnNewDocument runs a script in each new document before the document's own scripts.
func (b *Tab) OnNewDocument(script string) {
	b.t.Helper()
	b.Must(func() error {
		_, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

// Visit opens an address.
func (b *Tab) Visit(url string) {
	b.t.Helper()
	b.Must(func() error { return chromedp.Do(b.ctx, chromedp.Navigate(url)) })
}

// SetSize sets the size of the window.
func (b *Tab) SetSize(width, height int64) {
	b.t.Helper()
	b.Must(func() error { return chromedp.Do(b.ctx, chromedp.EmulateViewport(width, height)) })
}

// CheckFits sets the width of the window and fails if the page is wider.
func (b *Tab) CheckFits(width int64) {
	b.t.Helper()
	b.SetSize(width, 900)
	if got := Eval[int64](b, `return document.documentElement.scrollWidth`); got > width {
		b.t.Errorf("%.100s is %d pixels wide in a window of %d", Eval[string](b, `return location.hash`), got, width)
	}
}

// SetTheme sets the color scheme: light or dark.
func (b *Tab) SetTheme(name string) {
	b.t.Helper()
	b.Must(func() error {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	})
}

// Eval runs a script; its value, in JSON, is decoded into a T.
func Eval[T any](b *Tab, script string, args ...any) T {
	b.t.Helper()
	for i, a := range args {
		data, err := json.Marshal(a)
		if err != nil {
			b.t.Fatal(err)
		}
		script = strings.ReplaceAll(script, fmt.Sprintf("$%d", i), string(data))
	}
	data, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]byte](`(async()=>{`+script+`})().then(v=>v===undefined?null:v)`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%v\n%s", err, script)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		b.t.Fatalf("%v: %s\n%s", err, data, script)
	}
	return v
}

// WaitUntil waits until a script's condition is true.
func (b *Tab) WaitUntil(condition string, args ...any) {
	b.t.Helper()
	for end := time.Now().Add(WaitTimeout); !Eval[bool](b, `return !!(`+condition+`)`, args...); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s %v never became true; the page:\n%.3000s", condition, args, b.Text())
		}
	}
}

// Text returns the text that the page shows.
func (b *Tab) Text() string {
	b.t.Helper()
	return Eval[string](b, `return document.body.innerText`)
}

// WaitForText waits until the page shows texts.
func (b *Tab) WaitForText(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.WaitUntil(`document.body.innerText.replace(/[\u202f\u2009\u00a0]/g, ' ').includes($0)`, text)
	}
}

// WaitForNoText waits until the page no longer shows a text.
func (b *Tab) WaitForNoText(text string) {
	b.t.Helper()
	b.WaitUntil(`!document.body.innerText.includes($0)`, text)
}

// GoTo goes to a route within the page.
func (b *Tab) GoTo(route string) {
	b.t.Helper()
	Eval[any](b, `location.hash = $0`, route)
}

// ClickButton clicks the button with this text, in the dialog where one is open.
func (b *Tab) ClickButton(text string) {
	b.t.Helper()
	selector := `[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button')].find(b => b.innerText.trim() === $0 && !b.disabled)`
	if text == "Undo" { // the dialog of the last action
		selector = strings.Replace(selector, "find(", "findLast(", 1)
	}
	b.WaitUntil(selector, text)
	Eval[any](b, selector+`.click()`, text)
}

// Fill enters text into the field with this name, in the open dialog if there is one.
func (b *Tab) Fill(name, text string) {
	b.t.Helper()
	const value = `(document.querySelector('dialog[open]') ?? document).querySelector('[name="' + $0 + '"]')`
	b.WaitUntil(value, name)
	Eval[any](b, `const e = `+value+`; e.value = $1; e.dispatchEvent(new Event('input', { bubbles: true }))`, name, text)
}

// SendKeys types keys into the element that has the focus.
func (b *Tab) SendKeys(keys string) {
	b.t.Helper()
	b.Must(func() error { return chromedp.Do(b.ctx, chromedp.KeyEvent(keys)) })
}

// CheckPolicy fails if the policy has blocked something.
func (b *Tab) CheckPolicy() {
	b.t.Helper()
	if v := Eval[[]string](b, `return window.violations`); len(v) > 0 {
		b.t.Errorf("the content security policy was violated: %v", v)
	}
}

// CheckAccessible fails if axe-core finds a violation of its rules, or of some of them.
func (b *Tab) CheckAccessible(page string, rules ...string) {
	b.t.Helper()
	if !Eval[bool](b, `return 'axe' in window`) {
		b.Must(func() error {
			_, err := chromedp.Run(b.ctx, chromedp.Evaluate[chromedp.Void](AxeScript))
			return err
		})
	}
	found := Eval[[]string](b, `const r = await axe.run(document, { resultTypes: ['violations'], ...($0?.length && { runOnly: $0 }) });
		return r.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + v.help + ' ' + n.html.slice(0, 200) + ' ' + n.failureSummary))`, rules)
	for _, f := range found {
		b.t.Errorf("%s: %s", page, f)
	}
}

// Screenshot saves a screenshot of the visible part.
func (b *Tab) Screenshot(file string) {
	b.t.Helper()
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// CheckView fails if axe-core finds a violation in the current view in either theme, or if the view
// is too wide for a window of one of these widths. It saves screenshots in a directory, unless the
// directory's name is "".
func (b *Tab) CheckView(route, dir string, widths ...int64) {
	b.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		b.SetTheme(theme)
		if theme == "light" {
			b.CheckAccessible(route)
		} else { // the other theme differs only in its colours
			b.CheckAccessible(route+" "+theme, "color-contrast")
		}
		if theme == "dark" && dir == "" {
			continue // colours change no width
		}
		for _, width := range widths {
			b.CheckFits(width)
			if dir != "" {
				name := strings.Trim(unsafeInFileName.ReplaceAllString(route, "-"), "-")
				b.Screenshot(filepath.Join(dir, fmt.Sprintf("view-%s-%d-%s.png", name, width, theme)))
			}
		}
		b.SetSize(1280, 900)
	}
}

// unsafeInFileName matches characters that names of screenshots must not have.
var unsafeInFileName = regexp.MustCompile(`[^a-z0-9]+`)
