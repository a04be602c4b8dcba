package probe

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gloom/cmd/throwaway"
)

// patience bounds everything that a test waits for.
const patience = 45 * time.Second

var (
	// chromium is the browser's context, of which each person gets a profile.
	chromium context.Context
	// bin has gloomd.
	bin string
	// axe is the text of axe-core.
	axe string
)

// inFull leaves a test out where time is short: what the page's own tests try as well,
// and what measures.
func inFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("this is tried in full only: make page, or go test without -short")
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	throwaway.Parallel(3)
	os.Exit(throwaway.Main(&bin, func() (int, error) {
		text, err := os.ReadFile(filepath.Join("..", "browser", "testdata", "axe.min.js"))
		if err != nil {
			return 1, err
		}
		axe = string(text)
		path, err := exec.LookPath("chromium")
		if err != nil {
			return 1, fmt.Errorf("the page is tried in chromium, which is missing; make deps installs it: %w", err)
		}
		if _, err := throwaway.Build(bin, "gloomd", throwaway.Race); err != nil {
			return 1, err
		}
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
			chromedp.Flag("host-resolver-rules", "MAP page.test 127.0.0.1"),
			chromedp.WSURLReadTimeout(2*patience))
		ctx, end := chromedp.NewExecAllocator(context.Background(), opts...)
		defer end()
		ctx, end = chromedp.NewContext(ctx)
		defer end()
		if err := chromedp.Do(ctx); err != nil {
			return 1, fmt.Errorf("starting chromium: %w", err)
		}
		chromium = ctx
		return m.Run(), nil
	}))
}
