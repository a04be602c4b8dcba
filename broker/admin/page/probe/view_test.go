package probe

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	gloom "gloom/clients/go"
)

// startBusyBroker starts a broker with something for every view.
func startBusyBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	b := start(t, args...)
	b.addContent()
	return b
}

// addContent gives the broker something to show in each view.
func (b *broker) addContent() {
	b.t.Helper()
	b.startWorker(&gloom.Worker{Type: "mail", Handler: stuckHandler, Concurrency: 2}, gloom.ClientName("mailer/1"))
	b.startWorker(&gloom.Worker{Type: "broken", Handler: func(context.Context, *gloom.Job) (any, error) {
		return nil, errors.New("mailbox is full")
	}})
	b.startWorker(&gloom.Worker{Type: "quick", Handler: quickHandler})
	var jobs []gloom.Job
	for i := range 12 {
		jobs = append(jobs, gloom.Job{ID: fmt.Sprint("mail-", i), Type: "mail", Body: []byte(`{"n":12345678901234567890}`),
			Groups: []string{"tenant"}, Headers: gloom.Headers(`{"trace":"4711"}`)})
	}
	b.submitAcked(append(jobs, gloom.Job{ID: "later", Type: "nobody", Delay: time.Hour}, gloom.Job{ID: "alone", Type: "nobody"})...)
	b.mustRequest("POST", "/v1/jobs", `{"id":"kept","type":"quick","keep_ms":3600000,"body":1}`)
	b.submitAcked(gloom.Job{ID: "fails", Type: "broken", Retries: gloom.NoRetries, Detach: true, Body: []byte(`{"to":"a@example.com"}`)})
	b.waitUntil("/v1/status", func(v map[string]any) bool {
		return number(v, "dead") == 1 && number(v, "ledger", "running") == 2 && number(v, "ledger", "answered") == 1
	})
}

// mailJobs returns n jobs of the type mail.
func mailJobs(n int) (jobs []gloom.Job) {
	for i := range n {
		jobs = append(jobs, gloom.Job{ID: fmt.Sprint("more-", i), Type: "mail"})
	}
	return jobs
}

// view is a view's address and heading.
type view struct{ name, route, heading string }

// views are the views of a busy broker to which links of the page lead.
var views = []view{
	{"overview", "", "wrong"},
	{"types", "#/types", "^Types$"},
	{"workers", "#/workers", "^Workers$"},
	{"submitters", "#/submitters", "^Submitters$"},
	{"groups", "#/groups", "^Groups$"},
	{"dead letters", "#/dead", "^Dead letters$"},
	{"dead letters of a type", "#/dead/broken", "broken"},
	{"jobs", "#/jobs", "^Jobs$"},
	{"jobs of a group", "#/jobs?group=tenant", "^Jobs$"},
	{"type", "#/type/mail", "^mail$"},
	{"waiting job", "#/job/mail-9", "^mail-9$"},
	{"running job", "#/job/mail-0", "^mail-0$"},
	{"no such job", "#/job/none", "^none$"},
	{"no such type", "#/type/none", "^none$"},
	{"no such view", "#/none", "no such view"},
}

// missingError is the console's text about a job or type that does not exist.
const missingError = "status of 404 (Not Found) "

// TestEveryViewByEveryWay goes through all views by link, address, reload and history.
func TestEveryViewByEveryWay(t *testing.T) {
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.Ignore(missingError)
	for i, v := range views {
		if !testing.Short() {
			p.goTo("about:blank")
		}
		p.goTo(b.url(v.route))
		p.await("heading", v.heading)
		p.checkView(v.name)
		if !testing.Short() && i < 12 {
			p.run(chromedp.Reload())
			p.await("heading", v.heading)
			if got := p.currentURL(); got != b.url(v.route) {
				t.Errorf("%s: reloaded at %s", v.name, got)
			}
		}
	}
}

// checkView checks what must hold in every view.
func (p *pageUser) checkView(name string) {
	p.t.Helper()
	if title := p.title(); title != "Gloom" && !strings.HasSuffix(title, " · Gloom") {
		p.t.Errorf("%s: the title is %q", name, title)
	}
	mainParts, topHeadings := 0, 0
	for _, x := range p.elements() {
		switch {
		case x.role == "main":
			mainParts++
		case x.role == "heading" && x.hasState("level=1"):
			topHeadings++
		case slices.Contains([]string{"button", "link", "textbox", "searchbox", "spinbutton", "image", "meter", "table"}, x.role) && x.name == "":
			p.t.Errorf("%s: a %s without a name", name, x.role)
		}
	}
	if mainParts != 1 || topHeadings != 1 {
		p.t.Errorf("%s: %d main parts and %d headings of the first level\n%s", name, mainParts, topHeadings, p.outline())
	}
	text := p.pageText()
	for _, badText := range []string{"undefined", "NaN", "[object", "Invalid Date", "null,", "Infinity"} {
		if strings.Contains(text, badText) {
			p.t.Errorf("%s: the text has %q:\n%s", name, badText, text)
		}
	}
	if v := p.violations(); len(v) > 0 {
		p.t.Errorf("%s: the content security policy stopped %v", name, v)
	}
}

// TestLinksBackAndForward follows links, goes back and forward, and opens a view by its key.
func TestLinksBackAndForward(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.goTo(b.url(""))
	p.clickOn("link", "^Types$")
	p.await("heading", "^Types$")
	p.clickOn("link", "^mail$")
	p.await("heading", "^mail$")
	p.clickOn("link", "^mail-5$")
	p.await("heading", "^mail-5$")
	for _, want := range []string{"^mail$", "^Types$"} {
		p.run(chromedp.NavigateBack())
		p.await("heading", want)
	}
	p.run(chromedp.NavigateForward())
	p.await("heading", "^mail$")
	p.waitUntil("the title of the type", func() bool { return strings.HasPrefix(p.title(), "mail") })

	// A filter is in the address, and survives a reload.
	p.clickOn("button", "^running$")
	p.waitUntil("a filtered list", func() bool { return len(p.rows("Jobs")) == 2 })
	at := p.currentURL()
	if !strings.Contains(at, "running") {
		t.Errorf("the address does not have the filter: %s", at)
	}
	p.run(chromedp.Reload())
	p.waitUntil("the list filtered again", func() bool { return len(p.rows("Jobs")) == 2 })
	other := newPageUser(t)
	other.goTo(at)
	other.waitUntil("the list filtered for another", func() bool { return len(other.rows("Jobs")) == 2 })

	p.clickOn("combobox", "Find")
	p.insert("mail-7")
	p.pressKeys(kb.Enter)
	p.await("heading", "mail-7|^Jobs$")
	p.await("link", "mail-7|^mail$")
	p.run(chromedp.NavigateBack())
	p.waitUntil("the filtered list again", func() bool { return p.currentURL() == at })
}

// TestListsAreFiltered filters lists.
func TestListsAreFiltered(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	b.submitAcked(gloom.Job{ID: "mail-old", Type: "mail", Age: time.Hour}, gloom.Job{ID: "other", Type: "mail", Groups: []string{"a/b ?#"}})
	var endedJobs []gloom.Job
	for i := range 60 {
		endedJobs = append(endedJobs, gloom.Job{ID: fmt.Sprint("ended-", i), Type: "quick"})
	}
	b.submitAcked(endedJobs...)
	b.waitUntil("/v1/status", func(v map[string]any) bool { return number(v, "ledger", "answered") == 61 })
	p := newPageUser(t)
	count := func(n int) func() bool {
		return func() bool { return len(p.rows("Jobs")) == n }
	}
	for _, c := range []struct {
		name, route string
		n           int
		do          func()
	}{
		{"all", "#/jobs", 17, func() {}},
		{"running", "#/jobs", 2, func() { p.clickOn("button", "^running$") }},
		{"delayed", "#/jobs", 1, func() { p.clickOn("button", "^delayed$") }},
		{"ended, page by page", "#/jobs", 50, func() { p.clickOn("button", "^ended$") }},
		{"part of the id", "#/type/mail", 3, func() { p.typeInto("textbox", "Part of the id", "mail-1") }},
		{"group", "#/jobs", 1, func() { p.typeInto("textbox", "Group", "a/b ?#"); p.pressKeys(kb.Enter) }},
		{"age", "#/jobs", 1, func() { p.typeInto("spinbutton", "Older", "1800"); p.pressKeys(kb.Enter) }},
		{"nothing", "#/jobs", 0, func() { p.typeInto("textbox", "Part of the id", "<b>zzz"); p.pressKeys(kb.Enter) }},
	} {
		p.goTo("about:blank")
		p.goTo(b.url(c.route))
		p.await("heading", "^(Jobs|mail)$")
		c.do()
		p.waitUntil(fmt.Sprintf("%s: %d jobs", c.name, c.n), count(c.n))
		p.checkView(c.name)
		at := p.currentURL()
		p.goTo("about:blank")
		p.goTo(at)
		p.waitUntil(fmt.Sprintf("%s by its address %s: %d jobs", c.name, at, c.n), count(c.n))
	}
	p.goTo(b.url("#/types"))
	p.typeInto("searchbox", "Part of a name", "ai")
	p.waitUntil("one type", func() bool { return len(p.find("link", "^(mail|broken|quick|nobody)$")) == 1 })
	p.goTo(b.url("#/dead/broken"))
	p.typeInto("textbox", "reason", "no such reason")
	p.waitUntil("no dead letter", func() bool { return len(p.find("link", "^fails$")) == 0 })
	p.typeInto("textbox", "reason", "mailbox")
	p.await("link", "^fails$")
}

// TestBrokerWithoutJobs looks at a broker without jobs.
func TestBrokerWithoutJobs(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := start(t)
	p := newPageUser(t)
	p.Ignore(missingError)
	for _, v := range views {
		heading := v.heading
		if v.route == "" {
			heading = healthyPattern
		}
		if strings.Contains(v.route, "mail") {
			continue
		}
		p.goTo("about:blank")
		p.goTo(b.url(v.route))
		p.await("heading", heading)
		p.checkView(v.name)
		p.waitUntil(v.name+": something that says there is nothing", func() bool {
			return strings.Contains(strings.ToLower(p.pageText()), "no") || strings.Contains(p.pageText(), "nothing")
		})
	}
	p.goTo(b.url(""))
	p.await("heading", healthyPattern)
	for _, f := range p.findings() {
		if !strings.Contains(f.text, "event loop") { // late on a slow machine
			t.Errorf("an empty broker has a finding: %s", f.text)
		}
	}
}

// TestCopyWorksOverPlainHTTP: copying also works over plain HTTP under a host's name, where
// browsers give the page no clipboard.
func TestCopyWorksOverPlainHTTP(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t, "--http-hosts", "page.test")
	p := newPageUser(t)
	p.goTo("http://page.test" + b.http[strings.LastIndexByte(b.http, ':'):] + "/#/job/mail-9")
	p.await("heading", "^mail-9$")
	if eval[bool](p, `return isSecureContext`) {
		t.Fatal("the browser trusts the page")
	}
	p.clickOn("button", "Copy id")
	p.pressKeys("/")
	p.waitUntil("the focus in the search", func() bool { x := p.focusedElement(); return x != nil && x.role == "combobox" })
	p.paste()
	p.waitUntil("what was copied", func() bool { x := p.focusedElement(); return x != nil && x.value == "mail-9" })
}

// TestClockAndZone looks from another time zone, with a clock an hour ahead.
func TestClockAndZone(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.setZone("Asia/Kathmandu")
	p.skewClock(time.Hour)
	ages := func() []string {
		var shownAges []string
		for _, x := range p.elements() {
			if x.role == "StaticText" && agePattern.MatchString(x.name) {
				shownAges = append(shownAges, x.name)
			}
		}
		return shownAges
	}
	for _, v := range []view{views[0], views[2], views[3], views[7], views[9], views[10], views[11]} {
		p.goTo("about:blank")
		p.goTo(b.url(v.route))
		p.await("heading", v.heading)
		var first []string
		p.waitUntil(v.name+": an age", func() bool { first = ages(); return len(first) > 0 })
		for _, a := range first {
			if longAgePattern.MatchString(a) && !strings.Contains(a, "delay") {
				t.Errorf("%s: with a clock an hour ahead it shows %q", v.name, a)
			}
		}
		p.waitUntil(v.name+": ages that go on", func() bool { return !slices.Equal(first, ages()) })
	}
}

// viewFragment returns the URL fragment of a view, such as "#/type/mail".
func viewFragment(kind, name string) string { return "#/" + kind + "/" + url.PathEscape(name) }
