package probe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"gloom/broker/page/pagetest"

	"github.com/chromedp/chromedp/kb"
)

// checkAccessible fails if axe-core finds a violation.
func (p *pageUser) checkAccessible(name string) {
	p.t.Helper()
	if !eval[bool](p, `return 'axe' in window`) {
		p.run(chromedp.Evaluate[chromedp.Void](pagetest.AxeScript))
	}
	for _, f := range eval[[]string](p, `const r = await axe.run(document, { resultTypes: ['violations'] });
		return r.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + v.help + ' ' + n.html.slice(0, 200) + ' ' + n.failureSummary))`) {
		p.t.Errorf("%s: %s", name, f)
	}
}

// checkFits fails if the page is wider than the window.
func (p *pageUser) checkFits(name string) {
	p.t.Helper()
	if excess := eval[int](p, `return Math.max(0, document.documentElement.scrollWidth - innerWidth)`); excess > 0 {
		p.t.Errorf("%s: it is %d pixels too wide:\n%s", name, excess, strings.Join(eval[[]string](p, `
			return [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && e.textContent.trim())
				.slice(-3).map(e => e.textContent.slice(0, 80))`), "\n"))
	}
}

// TestEveryViewInEveryTheme checks each view in both themes, in a narrow window, enlarged, and with
// reduced motion.
func TestEveryViewInEveryTheme(t *testing.T) {
	t.Parallel()
	b := startBusyBroker(t)
	themes, views, buttons := []string{"light", "dark"}, views, []string{"^Help", "Submit a test job", "^Drain"}
	if testing.Short() {
		themes, views, buttons = themes[1:], []view{views[0], views[9], views[10]}, nil
	}
	for _, theme := range themes {
		t.Run(theme, func(t *testing.T) {
			p := newPageUser(t)
			p.Ignore(missingError)
			p.setPreference("prefers-color-scheme", theme)
			var background string
			for _, v := range views {
				p.goTo("about:blank")
				p.goTo(b.url(v.route))
				p.await("heading", v.heading)
				p.checkAccessible(v.name)
				p.setSize(320, 640)
				p.checkFits(v.name + " at 320 pixels")
				p.run(chromedp.EmulateViewport(640, 450, chromedp.EmulateScale(2)))
				p.checkFits(v.name + " at 200 %")
				p.setSize(1280, 900)
				p.checkFits(v.name)
				background = eval[string](p, `return getComputedStyle(document.body).backgroundColor + getComputedStyle(document.documentElement).backgroundColor`)
			}
			t.Logf("the ground is %s", background)
			for _, button := range buttons {
				p.goTo(b.url("#/"))
				p.clickOn("button", button)
				p.await("dialog", "")
				p.checkAccessible(button)
				p.setSize(320, 640)
				p.checkFits(button + " at 320 pixels")
				p.setSize(1280, 900)
				p.pressKeys(kb.Escape)
				p.waitUntil("no dialog", func() bool { return len(p.find("dialog", "")) == 0 })
			}
		})
	}
}

// TestNothingMovesIfUnwanted: nothing moves if the person prefers reduced motion.
func TestNothingMovesIfUnwanted(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.setPreference("prefers-reduced-motion", "reduce")
	p.goTo(b.url(""))
	p.await("heading", "wrong")
	p.clickOn("button", "^Help")
	p.await("dialog", "")
	if moves := eval[[]string](p, `return document.getAnimations().filter(a => a.playState === 'running').map(a => a.animationName || a.transitionProperty || 'script')`); len(moves) > 0 {
		t.Errorf("moving: %v", moves)
	}
}

// TestEveryViewByKeyboard visits every view without a mouse.
func TestEveryViewByKeyboard(t *testing.T) {
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.Ignore(missingError) // for the job that is cancelled at the end
	tabViews := []view{views[0], views[6], views[9], views[10]}
	if testing.Short() {
		tabViews = tabViews[3:]
	}
	for _, v := range tabViews {
		p.goTo("about:blank")
		p.goTo(b.url(v.route))
		p.await("heading", v.heading)
		p.await("button", "Help")
		var want []string
		for _, x := range p.elements() {
			switch x.role {
			case "link", "button", "textbox", "searchbox", "spinbutton", "combobox", "checkbox":
				if !x.hasState("disabled") {
					want = append(want, x.role+" "+x.name)
				}
			}
		}
		reachedNames := map[string]bool{}
		for range 3 * len(want) {
			p.pressKeys(kb.Tab)
			x := p.focusedElement()
			if x == nil {
				if len(reachedNames) >= len(want) {
					break
				}
				continue
			}
			if reachedNames[x.role+" "+x.name] {
				continue
			}
			reachedNames[x.role+" "+x.name] = true
			if focusText := eval[string](p, `let e = document.activeElement; const r = e.getBoundingClientRect(), s = getComputedStyle(e);
				if (r.bottom < 0 || r.top > innerHeight || !r.width) return 'out of sight';
				return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== 'none' ? '' : 'not marked'`); focusText != "" {
				t.Errorf("%s: the focus on the %s %q is %s", v.name, x.role, x.name, focusText)
			}
		}
		for _, name := range want {
			if !reachedNames[name] {
				t.Errorf("%s: Tab does not reach the %s", v.name, name)
			}
		}
	}

	p.goTo(b.url("#/"))
	p.await("heading", "wrong")
	p.pressKeys("/")
	p.waitUntil("the focus in the search", func() bool { x := p.focusedElement(); return x != nil && x.role == "combobox" })
	p.insert("mail-3")
	p.pressKeys(kb.Enter)
	p.await("heading", "mail-3|^Jobs$")
	p.pressKeys(kb.Escape)
	p.pressKeys("?")
	p.await("dialog", "Keys")
	p.pressKeys(kb.Escape)
	// Keys count again once the page has heard that the dialog is closed, and has removed it.
	p.waitUntil("no dialog", func() bool { return eval[bool](p, `return !document.querySelector("dialog")`) })
	for i, heading := range []string{"wrong", "^Types$", "^Workers$", "^Submitters$", "^Groups$", "^Dead letters$", "^Jobs$"} {
		p.pressKeys(fmt.Sprint(i + 1))
		p.await("heading", heading)
	}
	p.goTo(b.url("#/job/mail-8"))
	p.await("heading", "mail-8")
	for range 60 {
		p.pressKeys(kb.Tab)
		if x := p.focusedElement(); x != nil && x.name == "Cancel" {
			break
		}
	}
	p.pressKeys(kb.Enter)
	p.await("dialog", "mail-8")
	for range 10 {
		if x := p.focusedElement(); x != nil && x.name == "Cancel the job" {
			break
		}
		p.pressKeys(kb.Tab)
	}
	p.pressKeys(kb.Enter)
	b.waitUntil("/v1/jobs?id=mail-8", func(v map[string]any) bool { return len(v["items"].([]any)) == 0 })
}
