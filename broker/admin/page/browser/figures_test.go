package browser

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gloom/bench/throwaway"
	"gloom/broker/page/pagetest"
)

// TestFirstVisitTime measures the time of a first visit until the figures are drawn, until they are
// visible, and until the plots are drawn, too. For comparison it measures a document of a
// kilobyte of plain text, which shows the time that Chromium itself needs.
func TestFirstVisitTime(t *testing.T) {
	w := startBusyBroker(t)
	visits := 1
	if *runLong {
		visits = 15
	}
	const paintName = "first-contentful-paint"
	times := map[string][]float64{}
	// visit records the times of the marks. Each visit has a profile and a tab of its own.
	visit := func(path, script string, marks ...string) {
		t.Run(path, func(t *testing.T) {
			b := pagetest.NewTab(t, chromium, chromedp.WithNewBrowserContext())
			b.Ignore("favicon.ico") // a plain-text document has no link to an icon
			b.OnNewDocument(script)
			b.Visit(w.url + path)
			for _, mark := range marks {
				b.WaitUntil(`performance.getEntriesByName($0).length`, mark)
				at := pagetest.Eval[float64](b, `return performance.getEntriesByName($0)[0].startTime`, mark)
				times[path+mark] = append(times[path+mark], at)
			}
		})
	}
	for range visits {
		visit("/lib/preact.LICENSE", "", paintName)
		visit("/", `for (const [mark, what] of [['drawn', '.now'], ['plots', '.uplot canvas']])
			(function look() { document.querySelector(what) ? performance.mark(mark) : requestAnimationFrame(look); })()`, "drawn", paintName, "plots")
	}
	spread := func(of string) string {
		slices.Sort(times[of])
		n := len(times[of])
		if n != visits {
			t.Fatalf("%s came in %d of %d visits", of, n, visits)
		}
		return fmt.Sprintf("%.0f ms (%.0f to %.0f)", times[of][n/2], times[of][0], times[of][n-1])
	}
	t.Logf("%d first visits: figures drawn after %s, seen after %s, plots drawn after %s; a text is seen after %s",
		visits, spread("/drawn"), spread("/"+paintName), spread("/plots"), spread("/lib/preact.LICENSE"+paintName))
}

// TestHundredOpenPages measures what a hundred browsers with open pages cost a broker.
func TestHundredOpenPages(t *testing.T) {
	if !*runLong {
		t.Skip("it measures for half a minute, and fails for nothing: with -long")
	}
	dir := t.TempDir()
	path, err := throwaway.Build(dir, "gloomd", false)
	if err != nil {
		t.Fatal(err)
	}
	d, err := throwaway.Start(exec.Command(path, "--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0"), "gloomd is ready")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	url := "http://" + d.Field("http_addr")
	for i := range 20 {
		body := fmt.Appendf(nil, `{"type":"report-%d","body":1}`, i)
		r, err := http.Post(url+"/v1/jobs", "application/json", bytes.NewReader(body))
		if err != nil || r.StatusCode != http.StatusAccepted {
			t.Fatal(r, err)
		}
		_ = r.Body.Close()
	}
	// share is the part of a processor that the broker uses, in percent.
	share := func() float64 {
		t.Helper()
		ticks := func() (sum int) {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.PID()))
			if err != nil {
				t.Fatal(err)
			}
			fields := bytes.Fields(data)
			for _, f := range fields[13:15] { // ticks of 10 ms, in user and in system mode
				n := 0
				_, _ = fmt.Sscan(string(f), &n)
				sum += n
			}
			return sum
		}
		before, startedAt := ticks(), time.Now()
		time.Sleep(15 * time.Second)
		return float64(ticks()-before) / time.Since(startedAt).Seconds()
	}
	baseShare := share()
	for range 100 {
		r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url + "/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		go func() { _, _ = io.Copy(io.Discard, r.Body) }()
	}
	t.Logf("the broker takes %.2f %% of a core with a hundred streams of events, %.2f %% without", share(), baseShare)
}
