package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	gloom "gloom/clients/go"
)

// TestManyTypes opens the views of a broker with many types.
func TestManyTypes(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	const n = 10_000
	b := start(t)
	var jobs []gloom.Job
	for i := range n {
		jobs = append(jobs, gloom.Job{ID: fmt.Sprint("j", i), Type: fmt.Sprintf("type-%05d", i)})
	}
	b.submitAcked(append(jobs, gloom.Job{ID: "second", Type: fmt.Sprintf("type-%05d", n/2)})...)
	p := newPageUser(t)
	p.Ignore(missingError)
	p.goTo(b.url("#/types"))
	p.awaitText(fmt.Sprintf(`%d,%03d types`, n/1000, n%1000))
	want := fmt.Sprintf("type-%05d", n/2)
	isAtTop := func() bool {
		r := p.rows("Types")
		return len(r) > 0 && strings.HasPrefix(r[0][0], want)
	}
	p.waitUntil("the one with most on top", isAtTop)
	p.clickOn("button", "^Waiting$")
	p.waitUntil("the other way round", func() bool { return !isAtTop() && len(p.rows("Types")) > 0 })
	p.clickOn("button", "^Waiting$")
	p.waitUntil("the one with most on top again", isAtTop)
	p.typeInto("searchbox", "Part of a name", fmt.Sprintf("-%05d", n-1))
	p.waitUntil("the one that is sought", func() bool { return len(p.rows("Types")) == 1 })
	p.typeInto("searchbox", "Part of a name", "")
	p.waitUntil("all again", func() bool { return len(p.rows("Types")) > 10 })
	// During the measurement, nothing else may keep the browser busy, such as reading its
	// accessibility tree.
	sort := p.await("button", "^Type$")
	eval[any](p, `window.longest = 0; new PerformanceObserver(l => { for (const e of l.getEntries()) window.longest = Math.max(window.longest, e.duration) }).observe({ type: 'longtask' })`)
	if err := p.click(sort); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		p.pressKeys(kb.PageDown)
	}
	p.pressKeys(kb.End)
	time.Sleep(3 * time.Second)
	t.Logf("%d types, sorted and scrolled: the longest task took %d ms", n, eval[int](p, `return Math.round(window.longest)`))
	p.goTo(b.url("#/"))
	p.await("heading", "wrong")
	p.checkView("overview")
	p.pressKeys("/")
	p.insert(want)
	p.pressKeys(kb.Enter)
	p.await("heading", want+"|^Types$|^Jobs$")
}

// TestPageWithMillionJobs uses a million jobs.
func TestPageWithMillionJobs(t *testing.T) {
	skipInShort(t)
	b := start(t)
	s := b.submitter(gloom.Window(1 << 21))
	for i := range 1_000_000 {
		if _, err := s.TrySubmit(gloom.Job{ID: fmt.Sprint("job-", i), Type: "many", NoAck: true}); err != nil {
			if err := s.Ping(b.ctx()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Submit(b.ctx(), gloom.Job{ID: fmt.Sprint("job-", i), Type: "many", NoAck: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.waitUntil("/v1/types/many", func(v map[string]any) bool { return number(v, "queued") == 1_000_000 })
	p := newPageUser(t)
	p.goTo(b.url("#/type/many"))
	p.awaitText(`1,000,000|1\.00.M`)
	p.waitUntil("jobs", func() bool { return len(p.rows("Jobs")) > 10 })
	first := len(p.rows("Jobs"))
	p.clickOn("button", "(?i)more|next")
	p.waitUntil("more jobs, or others", func() bool { r := p.rows("Jobs"); return len(r) > first || len(r) > 0 && r[0][1] != "job-0" })
	p.typeInto("textbox", "Part of the id", "job-765432")
	p.waitUntil("the one that is sought", func() bool { r := p.rows("Jobs"); return len(r) == 1 && r[0][1] == "job-765432" })
	p.goTo(b.url("#/job/job-999999"))
	p.awaitText("999,999 jobs|before it")
	p.goTo(b.url("#/type/many"))
	p.confirm("Cancel all", "1,000,000|1.00.M", "^Cancel 1", func() bool { return true })
	b.waitUntil("/v1/types/many", func(v map[string]any) bool { return number(v, "queued") == 0 })
}

// TestHundredStreams opens the stream of events a hundred times, and reports the cost.
func TestHundredStreams(t *testing.T) {
	skipInShort(t)
	b := startBusyBroker(t)
	for range 100 {
		req, err := http.NewRequestWithContext(b.ctx(), "GET", b.url("v1/events"), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	}
	before := b.processorTime()
	time.Sleep(10 * time.Second)
	t.Logf("a hundred streams take %.1f %% of a core", (b.processorTime()-before).Seconds()*10)
	p := newPageUser(t)
	p.goTo(b.url(""))
	p.await("heading", "wrong")
}

// processorTime returns the processor time that the broker has used.
func (b *broker) processorTime() time.Duration {
	b.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.PID()))
	if err != nil {
		b.t.Fatal(err)
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')'):]))
	user, _ := strconv.Atoi(f[12])
	sys, _ := strconv.Atoi(f[13])
	return time.Duration(user+sys) * 10 * time.Millisecond
}

// TestLinksLeadToPages: the page links to pages of other programs, and to nothing that is not a
// page.
func TestLinksLeadToPages(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := start(t, "--page-link", "jobd=http://127.0.0.1:1/")
	p := newPageUser(t)
	p.goTo(b.url(""))
	x := p.await("link", "jobd")
	if !x.hasState("http://127.0.0.1:1/") {
		t.Errorf("the link leads to %v", x.states)
	}
	_, v := b.callAPI("GET", "/v1/status", "")
	data, _ := json.Marshal(v["links"])
	if !strings.Contains(string(data), "127.0.0.1:1") {
		t.Errorf("links of the status: %s", data)
	}
}
