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
	ignored  []string
	hosts    map[string]bool
	requests int
	bytes    float64
}

// Record records the events of a context's tab. An error that was not ignored with Ignore fails
// the test at its end, and so does a request to a host other than this one and page.test.
// Documents record in window.violations what their policy has blocked.
func Record(t *testing.T, ctx context.Context) *Recorder {
	t.Helper()
	r := &Recorder{hosts: map[string]bool{}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(chromedp.Listen(ctx, r.onEvent))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	check(err)
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	check(err)
	_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.violations = []; addEventListener('securitypolicyviolation', e => window.violations.push(e.violatedDirective + ' ' + e.blockedURI))`,
	})
	check(err)
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, msg := range r.errors {
			if !slices.ContainsFunc(r.ignored, func(part string) bool { return strings.Contains(msg, part) }) {
				t.Errorf("the console says: %s", msg)
			}
		}
		for host := range r.hosts {
			if !strings.HasPrefix(host, "127.0.0.1:") && !strings.HasPrefix(host, "page.test:") {
				t.Errorf("the page requested something from %s", host)
			}
		}
	})
	return r
}

// Ignore ignores errors that contain one of these parts.
func (r *Recorder) Ignore(parts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ignored = append(r.ignored, parts...)
}

// Traffic returns how many requests were made, and how many bytes were received.
func (r *Recorder) Traffic() (requests int, bytes float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.bytes
}

func (r *Recorder) onEvent(ev any) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
		r.requests++
		if u, err := url.Parse(x.Request.URL); err == nil && u.Scheme != "data" && u.Scheme != "blob" {
			r.hosts[u.Host] = true
		}
	case *network.EventLoadingFinished:
		r.bytes += x.EncodedDataLength
	}
	if text != "" {
		r.errors = append(r.errors, text)
	}
}
