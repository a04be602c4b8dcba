package probe

import (
	"strings"
	"syscall"
	"testing"

	gloom "gloom/clients/go"
)

// goneText is the page's text about a broker that does not answer.
const goneText = `does not answer|cannot be reached|is away|no connection|connection is lost`

// TestBrokerIsReplacedUnderOpenPages kills the broker under open pages, and starts a new one
// without its state.
func TestBrokerIsReplacedUnderOpenPages(t *testing.T) {
	t.Parallel()
	b := startBusyBroker(t)
	people := map[string]*pageUser{}
	for _, v := range []view{views[0], views[1], views[2], views[5], views[7], views[9], views[11]} {
		if testing.Short() && v.name != "overview" && v.name != "type" {
			continue
		}
		p := newPageUser(t)
		p.Ignore(missingError, "net::ERR", "Failed to fetch", "ERR_CONNECTION", "ERR_INCOMPLETE")
		p.goTo(b.url(v.route))
		p.await("heading", v.heading)
		people[v.name] = p
	}
	people["overview"].await("heading", "wrong")
	people["type"].await("button", "^Pause$")
	b.Kill()
	for name, p := range people {
		p.awaitText(goneText)
		if name == "overview" {
			p.expect("a heading that does not say that all is known", func() bool {
				for _, x := range p.find("heading", "") {
					if x.hasState("level=1") && (strings.Contains(x.name, "well") || strings.Contains(x.name, "wrong")) {
						return false
					}
				}
				return true
			})
		}
		p.expect(name+": when what is seen was so", func() bool { return strings.Contains(p.pageText(), "from ") || strings.Contains(p.pageText(), "as of") })
	}
	// If an action cannot be carried out, the page says so.
	p := people["type"]
	p.clickOn("button", "^Pause$")
	p.awaitText("not|failed|refused|no answer")
	if strings.Contains(p.pageText(), "mail is paused") {
		t.Error("it says that a broker which is away has paused a type")
	}

	b.disconnectAll()
	b.begin()
	b.submitAcked(gloom.Job{ID: "new", Type: "fresh"})
	for _, p := range people {
		p.awaitNoText(goneText)
	}
	people["overview"].awaitText("1 waiting", "fresh")
	people["overview"].awaitNoText("mail")
	people["type"].waitUntil("no earlier figures", func() bool { return !strings.Contains(people["type"].pageText(), "oldest") })
	if testing.Short() {
		return
	}
	people["types"].await("link", "^fresh$")
	people["types"].waitUntil("no earlier type", func() bool { return len(people["types"].find("link", "^mail$")) == 0 })
	people["workers"].waitUntil("no earlier worker", func() bool { return !strings.Contains(people["workers"].pageText(), "mail-0") })
	people["dead letters"].waitUntil("no earlier dead letter", func() bool { return len(people["dead letters"].find("link", "^broken$")) == 0 })
	people["running job"].awaitText("No job with this id|is not known|over")
	for name, p := range people {
		if v := p.violations(); len(v) > 0 {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// TestBrokerIsFrozenUnderOpenPage stops the broker's process under an open page, and then continues
// it.
func TestBrokerIsFrozenUnderOpenPage(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.Ignore("net::ERR", "Failed to fetch")
	p.goTo(b.url(""))
	p.await("heading", "wrong")
	b.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { b.Signal(syscall.SIGCONT) })
	p.awaitText(goneText)
	p.expect("a heading that does not say that all is known", func() bool { return len(p.find("heading", "well|wrong")) == 0 })
	b.Signal(syscall.SIGCONT)
	p.awaitNoText(goneText)
	b.submitAcked(gloom.Job{ID: "after", Type: "mail"})
	p.awaitText("12 waiting")
	p.await("heading", "wrong")
}

// TestPageSaysThatBrokerDrains: the page says that the broker is about to stop.
func TestPageSaysThatBrokerDrains(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := start(t, "--drain-timeout", "5m")
	b.startWorker(&gloom.Worker{Type: "mail", Handler: stuckHandler})
	b.submitAcked(gloom.Job{ID: "mail-0", Type: "mail"})
	p := newPageUser(t)
	p.Ignore("net::ERR", "Failed to fetch", "503")
	p.goTo(b.url(""))
	p.await("heading", "")
	p.awaitText("1 running")
	b.mustRequest("POST", "/v1/drain", "{}")
	p.awaitText("drain")
	p.clickOn("link", "^Types$")
	p.await("heading", "^Types$")
	b.Kill()
}

// TestOtherTabShowsAction: another tab shows the effect of an action.
func TestOtherTabShowsAction(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	user1, user2 := newPageUser(t), newPageUser(t)
	user1.goTo(b.url("#/type/mail"))
	user2.goTo(b.url("#/type/mail"))
	user2.await("button", "^Pause$")
	user1.clickOn("button", "^Pause$")
	user2.await("button", "^Resume$")
	user2.awaitText("paused")
	user2.clickOn("button", "^Resume$")
	user1.await("button", "^Pause$")
}
