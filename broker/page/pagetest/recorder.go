package pagetest

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Recorder records the events of a tab: errors, warnings and exceptions, dialogs of the browser,
// requested hosts, received bytes.
type Recorder struct {
	mu       sync.Mutex
	errors   []string
	forgiven []string
	hosts    map[string]bool
	requests int
	bytes    float64
}

// Listen records the events of a context's tab. An error that was not ignored with Forgive fails
// the test at its end, and so does a request to a host other than this one and page.test.
// Documents record in window.violations what their policy has blocked.
func Listen(t *testing.T, ctx context.Context) *Recorder {
	t.Helper()
	e := &Recorder{hosts: map[string]bool{}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(chromedp.Listen(ctx, e.handle))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	check(err)
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	check(err)
	_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.violations = []; addEventListener('securitypolicyviolation', e => window.violations.push(e.violatedDirective + ' ' + e.blockedURI))`,
	})
	check(err)
	t.Cleanup(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, msg := range e.errors {
			if !slices.ContainsFunc(e.forgiven, func(part string) bool { return strings.Contains(msg, part) }) {
				t.Errorf("the console says: %s", msg)
			}
		}
		for host := range e.hosts {
			if !strings.HasPrefix(host, "127.0.0.1:") && !strings.HasPrefix(host, "page.test:") {
				t.Errorf("the page requested something from %s", host)
			}
		}
	})
	return e
}

// Forgive ignores errors that contain one of these parts.
func (e *Recorder) Forgive(parts ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgiven = append(e.forgiven, parts...)
}

// Heard returns how many requests were made, and how many bytes were received.
func (e *Recorder) Heard() (requests int, bytes float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests, e.bytes
}

func (e *Recorder) handle(ev any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := ""
	switch x := ev.(type) {
	case *runtime.EventExceptionThrown:
		text = "exception: " + x.ExceptionDetails.Text
		if x := x.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		if x.Type == runtime.ConsoleAPICalledTypeError || x.Type == runtime.ConsoleAPICalledTypeWarning {
			text = "console:"
			for _, a := range x.Args {
				text += " " + string(a.Value) + a.Description
			}
		}
	case *log.EventEntryAdded:
		if x.Entry.Level == log.EntryLevelError || x.Entry.Level == log.EntryLevelWarning {
			text = x.Entry.Text + " " + x.Entry.URL
		}
	case *page.EventJavascriptDialogOpening:
		text = "dialog of the browser: " + x.Message
	case *network.EventRequestWillBeSent:
		e.requests++
		if u, err := url.Parse(x.Request.URL); err == nil && u.Scheme != "data" && u.Scheme != "blob" {
			e.hosts[u.Host] = true
		}
	case *network.EventLoadingFinished:
		e.bytes += x.EncodedDataLength
	}
	if text != "" {
		e.errors = append(e.errors, text)
	}
}
