package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"gloom/broker/page/pagetest"
)

// pageUser is a person who uses the page, with a tab of their own.
type pageUser struct {
	t   *testing.T
	ctx context.Context
	*pagetest.Recorder
}

// agePattern matches how long something takes or has taken; longAgePattern matches a time of
// about an hour or of hours.
var (
	agePattern     = regexp.MustCompile(`^(for |oldest |up )?[0-9.,]+(\x{202f}|\x{2009}| )(ms|s|min|h)\b`)
	longAgePattern = regexp.MustCompile(`\b(5[0-9]|6[0-9])(\x{202f}|\x{2009}| )min|\b[0-9.]+(\x{202f}|\x{2009}| )h\b|\b1h`)
)

// element is an element that a person can perceive.
type element struct {
	role, name, value string
	states            []string
	node              cdp.BackendNodeID
	parent            *element
	depth             int
}

func (e *element) hasState(state string) bool { return slices.Contains(e.states, state) }

func (e *element) String() string {
	s := fmt.Sprintf("%s%s %q", strings.Repeat("  ", e.depth), e.role, e.name)
	if e.value != "" {
		s += fmt.Sprintf(" = %q", e.value)
	}
	if len(e.states) > 0 {
		s += fmt.Sprint(" ", e.states)
	}
	return s
}

// newPageUser returns a user with an empty tab. If the page causes an error in the console, the test
// fails.
func newPageUser(t *testing.T, opts ...chromedp.ContextOption) *pageUser {
	t.Helper()
	ctx, end := chromedp.NewContext(chromium, append(opts, chromedp.WithNewBrowserContext())...)
	t.Cleanup(end)
	p := &pageUser{t: t, ctx: ctx, Recorder: pagetest.Record(t, ctx)}
	runCommand(p, accessibility.Enable, cdp.Empty{})
	p.setSize(1280, 900)
	return p
}

// actionContext returns a context for one action of the person, which ends after patience.
func (p *pageUser) actionContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, patience)
}

func tryCommand[P, R any](p *pageUser, cmd cdp.Command[P, R], params P) (R, error) {
	ctx, end := p.actionContext()
	defer end()
	return chromedp.Call(ctx, cmd, params)
}

func (p *pageUser) tryActions(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, end := p.actionContext()
	defer end()
	return chromedp.Do(ctx, steps...)
}

// run carries out browser actions that must succeed.
func (p *pageUser) run(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := p.tryActions(steps...); err != nil {
		p.t.Fatal(err)
	}
}

func runCommand[P, R any](p *pageUser, cmd cdp.Command[P, R], params P) R {
	p.t.Helper()
	r, err := tryCommand(p, cmd, params)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *pageUser) goTo(url string) {
	p.t.Helper()
	p.run(chromedp.Navigate(url))
}

// startGoingTo navigates to a URL; the page may be left again before it has loaded.
func (p *pageUser) startGoingTo(url string) { _ = p.tryActions(chromedp.Navigate(url)) }

func (p *pageUser) setSize(width, height int64) {
	p.t.Helper()
	p.run(chromedp.EmulateViewport(width, height))
}

// setPreference sets a preference that the system reports, such as prefers-color-scheme.
func (p *pageUser) setPreference(name, value string) {
	p.t.Helper()
	runCommand(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}})
}

// setZone sets the person's time zone.
func (p *pageUser) setZone(name string) {
	p.t.Helper()
	runCommand(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
}

// skewClock shifts the clock of the person's browser on all later pages.
func (p *pageUser) skewClock(skew time.Duration) {
	p.t.Helper()
	runCommand(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(`{
		const Right = Date, by = %d;
		window.Date = class extends Right { constructor(...a) { a.length ? super(...a) : super(Right.now() + by) } };
		Date.now = () => Right.now() + by;
	}`, skew.Milliseconds())})
}

// eval runs the body of an async function.
func eval[T any](p *pageUser, script string) T {
	p.t.Helper()
	ctx, end := p.actionContext()
	defer end()
	data, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](`(async()=>{`+script+`})().then(v=>v===undefined?null:v)`, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%v\n%s", err, script)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		p.t.Fatalf("%v: %s\n%s", err, data, script)
	}
	return v
}

// pageText returns the text that the page shows.
func (p *pageUser) pageText() string {
	p.t.Helper()
	return eval[string](p, `return document.body ? document.body.innerText : ''`)
}

// textNow is like text, but returns "" while one page replaces another.
func (p *pageUser) textNow() string {
	ctx, end := p.actionContext()
	defer end()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ''`))
	return text
}

func (p *pageUser) title() string { p.t.Helper(); return eval[string](p, `return document.title`) }

func (p *pageUser) currentURL() string { p.t.Helper(); return eval[string](p, `return location.href`) }

// elements returns the nodes of the accessibility tree, in order.
func (p *pageUser) elements() []*element {
	p.t.Helper()
	tree := runCommand(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	str := func(v *accessibility.Value) string {
		if v == nil || len(v.Value) == 0 {
			return ""
		}
		var s any
		_ = json.Unmarshal([]byte(v.Value), &s)
		return fmt.Sprint(s)
	}
	nodesByID := map[accessibility.NodeID]*accessibility.Node{}
	for _, n := range tree.Nodes {
		nodesByID[n.NodeID] = n
	}
	var nodes []*element
	var walk func(n *accessibility.Node, parent *element, depth int)
	walk = func(n *accessibility.Node, parent *element, depth int) {
		if role := str(n.Role); !n.Ignored && role != "InlineTextBox" && role != "none" && (role != "generic" || str(n.Name) != "") {
			x := &element{role: role, name: str(n.Name), value: str(n.Value), node: n.BackendDOMNodeID, parent: parent, depth: depth}
			for _, s := range n.Properties {
				switch v := str(s.Value); s.Name {
				case "disabled", "focused", "selected", "expanded", "invalid", "modal", "required", "busy":
					if v == "true" {
						x.states = append(x.states, string(s.Name))
					}
				case "checked", "pressed", "sort", "current", "level", "live":
					x.states = append(x.states, string(s.Name)+"="+v)
				case "url":
					x.states = append(x.states, v)
				}
			}
			nodes = append(nodes, x)
			parent, depth = x, depth+1
		}
		for _, id := range n.ChildIDs {
			if c := nodesByID[id]; c != nil {
				walk(c, parent, depth)
			}
		}
	}
	if len(tree.Nodes) > 0 {
		walk(tree.Nodes[0], nil, 0)
	}
	return nodes
}

// outline returns the accessibility tree as text, to find out what went wrong.
func (p *pageUser) outline() string {
	var s strings.Builder
	for _, x := range p.elements() {
		switch {
		case x.role == "StaticText" && x.parent != nil && x.parent.name == x.name, x.role == "columnheader":
		case x.role == "StaticText":
			fmt.Fprintf(&s, "%q ", x.name)
		default:
			fmt.Fprintf(&s, "\n%s ", x)
		}
	}
	return s.String()
}

// find returns the elements with a role whose names match a pattern.
func (p *pageUser) find(role, name string) (found []*element) {
	p.t.Helper()
	namePattern := regexp.MustCompile("(?is)" + name)
	for _, x := range p.elements() {
		if x.role == role && namePattern.MatchString(x.name) {
			found = append(found, x)
		}
	}
	return found
}

// rows returns a table's cells, row by row, without the header.
func (p *pageUser) rows(table string) (rows [][]string) {
	p.t.Helper()
	in := func(x *element, role, name string) *element {
		for ; x != nil; x = x.parent {
			if x.role == role && (name == "" || x.name == name) {
				return x
			}
		}
		return nil
	}
	var row *element
	for _, x := range p.elements() {
		if (x.role == "cell" || x.role == "gridcell" || x.role == "rowheader") && in(x, "table", table) != nil {
			if r := in(x, "row", ""); r != row {
				row, rows = r, append(rows, nil)
			}
			rows[len(rows)-1] = append(rows[len(rows)-1], x.name)
		}
	}
	return rows
}

// waitUntil waits until a condition is true.
func (p *pageUser) waitUntil(name string, isReached func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !isReached(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("never: %s; %s\nthe page:\n%.12000s", name, p.currentURL(), p.outline())
		}
	}
}

// expect is like until, but the test continues if the condition stays false.
func (p *pageUser) expect(name string, isReached func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !isReached(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Errorf("never: %s; %s\nthe page:\n%.3000s", name, p.currentURL(), p.pageText())
			return
		}
	}
}

// await waits for an element with this role and a name that matches, and returns it.
func (p *pageUser) await(role, name string) (x *element) {
	p.t.Helper()
	p.waitUntil(fmt.Sprintf("a %s named %q", role, name), func() bool {
		if found := p.find(role, name); len(found) > 0 {
			x = found[0]
		}
		return x != nil
	})
	return x
}

// awaitText waits until the text matches all patterns.
func (p *pageUser) awaitText(patterns ...string) {
	p.t.Helper()
	for _, s := range patterns {
		textPattern := regexp.MustCompile("(?is)" + s)
		p.waitUntil(fmt.Sprintf("the text %q", s), func() bool { return textPattern.MatchString(p.pageText()) })
	}
}

// awaitNoText waits until the text does not match the pattern.
func (p *pageUser) awaitNoText(pattern string) {
	p.t.Helper()
	textPattern := regexp.MustCompile("(?is)" + pattern)
	p.waitUntil(fmt.Sprintf("no text %q", pattern), func() bool { return !textPattern.MatchString(p.pageText()) })
}

// clickOn waits until an element exists and is enabled, and makes the person click on it.
func (p *pageUser) clickOn(role, name string) {
	p.t.Helper()
	p.waitUntil(fmt.Sprintf("a click on the %s %q", role, name), func() bool {
		for _, x := range p.find(role, name) {
			if !x.hasState("disabled") && p.click(x) == nil {
				return true
			}
		}
		return false
	})
}

var errUnseen = errors.New("it cannot be seen, or something is before it")

// click makes the person click where the thing is visible, or returns why that is not possible. If
// the page moves while the mouse is on its way, the click does not hit another thing that has moved
// there.
func (p *pageUser) click(x *element) error {
	node, err := tryCommand(p, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: x.node})
	if err != nil {
		return err
	}
	at, err := tryCommand(p, runtime.CallFunctionOn, runtime.CallFunctionOnParams{ObjectID: node.Object.ObjectID, ReturnByValue: new(true), FunctionDeclaration: `function () {
		const e = this.nodeType === 1 ? this : this.parentElement;
		const guard = (event) => {
			if (e.contains(event.target)) return;
			window.probeMissed = true;
			event.preventDefault();
			event.stopImmediatePropagation();
		};
		const kinds = ['mousedown', 'mouseup', 'click'];
		window.probeMissed = false;
		window.probeUnguard?.();
		window.probeUnguard = () => kinds.forEach((kind) => window.removeEventListener(kind, guard, true));
		kinds.forEach((kind) => window.addEventListener(kind, guard, true));
		e.scrollIntoView({ block: 'center', inline: 'start', behavior: 'instant' });
		for (const r of e.getClientRects())
			for (const part of [0.5, 0.1, 0.01, 0.9]) {
				const x = r.left + r.width * part, y = r.top + r.height / 2;
				if (e.contains(document.elementFromPoint(x, y))) return [x, y];
			}
	}`})
	if err != nil {
		return err
	}
	var spot []float64
	if err := json.Unmarshal([]byte(at.Result.Value), &spot); err != nil || len(spot) != 2 {
		return errUnseen
	}
	if err := p.tryActions(chromedp.MouseClickXY(spot[0], spot[1])); err != nil {
		return err
	}
	ctx, end := p.actionContext()
	defer end()
	missed, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`window.probeUnguard?.(), !!window.probeMissed`))
	if err == nil && missed { // an error means that the click has led to another page
		return errUnseen
	}
	return nil
}

// typeInto makes the person replace a field's content with a text.
func (p *pageUser) typeInto(role, name, text string) {
	p.t.Helper()
	p.clickOn(role, name)
	p.pressKeys("a", chromedp.KeyModifiers(kb.ModifierCtrl))
	p.insert(text)
}

func (p *pageUser) pressKeys(keys string, o ...chromedp.KeyOption) {
	p.t.Helper()
	p.run(chromedp.KeyEvent(keys, o...))
}

func (p *pageUser) insert(text string) {
	p.t.Helper()
	if text == "" {
		p.pressKeys("\b")
		return
	}
	runCommand(p, input.InsertText, input.InsertTextParams{Text: text})
}

// paste makes the person paste what was copied.
func (p *pageUser) paste() {
	p.t.Helper()
	runCommand(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Modifiers: 2, Commands: []string{"paste"}})
}

// focusedElement returns the element that has the keyboard focus.
func (p *pageUser) focusedElement() *element {
	p.t.Helper()
	var lastElement *element
	for _, x := range p.elements() {
		if x.hasState("focused") && x.role != "RootWebArea" {
			lastElement = x
		}
	}
	return lastElement
}

// violations returns what the content security policy has blocked.
func (p *pageUser) violations() []string {
	p.t.Helper()
	return eval[[]string](p, `return window.violations`)
}
