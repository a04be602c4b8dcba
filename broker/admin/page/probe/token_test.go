package probe

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const tokens = "looker watch\nruler admin\nhander submit\nworker submit,work\nboth watch,submit\n"

// startGuardedBroker starts a broker that requires tokens, and returns it with the path of the
// token file.
func startGuardedBroker(t *testing.T) (*broker, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, "--token-file", file)
	b.token = "worker"
	return b, file
}

// refusalPattern matches the page's texts about an invalid token.
const refusalPattern = "does not know this token|may not|cannot be a token|is no token"

// refusedErrors are the console's texts about a request without a valid token.
var refusedErrors = []string{"status of 401", "status of 403", missingError}

// enterToken types a token into the page's field for tokens.
func (p *pageUser) enterToken(token string) {
	p.t.Helper()
	p.typeInto("textbox", "Token", token)
	p.pressKeys(kb.Enter)
}

// changeButtons holds texts in the names of the buttons that change something.
var changeButtons = []string{"Pause", "Resume", "Limits", "turns", "Cancel", "Change", "Retry", "Discard", "Drain", "Add a rule", "Undo"}

func (p *pageUser) changeButtonsShown() (found []string) {
	p.t.Helper()
	for _, x := range p.find("button", "") {
		for _, name := range changeButtons {
			if strings.Contains(x.name, name) && !x.hasState("disabled") {
				found = append(found, x.name)
			}
		}
	}
	return found
}

// TestPageWithEachToken visits the page without a token, with a wrong token, and with a token of
// each scope.
func TestPageWithEachToken(t *testing.T) {
	t.Parallel()
	b, _ := startGuardedBroker(t)
	b.addContent()
	t.Run("none and wrong", func(t *testing.T) {
		t.Parallel()
		p := newPageUser(t)
		p.Ignore(refusedErrors...)
		p.goTo(b.url("#/type/mail"))
		p.await("textbox", "Token")
		p.checkAccessible("the question for a token")
		for _, secret := range []string{"mail-0", "tenant", "mailer"} {
			if strings.Contains(p.pageText(), secret) {
				t.Errorf("without a token it shows %q", secret)
			}
		}
		for _, token := range []string{"wrong", "mit Umlaut ü", "<img src=x onerror=alert(1)>", strings.Repeat("x", 5000), "looker\nX-Evil: 1"} {
			if testing.Short() && token != "wrong" {
				continue
			}
			p.enterToken(token)
			p.awaitText(refusalPattern)
			p.awaitNoText("asking")
		}
		p.waitUntil("a way in with a good one", func() bool {
			if len(p.find("textbox", "Token")) > 0 {
				p.enterToken("looker")
			}
			return len(p.find("heading", "^mail$")) > 0
		})
		if at := p.currentURL(); at != b.url("#/type/mail") {
			t.Errorf("somebody who asked for a type is at %s", at)
		}
	})
	t.Run("watch", func(t *testing.T) {
		t.Parallel()
		p := newPageUser(t)
		p.Ignore(refusedErrors...)
		p.goTo(b.url(""))
		p.enterToken("looker")
		p.await("heading", "wrong")
		for i, v := range views[:12] {
			if testing.Short() && i%4 != 1 {
				continue
			}
			p.goTo(b.url(cmp.Or(v.route, "#/")))
			p.await("heading", v.heading)
			p.waitUntil(v.name+": something to read", func() bool { return len(p.pageText()) > 60 })
			if found := p.changeButtonsShown(); len(found) > 0 {
				t.Errorf("%s: somebody who may only look is offered %v", v.name, found)
			}
			if found := p.find("button", "(?-i:Submit|Test job)"); len(found) > 0 {
				t.Errorf("%s: somebody who may only look is offered %v", v.name, found)
			}
		}
		if kept := eval[string](p, `return JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage}) + document.cookie + location.href + document.title +
			JSON.stringify((await indexedDB.databases()).map(d => d.name)) + JSON.stringify(history.state)`); strings.Contains(kept, "looker") {
			t.Errorf("the token is kept: %s", kept)
		}
		p.run(chromedp.Reload())
		p.await("textbox", "Token")
	})
	t.Run("admin", func(t *testing.T) {
		t.Parallel()
		p := newPageUser(t)
		p.Ignore(refusedErrors...)
		p.goTo(b.url("#/type/mail"))
		p.enterToken("ruler")
		p.await("heading", "^mail$")
		p.await("button", "^Limits$")
		if found := p.find("button", "(?-i:Submit|Test job)"); len(found) > 0 {
			t.Errorf("somebody who may not submit is offered %v", found)
		}
		p.clickOn("button", "^Take turns$")
		p.await("button", "^No turns$")
	})
	t.Run("submit alone", func(t *testing.T) {
		skipInShort(t)
		t.Parallel()
		p := newPageUser(t)
		p.Ignore(refusedErrors...)
		p.goTo(b.url(""))
		p.enterToken("hander")
		p.awaitText("watch|admin|look|scope|may not")
		if strings.Contains(p.pageText(), "mail-0") {
			t.Error("somebody who may only submit sees jobs")
		}
	})
	t.Run("watch and submit", func(t *testing.T) {
		skipInShort(t)
		t.Parallel()
		p := newPageUser(t)
		p.Ignore(refusedErrors...)
		p.goTo(b.url("#/type/mail"))
		p.enterToken("both")
		p.await("button", "Test job")
		if found := p.changeButtonsShown(); len(found) > 0 {
			t.Errorf("somebody who may look and submit is offered %v", found)
		}
	})
}

// TestTokenIsRevokedUnderOpenPage revokes the token under an open page.
func TestTokenIsRevokedUnderOpenPage(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b, file := startGuardedBroker(t)
	p := newPageUser(t)
	p.Ignore(refusedErrors...)
	p.Ignore("net::ERR") // for the stream, if the broker ends it
	p.goTo(b.url("#/jobs"))
	p.enterToken("ruler")
	p.await("heading", "^Jobs$")
	if err := os.WriteFile(file, []byte("other admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Signal(syscall.SIGHUP)
	if err := b.Log.Await("token"); err != nil {
		t.Fatal(err)
	}
	// The next action makes the page ask for a token again, and then show the same view.
	for end := time.Now().Add(patience); len(p.find("textbox", "Token")) == 0 && time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if found := p.find("button", "Look again"); len(found) > 0 {
			_ = p.click(found[0])
		}
	}
	p.await("textbox", "Token")
	p.enterToken("other")
	p.await("heading", "^Jobs$")
	if at := p.currentURL(); at != b.url("#/jobs") {
		t.Errorf("after the new token it is at %s", at)
	}
}
