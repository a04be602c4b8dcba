package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"gloom/broker/page/pagetest"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// TestTokens: the page asks for a token, keeps it to itself, and offers what the token
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
		b.Fill("token", token)
		b.Press("Go in")
	}
	b.Sees("This broker needs a token")
	b.Accessible("the door")
	enter("wrong")
	b.Sees("Asking. A wrong token is refused slowly…")
	b.Sees("does not know this token")
	enter("secret-s")
	b.Sees("This token may not read this page")
	enter("secret-w")
	b.Sees("Overview")
	b.At("#/")
	b.Sees("No job has come")
	if text := b.Text(); strings.Contains(text, "Drain") || strings.Contains(text, "Submit a test job") {
		t.Errorf("who may watch is offered more:\n%s", text)
	}
	if kept := pagetest.Eval[bool](b, `return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]).includes('secret')`); kept {
		t.Error("the token was kept")
	}
	b.Visit(w.url + "/")
	b.Sees("This broker needs a token")
	enter("secret-ws")
	b.Sees("Submit a test job")
	b.Visit(w.url + "/")
	enter("secret-wm")
	b.At("#/type/mail")
	b.Sees("Test job")
	b.At("#/type/sms")
	b.Sees("No job or worker of this type")
	b.Gone("Test job")
	b.Visit(w.url + "/")
	enter("secret-a")
	b.Sees("Drain")
	b.Strict()
}

// TestRestart: an open page says that the broker does not answer, and continues with the
// restarted one.
func TestRestart(t *testing.T) {
	w := start(t, nil)
	b := w.open("")
	b.Forgive("net::ERR", "Failed to fetch")
	w.submit(gloom.Job{Type: "before"})
	b.Sees("before")
	submit, http_ := w.srv.SubmitAddr().String(), w.srv.HTTPAddr().String()
	_ = w.srv.Close()
	b.Sees("The broker does not answer", "Trying again", "before", "Not known: the broker is away")
	b.Gone("Everything is healthy")
	b.Until(`document.title.startsWith('away')`)
	b.Accessible("away")
	b.At("#/workers") // a view whose script has not been loaded yet
	b.Sees("This view could not be loaded.")
	again := start(t, func(o *settings.Options) { o.SubmitAddr, o.HTTPAddr, o.Version = submit, http_, "v2.0.0" })
	b.Gone("The broker does not answer")
	b.Sees("No worker is connected.")
	b.At("#/")
	b.Sees("v2.0.0", "No job has come")
	again.submit(gloom.Job{Type: "after"})
	b.Sees("after")
	b.Strict()
}

// TestKeyboard visits every view without a pointer.
func TestKeyboard(t *testing.T) {
	w := busy(t)
	b := w.open("")
	b.Sees("Types with most to do")
	b.Keys("?")
	b.Sees("find a job or a type", "gloom explain ID and gloom findings")
	b.Until(`document.activeElement.closest('dialog')`)
	b.Keys("\x1b")
	b.Until(`!document.querySelector('dialog')`)
	for i, name := range []string{"Overview", "Types", "Workers", "Submitters", "Groups", "Dead letters", "Jobs"} {
		b.Keys(fmt.Sprint(i + 1))
		b.Until(`document.querySelector('nav [aria-current]')?.innerText === $0`, name)
	}
	b.Keys("/")
	b.Until(`document.activeElement.id === 'find'`)
	b.Keys("report-07\r")
	b.Sees("Why it waits")
	b.Forgive("404 (Not Found)") // because no job has this id
	b.Keys("/")
	b.Keys("thumb\r")
	b.Until(`location.hash === '#/type/thumbnail'`)
	b.Keys("/")
	b.Keys("no such thing\r")
	b.Sees("No job matches.")
	b.Keys("/")
	b.Keys("invoice-1\r")
	b.Sees("failed and is kept: invoice")
	b.At("#/job/invoice-1")
	b.Sees("failed", "failed and is kept: invoice")
	// The focus is visible wherever the Tab key moves it.
	b.At("#/type/report")
	b.Sees("report-00")
	seen := map[string]bool{}
	for range 25 {
		b.Keys("\t")
		x := pagetest.Eval[[]string](b, `const e = document.activeElement, s = getComputedStyle(e); return [e.innerText || e.name || e.className, s.outlineStyle]`)
		if seen[x[0]] = true; x[1] == "none" {
			t.Errorf("%q has the focus and does not show it", x[0])
		}
	}
	if !seen["Pause"] || !seen["queued"] {
		t.Errorf("the tabulator came by %v", seen)
	}
	b.Strict()
}

// TestFind: the search field lists matches as the user types, and the arrow keys or the pointer
// choose one.
func TestFind(t *testing.T) {
	w := busy(t)
	b := w.open("")
	b.Sees("Types with most to do")
	listed := func(want ...string) {
		t.Helper()
		b.Until(`[...document.querySelectorAll('#hits [role=option]')].map(e => e.innerText.trim()).join() === $0`, strings.Join(want, ","))
	}
	b.Keys("/")
	b.Until(`document.activeElement.id === 'find'`)
	b.Keys("pictu")
	listed("picture-1 running", "picture-2 queued")
	b.Accessible("what was found")
	b.Theme("dark")
	b.Keys(kb.ArrowDown)
	b.Accessible("what was found, dark")
	b.Fits(320)
	b.Keys(kb.ArrowDown)
	b.Until(`document.querySelector('#hits [aria-selected=true]').id === document.activeElement.getAttribute('aria-activedescendant')`)
	b.Keys("\r")
	b.Until(`location.hash === '#/job/picture-2' && !document.querySelector('#hits li')`)
	b.Keys("/")
	b.Keys("inv")
	listed("invoice type")
	pagetest.Eval[any](b, `document.querySelector('#hits li').dispatchEvent(new MouseEvent('mousedown', { bubbles: true, cancelable: true }))`)
	b.Until(`location.hash === '#/type/invoice'`)
	b.Keys("/")
	b.Keys("zzzz")
	listed()
	b.Keys("\x1b")
	b.Until(`document.activeElement.id !== 'find'`)
	b.Strict()
}

// TestTabs opens more tabs of one browser than the browser has connections for a host.
func TestTabs(t *testing.T) {
	w := start(t, nil)
	tabs := []*pagetest.Tab{w.open("")}
	limit := 7
	if *long {
		limit = 50
	}
	for len(tabs) < limit {
		b := pagetest.NewTab(t, tabs[0].Context())
		b.Visit(w.url + "/")
		tabs = append(tabs, b)
	}
	w.submit(gloom.Job{Type: "news"})
	for _, b := range tabs {
		b.Sees("news")
		b.Strict()
	}
}
