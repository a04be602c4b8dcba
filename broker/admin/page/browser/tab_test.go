package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// TestTokens: the page asks for a token, keeps it to itself, and offers what it
// allows.
func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("secret-a admin\nsecret-w watch\nsecret-s submit\nsecret-ws watch,submit\nsecret-wm watch,submit mail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *settings.Options) { o.TokenFile = file })
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
	again := start(t, func(o *settings.Options) { o.SubmitAddr, o.HTTPAddr, o.Version = submit, http_, "v2.0.0" })
	b.gone("The broker does not answer")
	b.sees("No worker is connected.")
	b.at("#/")
	b.sees("v2.0.0", "No job has come")
	again.submit(gloom.Job{Type: "after"})
	b.sees("after")
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
	b.sees("failed", "failed and is kept: invoice")
	// The focus is visible wherever the Tab key moves it.
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

// TestFind: what fits is listed while one types, and chosen with the arrow keys or the
// pointer.
func TestFind(t *testing.T) {
	w := busy(t)
	b := w.open("")
	b.sees("Types with most to do")
	listed := func(want ...string) {
		t.Helper()
		b.until(`[...document.querySelectorAll('#hits [role=option]')].map(e => e.innerText.trim()).join() === $0`, strings.Join(want, ","))
	}
	b.keys("/")
	b.until(`document.activeElement.id === 'find'`)
	b.keys("pictu")
	listed("picture-1 running", "picture-2 queued")
	b.accessible("what was found")
	b.theme("dark")
	b.keys(kb.ArrowDown)
	b.accessible("what was found, dark")
	b.fits(320)
	b.keys(kb.ArrowDown)
	b.until(`document.querySelector('#hits [aria-selected=true]').id === document.activeElement.getAttribute('aria-activedescendant')`)
	b.keys("\r")
	b.until(`location.hash === '#/job/picture-2' && !document.querySelector('#hits li')`)
	b.keys("/")
	b.keys("inv")
	listed("invoice type")
	eval[any](b, `document.querySelector('#hits li').dispatchEvent(new MouseEvent('mousedown', { bubbles: true, cancelable: true }))`)
	b.until(`location.hash === '#/type/invoice'`)
	b.keys("/")
	b.keys("zzzz")
	listed()
	b.keys("\x1b")
	b.until(`document.activeElement.id !== 'find'`)
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
