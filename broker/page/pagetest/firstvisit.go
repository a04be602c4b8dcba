package pagetest

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
)

// The limits of what a first visit loads, headers included.
const (
	maxRequests = 40
	maxBytes    = 70_000
)

// FirstVisit opens a page in a browser that has cached nothing, waits until it shows these texts and a
// plot, and checks what it has loaded. A page on a slow machine may take its daemon for away and
// request again what it has, so the best of three visits counts.
func FirstVisit(t *testing.T, browser context.Context, url string, texts ...string) {
	t.Helper()
	for visit := 1; ; visit++ {
		b := NewTab(t, browser, chromedp.WithNewBrowserContext())
		// Nothing is requested at intervals, and no data of the document counts as old: its clocks stand still.
		b.OnNewDocument(`const later = setTimeout, loaded = Date.now(); window.setTimeout = (f, ms, ...a) => later(f, ms < 2000 ? ms : 1e8, ...a); performance.now = () => 0; Date.now = () => loaded`)
		b.Visit(url)
		b.WaitForText(texts...)
		b.WaitUntil(`document.querySelector('.uplot canvas')`)
		requests, bytes := b.Traffic()
		paintTime := Eval[float64](b, `return performance.getEntriesByName('first-contentful-paint')[0].startTime - performance.getEntriesByType('navigation')[0].responseStart`)
		t.Logf("%d requests, %.0f bytes, drawn %.0f ms after the document came", requests, bytes, paintTime)
		if requests > 0 && requests <= maxRequests && bytes <= maxBytes {
			b.CheckPolicy()
			return
		}
		if visit == 3 {
			t.Fatalf("at most %d requests and %d bytes are meant", maxRequests, maxBytes)
		}
	}
}
