package probe

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"gloom/bench/throwaway"
	"gloom/broker/page/pagetest"
)

// patience bounds everything that a test waits for.
const patience = pagetest.WaitTimeout

var (
	// chromium is the browser's context; each person gets a profile in it.
	chromium context.Context
	// gloomdDir is the folder with gloomd.
	gloomdDir string
)

// skipInShort skips a test in short runs, because the page's own tests cover the same, or because it
// measures.
func skipInShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("this is tried in full only: make page, or go test without -short")
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	throwaway.LimitParallel(3)
	os.Exit(throwaway.Main(&gloomdDir, func() (int, error) {
		if _, err := throwaway.Build(gloomdDir, "gloomd", throwaway.Race); err != nil {
			return 1, err
		}
		ctx, end, err := pagetest.StartChromium(chromedp.Flag("host-resolver-rules", "MAP page.test 127.0.0.1"))
		if err != nil {
			return 1, err
		}
		defer end()
		chromium = ctx
		return m.Run(), nil
	}))
}
