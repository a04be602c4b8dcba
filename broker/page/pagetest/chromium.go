// Package pagetest starts Chromium for tests of pages, and records the errors in its
// tabs.
package pagetest

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

// WaitTimeout bounds every wait.
const WaitTimeout = 45 * time.Second

// AxeScript is the text of axe-core.
//
//go:embed axe.min.js
var AxeScript string

// StartChromium starts a browser, which runs until end is called. Each tab gets a context of its
// own, derived from the browser's.
func StartChromium(opts ...chromedp.ExecAllocatorOption) (ctx context.Context, end func(), err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, fmt.Errorf("tests of the page need chromium, which is missing; make deps installs it: %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(2*WaitTimeout))
	ctx, endAll := chromedp.NewExecAllocator(context.Background(), append(options, opts...)...)
	ctx, endOne := chromedp.NewContext(ctx)
	end = func() { endOne(); endAll() }
	if err := chromedp.Do(ctx); err != nil {
		end()
		return nil, nil, fmt.Errorf("starting chromium: %w", err)
	}
	return ctx, end, nil
}
