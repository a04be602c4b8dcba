// Package browser tries the page in a real Chromium, against brokers with jobs.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"

	"gloom/broker/admin"
	"gloom/broker/admin/page/pagetest"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// patience is how long anything is waited for.
const patience = pagetest.Patience

var (
	shots = flag.String("shots", "", "directory for screenshots of every view, 320 to 1920 pixels, light and dark")
	long  = flag.Bool("long", false, "what takes longer, too: every width, fifty tabs")
)

// chromium is the browser's context, of which each tab gets one of its own.
var chromium context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		ctx, end, err := pagetest.Chromium()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer end()
		chromium = ctx
		return m.Run()
	}())
}

// world is a broker with its HTTP side.
type world struct {
	t   *testing.T
	srv *server.Server
	ctx context.Context
	url string
}

func start(t *testing.T, change func(*settings.Options)) *world {
	t.Helper()
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	opt.Version = "v1.2.3"
	if change != nil {
		change(&opt)
	}
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	srv.ServeHTTP(admin.New(srv, zerolog.Nop()))
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	return &world{t: t, srv: srv, ctx: ctx, url: "http://" + srv.HTTPAddr().String()}
}

// submit hands in detached jobs.
func (w *world) submit(jobs ...gloom.Job) {
	w.t.Helper()
	s, err := gloom.Dial(w.ctx, gloom.Addrs(w.srv.SubmitAddr().String()), gloom.ClientName("tests"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	var taken []*gloom.Pending
	for _, j := range jobs {
		if j.Body == nil {
			j.Body = json.RawMessage(`{"to":"a@example.org"}`)
		}
		j.Detach = true
		p, err := s.Submit(w.ctx, j)
		if err != nil {
			w.t.Fatal(err)
		}
		taken = append(taken, p)
	}
	for _, p := range taken {
		if _, err := p.Result(w.ctx); err != nil {
			w.t.Fatal(err)
		}
	}
}

// work serves a type until the test ends.
func (w *world) work(typ string, do gloom.Handler) {
	w.t.Helper()
	worker := gloom.Worker{Type: typ, Handler: do, Options: []gloom.Option{gloom.Addrs(w.srv.WorkerAddr().String()), gloom.ClientName("worker of tests")}}
	if err := worker.Start(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = worker.Stop(ctx)
	})
}

// stuck is a handler that works until nobody waits.
func stuck(ctx context.Context, _ *gloom.Job) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func broken(context.Context, *gloom.Job) (any, error) {
	return nil, gloom.Fatal(errors.New("no such address"))
}

// ask makes a request of /v1 and decodes the answer.
func (w *world) ask(method, path, body string) map[string]any {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return out
}

// until waits for what is true of an answer.
func (w *world) until(path string, is func(map[string]any) bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		v := w.ask("GET", path, "")
		if is(v) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s stayed %v", path, v)
		}
	}
}

// tab is a tab of the browser, in a profile of its own unless it is shared.
type tab struct {
	t   *testing.T
	ctx context.Context
	*pagetest.Ear
}

// open opens the page in a new profile, ready when the first look has come.
func (w *world) open(route string) *tab {
	w.t.Helper()
	t := newTab(w.t, chromium, chromedp.WithNewBrowserContext())
	t.visit(w.url + "/" + route)
	return t
}

func newTab(t *testing.T, parent context.Context, opts ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(parent, opts...)
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx, Ear: pagetest.Listen(t, ctx)}
	b.size(1280, 900)
	return b
}

func (b *tab) call(do func() error) {
	b.t.Helper()
	if err := do(); err != nil {
		b.t.Fatal(err)
	}
}

// onNew runs a script in each document before its own.
func (b *tab) onNew(script string) {
	b.t.Helper()
	b.call(func() error {
		_, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

func (b *tab) visit(url string) {
	b.t.Helper()
	b.call(func() error { return chromedp.Do(b.ctx, chromedp.Navigate(url)) })
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.call(func() error { return chromedp.Do(b.ctx, chromedp.EmulateViewport(width, height)) })
}

// fits makes the window so wide and fails where the page is wider.
func (b *tab) fits(width int64) {
	b.t.Helper()
	b.size(width, 900)
	if got := eval[int64](b, `return document.documentElement.scrollWidth`); got > width {
		b.t.Errorf("%.100s is %d pixels wide in a window of %d", eval[string](b, `return location.hash`), got, width)
	}
}

func (b *tab) theme(name string) {
	b.t.Helper()
	b.call(func() error {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	})
}

// eval runs a script; its value, in JSON, is decoded into a T.
func eval[T any](b *tab, script string, args ...any) T {
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

// until waits for a script's condition.
func (b *tab) until(condition string, args ...any) {
	b.t.Helper()
	for end := time.Now().Add(patience); !eval[bool](b, `return !!(`+condition+`)`, args...); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("it never came to %s %v; the page:\n%.3000s", condition, args, b.text())
		}
	}
}

func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, `return document.body.innerText`)
}

// sees waits until the page shows texts.
func (b *tab) sees(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(`document.body.innerText.replace(/[\u202f\u2009\u00a0]/g, ' ').includes($0)`, text)
	}
}

// gone waits until the page shows a text no more.
func (b *tab) gone(text string) {
	b.t.Helper()
	b.until(`!document.body.innerText.includes($0)`, text)
}

// at goes to a route within the page.
func (b *tab) at(route string) {
	b.t.Helper()
	eval[any](b, `location.hash = $0`, route)
}

// press clicks the button with this text, in the dialog where one is open.
func (b *tab) press(text string) {
	b.t.Helper()
	it := `[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button')].find(b => b.innerText.trim() === $0 && !b.disabled)`
	if text == "Undo" { // of what was done last
		it = strings.Replace(it, "find(", "findLast(", 1)
	}
	b.until(it, text)
	eval[any](b, it+`.click()`, text)
}

// fill types into the field with this name, in the dialog where one is open.
func (b *tab) fill(name, text string) {
	b.t.Helper()
	const it = `(document.querySelector('dialog[open]') ?? document).querySelector('[name="' + $0 + '"]')`
	b.until(it, name)
	eval[any](b, `const e = `+it+`; e.value = $1; e.dispatchEvent(new Event('input', { bubbles: true }))`, name, text)
}

// keys types keys into whatever has the focus.
func (b *tab) keys(keys string) {
	b.t.Helper()
	b.call(func() error { return chromedp.Do(b.ctx, chromedp.KeyEvent(keys)) })
}

// strict fails for what the policy has stopped.
func (b *tab) strict() {
	b.t.Helper()
	if v := eval[[]string](b, `return window.violations`); len(v) > 0 {
		b.t.Errorf("the content security policy was violated: %v", v)
	}
}

// accessible fails for what axe-core finds, by all of its rules or only some.
func (b *tab) accessible(where string, rules ...string) {
	b.t.Helper()
	if !eval[bool](b, `return 'axe' in window`) {
		b.call(func() error {
			_, err := chromedp.Run(b.ctx, chromedp.Evaluate[chromedp.Void](pagetest.Axe))
			return err
		})
	}
	found := eval[[]string](b, `const r = await axe.run(document, { resultTypes: ['violations'], ...($0?.length && { runOnly: $0 }) });
		return r.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + v.help + ' ' + n.html.slice(0, 200) + ' ' + n.failureSummary))`, rules)
	for _, f := range found {
		b.t.Errorf("%s: %s", where, f)
	}
}

// shot takes a picture of what is in sight.
func (b *tab) shot(file string) {
	b.t.Helper()
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
