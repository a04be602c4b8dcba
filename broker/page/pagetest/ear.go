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

// Ear records the events of a tab: errors, warnings and exceptions, dialogs of the browser,
// requested hosts, received bytes.
type Ear struct {
	mu       sync.Mutex
	wrong    []string
	forgiven []string
	hosts    map[string]bool
	requests int
	bytes    float64
}

// Listen records the events of a context's tab. An error that was not ignored with Forgive fails
// the test at its end, and so does a request to a host other than this one and page.test.
// Documents record in window.violations what their policy has blocked.
func Listen(t *testing.T, ctx context.Context) *Ear {
	t.Helper()
	e := &Ear{hosts: map[string]bool{}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(chromedp.Listen(ctx, e.hear))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	must(err)
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	must(err)
	_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.violations = []; addEventListener('securitypolicyviolation', e => window.violations.push(e.violatedDirective + ' ' + e.blockedURI))`,
	})
	must(err)
	t.Cleanup(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, said := range e.wrong {
			if !slices.ContainsFunc(e.forgiven, func(part string) bool { return strings.Contains(said, part) }) {
				t.Errorf("the console says: %s", said)
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
func (e *Ear) Forgive(parts ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgiven = append(e.forgiven, parts...)
}

// Heard returns how many requests were made, and how many bytes were received.
func (e *Ear) Heard() (requests int, bytes float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests, e.bytes
}

func (e *Ear) hear(ev any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	said := ""
	switch x := ev.(type) {
	case *runtime.EventExceptionThrown:
		said = "exception: " + x.ExceptionDetails.Text
		if x := x.ExceptionDetails.Exception; x != nil {
			said += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		if x.Type == runtime.ConsoleAPICalledTypeError || x.Type == runtime.ConsoleAPICalledTypeWarning {
			said = "console:"
			for _, a := range x.Args {
				said += " " + string(a.Value) + a.Description
			}
		}
	case *log.EventEntryAdded:
		if x.Entry.Level == log.EntryLevelError || x.Entry.Level == log.EntryLevelWarning {
			said = x.Entry.Text + " " + x.Entry.URL
		}
	case *page.EventJavascriptDialogOpening:
		said = "dialog of the browser: " + x.Message
	case *network.EventRequestWillBeSent:
		e.requests++
		if u, err := url.Parse(x.Request.URL); err == nil && u.Scheme != "data" && u.Scheme != "blob" {
			e.hosts[u.Host] = true
		}
	case *network.EventLoadingFinished:
		e.bytes += x.EncodedDataLength
	}
	if said != "" {
		e.wrong = append(e.wrong, said)
	}
}
