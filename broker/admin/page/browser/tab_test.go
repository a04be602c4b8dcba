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

// TestPageAsksForToken: the page asks for a token, keeps it to itself, and offers what the token
// allows.
func TestPageAsksForToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("secret-a admin\nsecret-w watch\nsecret-s submit\nsecret-ws watch,submit\nsecret-wm watch,submit mail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *settings.Options) { o.TokenFile = file })
	b := w.openPage("#/type/none")
	b.Ignore("401 (Unauthorized)")
	b.Ignore("403 (Forbidden)")
	b.Ignore("404 (Not Found)")
	enter := func(token string) {
		t.Helper()
		b.Fill("token", token)
		b.ClickButton("Go in")
	}
	b.WaitForText("This broker needs a token")
	b.CheckAccessible("the door")
	enter("wrong")
	b.WaitForText("Asking. A wrong token is refused slowly…")
	b.WaitForText("does not know this token")
	enter("secret-s")
	b.WaitForText("This token may not read this page")
	enter("secret-w")
	b.WaitForText("Overview")
	b.GoTo("#/")
	b.WaitForText("No job has come")
	if text := b.Text(); strings.Contains(text, "Drain") || strings.Contains(text, "Submit a test job") {
		t.Errorf("who may watch is offered more:\n%s", text)
	}
	if kept := pagetest.Eval[bool](b, `return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]).includes('secret')`); kept {
		t.Error("the token was kept")
	}
	b.Visit(w.url + "/")
	b.WaitForText("This broker needs a token")
	enter("secret-ws")
	b.WaitForText("Submit a test job")
	b.Visit(w.url + "/")
	enter("secret-wm")
	b.GoTo("#/type/mail")
	b.WaitForText("Test job")
	b.GoTo("#/type/sms")
	b.WaitForText("No job or worker of this type")
	b.WaitForNoText("Test job")
	b.Visit(w.url + "/")
	enter("secret-a")
	b.WaitForText("Drain")
	b.CheckPolicy()
}

// TestOpenPageSurvivesBrokerRestart: an open page says that the broker does not answer, and
// continues with the restarted broker.
func TestOpenPageSurvivesBrokerRestart(t *testing.T) {
	w := start(t, nil)
	b := w.openPage("")
	b.Ignore("net::ERR", "Failed to fetch")
	w.submit(gloom.Job{Type: "before"})
	b.WaitForText("before")
	submit, http_ := w.srv.SubmitAddr().String(), w.srv.HTTPAddr().String()
	_ = w.srv.Close()
	b.WaitForText("The broker does not answer", "Trying again", "before", "Not known: the broker is away")
	b.WaitForNoText("Everything is healthy")
	b.WaitUntil(`document.title.startsWith('away')`)
	b.CheckAccessible("away")
	b.GoTo("#/workers") // a view whose script has not been loaded yet
	b.WaitForText("This view could not be loaded.")
	secondWorld := start(t, func(o *settings.Options) { o.SubmitAddr, o.HTTPAddr, o.Version = submit, http_, "v2.0.0" })
	b.WaitForNoText("The broker does not answer")
	b.WaitForText("No worker is connected.")
	b.GoTo("#/")
	b.WaitForText("v2.0.0", "No job has come")
	secondWorld.submit(gloom.Job{Type: "after"})
	b.WaitForText("after")
	b.CheckPolicy()
}

// TestEveryViewByKeyboard visits every view without a pointer.
func TestEveryViewByKeyboard(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("")
	b.WaitForText("Types with most to do")
	b.SendKeys("?")
	b.WaitForText("find a job or a type", "gloom explain ID and gloom findings")
	b.WaitUntil(`document.activeElement.closest('dialog')`)
	b.SendKeys("\x1b")
	b.WaitUntil(`!document.querySelector('dialog')`)
	for i, name := range []string{"Overview", "Types", "Workers", "Submitters", "Groups", "Dead letters", "Jobs"} {
		b.SendKeys(fmt.Sprint(i + 1))
		b.WaitUntil(`document.querySelector('nav [aria-current]')?.innerText === $0`, name)
	}
	b.SendKeys("/")
	b.WaitUntil(`document.activeElement.id === 'find'`)
	b.SendKeys("report-07\r")
	b.WaitForText("Why it waits")
	b.Ignore("404 (Not Found)") // because no job has this id
	b.SendKeys("/")
	b.SendKeys("thumb\r")
	b.WaitUntil(`location.hash === '#/type/thumbnail'`)
	b.SendKeys("/")
	b.SendKeys("no such thing\r")
	b.WaitForText("No job matches.")
	b.SendKeys("/")
	b.SendKeys("invoice-1\r")
	b.WaitForText("failed and is kept: invoice")
	b.GoTo("#/job/invoice-1")
	b.WaitForText("failed", "failed and is kept: invoice")
	// The focus is visible wherever the Tab key moves it.
	b.GoTo("#/type/report")
	b.WaitForText("report-00")
	focused := map[string]bool{}
	for range 25 {
		b.SendKeys("\t")
		x := pagetest.Eval[[]string](b, `const e = document.activeElement, s = getComputedStyle(e); return [e.innerText || e.name || e.className, s.outlineStyle]`)
		focused[x[0]] = true
		if x[1] == "none" {
			t.Errorf("%q has the focus and does not show it", x[0])
		}
	}
	if !focused["Pause"] || !focused["queued"] {
		t.Errorf("the tabulator came by %v", focused)
	}
	b.CheckPolicy()
}

// TestSearchListsMatches: the search field lists matches as the user types, and the arrow keys or
// the pointer choose a match.
func TestSearchListsMatches(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("")
	b.WaitForText("Types with most to do")
	wantMatches := func(want ...string) {
		t.Helper()
		b.WaitUntil(`[...document.querySelectorAll('#hits [role=option]')].map(e => e.innerText.trim()).join() === $0`, strings.Join(want, ","))
	}
	b.SendKeys("/")
	b.WaitUntil(`document.activeElement.id === 'find'`)
	b.SendKeys("pictu")
	wantMatches("picture-1 running", "picture-2 queued")
	b.CheckAccessible("what was found")
	b.SetTheme("dark")
	b.SendKeys(kb.ArrowDown)
	b.CheckAccessible("what was found, dark")
	b.CheckFits(320)
	b.SendKeys(kb.ArrowDown)
	b.WaitUntil(`document.querySelector('#hits [aria-selected=true]').id === document.activeElement.getAttribute('aria-activedescendant')`)
	b.SendKeys("\r")
	b.WaitUntil(`location.hash === '#/job/picture-2' && !document.querySelector('#hits li')`)
	b.SendKeys("/")
	b.SendKeys("inv")
	wantMatches("invoice type")
	pagetest.Eval[any](b, `document.querySelector('#hits li').dispatchEvent(new MouseEvent('mousedown', { bubbles: true, cancelable: true }))`)
	b.WaitUntil(`location.hash === '#/type/invoice'`)
	b.SendKeys("/")
	b.SendKeys("zzzz")
	wantMatches()
	b.SendKeys("\x1b")
	b.WaitUntil(`document.activeElement.id !== 'find'`)
	b.CheckPolicy()
}

// TestManyTabsOfOneBrowser opens more tabs of one browser than the browser has connections for a
// host.
func TestManyTabsOfOneBrowser(t *testing.T) {
	w := start(t, nil)
	tabs := []*pagetest.Tab{w.openPage("")}
	limit := 7
	if *runLong {
		limit = 50
	}
	for len(tabs) < limit {
		b := pagetest.NewTab(t, tabs[0].Context())
		b.Visit(w.url + "/")
		tabs = append(tabs, b)
	}
	w.submit(gloom.Job{Type: "news"})
	for _, b := range tabs {
		b.WaitForText("news")
		b.CheckPolicy()
	}
}
