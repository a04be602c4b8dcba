package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gloom/broker/page/pagetest"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// startBusyBroker starts a broker with something to show in every view.
func startBusyBroker(t *testing.T) *world {
	w := start(t, func(o *settings.Options) { o.PageLinks = []string{"jobd=http://127.0.0.1:1/"} })
	w.startWorker("mail", func(ctx context.Context, _ *gloom.Job) (any, error) { return "sent", nil })
	w.startWorker("thumbnail", stuckHandler)
	w.startWorker("invoice", failingHandler)
	var jobs []gloom.Job
	for i := range 40 {
		jobs = append(jobs, gloom.Job{Type: "mail"}, gloom.Job{Type: "report", ID: fmt.Sprintf("report-%02d", i), Priority: int64(i % 3), Groups: []string{"acme"}})
	}
	jobs = append(jobs, gloom.Job{Type: "thumbnail", ID: "picture-1"}, gloom.Job{Type: "thumbnail", ID: "picture-2"},
		gloom.Job{Type: "report", ID: "later", Delay: time.Hour, Headers: gloom.Headers(`{"trace":"t-1"}`), Body: json.RawMessage(`{"n":12345678901234567890,"to":["a","b"],"empty":{}}`)})
	for i := range 3 {
		jobs = append(jobs, gloom.Job{Type: "invoice", ID: fmt.Sprint("invoice-", i)})
	}
	w.submit(jobs...)
	w.waitUntil("/v1/status", func(v map[string]any) bool {
		l := v["ledger"].(map[string]any)
		return l["answered"] == 40. && l["failed"] == 3. && l["running"] == 1.
	})
	return w
}

// views are all views of the page, with what each shows for a busy broker.
var views = []struct {
	route string
	sees  []string
}{
	{"#/", []string{"wrong", "need attention; ", "Does it keep up?", "report", "no worker", "It adds up", "v1.2.3", "jobd"}},
	{"#/types", []string{"report", "invoice", "4 types"}},
	{"#/type/report", []string{"oldest", ", since ", "none has joined", "1 delayed", "report-39"}},
	{"#/type/thumbnail", []string{"worker of tests", "picture-1", "customer-4", "more of them"}},
	{"#/jobs", []string{"report-00", "no worker has joined its type"}},
	{"#/job/report-05", []string{"Why it waits: no worker has joined its type", "acme", "Copy id", "start a worker for it"}},
	{"#/job/picture-1", []string{"running", "worker of tests"}},
	{"#/job/nosuch", []string{"No job with this id"}},
	{"#/workers", []string{"worker of tests", "picture-1", "idle for"}},
	{"#/submitters", []string{"No submitter is connected."}},
	{"#/groups", []string{"acme", "40", "There is no rule"}},
	{"#/groups?type=thumbnail", []string{"Groups of thumbnail", "customer-6", "of all types"}},
	{"#/fleet", []string{"This broker is not in a fleet"}},
	{"#/dead", []string{"invoice", "Retry all"}},
	{"#/dead/invoice", []string{"invoice-2", "no such address"}},
	{"#/type/nosuch", []string{"No job or worker of this type", "Types with this in their name"}},
	{"#/nosuch", []string{"There is no such view"}},
}

// TestEveryViewIsAccessible opens every view in both themes, at widths from small to wide: each
// view shows its content, is accessible, and obeys the page's policy.
func TestEveryViewIsAccessible(t *testing.T) {
	w := startBusyBroker(t)
	for i := range 7 {
		w.submit(gloom.Job{Type: "thumbnail", Groups: []string{fmt.Sprint("customer-", i)}})
	}
	b := w.openPage("")
	b.Ignore("404 (Not Found)") // for the job that does not exist
	widths := []int64{320, 1280}
	if *runLong || *screenshotDir != "" {
		widths = []int64{320, 768, 1280, 1920}
	}
	for _, v := range views {
		b.GoTo(v.route)
		b.WaitForText(v.sees...)
		b.CheckView(v.route, *screenshotDir, widths...)
	}
	b.CheckPolicy()
}

// TestFirstVisit counts the bytes of a first visit.
func TestFirstVisit(t *testing.T) {
	w := startBusyBroker(t)
	b := w.openPage("")
	b.WaitForText("Types with most to do")
	requests, size := b.Traffic()
	if requests == 0 || requests > 40 || size > 70_000 {
		t.Errorf("%d requests, %.0f bytes; at most 40 and 70 kB, headers included, are meant", requests, size)
	}
	t.Logf("%d requests, %.0f bytes", requests, size)
	b.CheckPolicy()
}

// TestChangesShowWithoutReload: the page shows changes without a reload.
func TestChangesShowWithoutReload(t *testing.T) {
	w := start(t, nil)
	b := w.openPage("")
	b.WaitForText("Everything is healthy", "No job has come and no worker has joined.")
	b.CheckAccessible("empty")
	w.submit(gloom.Job{Type: "mail"}, gloom.Job{Type: "mail"})
	b.WaitForText("mail", "2 waiting", "no worker")
	b.WaitUntil(`document.querySelector('.findings a[href="#/type/mail"]')`)
	b.CheckAccessible("findings")
	b.GoTo("#/type/mail")
	b.WaitForText("none has joined")
	w.startWorker("mail", func(context.Context, *gloom.Job) (any, error) { return nil, errors.New("not today") })
	b.WaitForText("1 with room")
	for i := range 5 {
		w.submit(gloom.Job{Type: "mail", ID: fmt.Sprint("failing-", i), Retries: gloom.NoRetries})
	}
	b.WaitForText("all of its runs fail", "show the reasons (its dead letters); pause the type")
	pagetest.Eval[any](b, `document.querySelector('.findings .note a').click()`)
	b.WaitForText("Dead letters of mail", "not today")
	b.CheckPolicy()
}

// TestTypeShowsItsGroups: a type shows the groups of its own jobs, the groups that a rule holds
// back, and a link to more groups.
func TestTypeShowsItsGroups(t *testing.T) {
	w := start(t, nil)
	jobs := []gloom.Job{{Type: "report", Groups: []string{"acme"}}, {Type: "mail", ID: "mail-plain"}}
	for i := range 7 {
		for k := range 9 - i {
			jobs = append(jobs, gloom.Job{Type: "mail", ID: fmt.Sprintf("mail-%d-%d", i, k), Groups: []string{fmt.Sprint("tenant-", i)}})
		}
	}
	w.submit(jobs...)
	b := w.openPage("#/type/mail")
	rows := func(want ...string) {
		t.Helper()
		b.WaitUntil(`JSON.stringify([...document.querySelectorAll('[aria-label="Groups"] tbody tr')].map(r => [...r.cells].map(c => c.innerText.trim()).join(' ').trim())) === $0`,
			func() string { data, _ := json.Marshal(want); return string(data) }())
	}
	rows("tenant-0 9 0", "tenant-1 8 0", "tenant-2 7 0", "tenant-3 6 0", "tenant-4 5 0")
	w.callAPI("PUT", "/v1/groups/tenant-2", `{"concurrency":0}`)
	rows("tenant-0 9 0", "tenant-1 8 0", "tenant-2 7 0 7 tenant-2", "tenant-3 6 0", "tenant-4 5 0")
	b.CheckAccessible("groups of a type")
	pagetest.Eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText === 'more of them').click()`)
	b.WaitForText("Groups of mail")
	rows("tenant-0 9 0", "tenant-1 8 0", "tenant-2 7 0 7 tenant-2", "tenant-3 6 0", "tenant-4 5 0", "tenant-5 4 0", "tenant-6 3 0")
	pagetest.Eval[any](b, `[...document.querySelectorAll('main a')].find(a => a.innerText === 'tenant-6').click()`)
	b.WaitForText("mail-6-2", "tenant-0")
	b.WaitForNoText("mail-plain")
	b.GoTo("#/type/report")
	rows("acme 1 0")
	b.GoTo("#/groups?type=nosuch")
	b.WaitForText("No waiting or running job of this type is in a group.")
	b.CheckAccessible("no groups of a type")
	b.CheckPolicy()
}

// TestAgesGrowWithoutRequests: ages grow without further requests, and are right even if the
// browser's clock is not.
func TestAgesGrowWithoutRequests(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "mail", ID: "mail-1"})
	b := pagetest.NewTab(t, chromium, chromedp.WithNewBrowserContext())
	b.OnNewDocument(`const now = Date.now, Before = Date; Date = class extends Before { constructor(...a) { a.length ? super(...a) : super(now() + 3600e3); } static now() { return now() + 3600e3; } }`)
	b.Visit(w.url + "/")
	b.WaitForText("no worker")
	b.WaitUntil(`document.querySelector('.findings .num')`)
	if age := pagetest.Eval[string](b, `return document.querySelector('.findings .num').innerText`); strings.ContainsAny(age, "hd") {
		t.Errorf("a finding of now is %s old", age)
	}
	b.GoTo("#/jobs")
	b.WaitForText("mail-1")
	age := `document.querySelector('tbody td.num').innerText`
	first := pagetest.Eval[string](b, `return `+age)
	b.WaitUntil(age+` !== $0`, first)
	b.CheckPolicy()
}

// TestTimeAxisEndsAtPresent: a plot's time axis ends at the present, even with a single sample.
func TestTimeAxisEndsAtPresent(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "mail"})
	b := pagetest.NewTab(t, chromium, chromedp.WithNewBrowserContext())
	b.OnNewDocument(`window.labels = []; const fill = CanvasRenderingContext2D.prototype.fillText;
		CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { /^\d\d:\d\d$/.test(text) && labels.push(text); fill.call(this, text, ...at); }`)
	b.Visit(w.url + "/#/type/mail")
	b.WaitUntil(`labels.length > 0`)
	lateTimes := pagetest.Eval[[]string](b, `const min = t => +t.slice(0, 2) * 60 + +t.slice(3), now = new Date();
		return labels.filter(t => (min(t) - now.getHours() * 60 - now.getMinutes() + 1440) % 1440 > 0 && (now.getHours() * 60 + now.getMinutes() - min(t) + 1440) % 1440 > 6)`)
	if len(lateTimes) > 0 {
		t.Errorf("a plot of five minutes has the times %v", lateTimes)
	}
}

// TestPicturesOfReadme takes the pictures for README.md.
func TestPicturesOfReadme(t *testing.T) {
	if *screenshotDir == "" {
		t.Log("no -shots: no pictures are kept")
	}
	w := start(t, nil)
	slowHandler := func(d time.Duration) gloom.Handler {
		return func(ctx context.Context, j *gloom.Job) (any, error) {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
			return "done", nil
		}
	}
	for range 4 {
		w.startWorker("thumbnail", slowHandler(40*time.Millisecond))
	}
	w.startWorker("mail", slowHandler(15*time.Millisecond))
	w.startWorker("invoice", failingHandler)
	var jobs []gloom.Job
	for i := range 25 {
		jobs = append(jobs, gloom.Job{Type: "report", ID: fmt.Sprint("report-", i)})
	}
	w.submit(jobs...)
	b := w.openPage("")
	b.SetSize(1280, 860)
	b.SetTheme("light")
	span := time.Second
	if *screenshotDir != "" {
		span = 80 * time.Second
	}
	for i, end := 0, time.Now().Add(span); time.Now().Before(end); i++ {
		jobs := []gloom.Job{}
		for k := range 8 + (i/37)%5*9 {
			jobs = append(jobs, gloom.Job{Type: []string{"thumbnail", "thumbnail", "mail"}[k%3], Groups: []string{"acme"}})
		}
		if i%60 == 7 {
			jobs = append(jobs, gloom.Job{Type: "invoice", ID: fmt.Sprint("invoice-", 4711+i)})
		}
		w.submit(jobs...)
		pagetest.Eval[any](b, `await new Promise(go => setTimeout(go, 250))`)
	}
	b.WaitForText("Types with most to do")
	if *screenshotDir != "" {
		b.Screenshot(filepath.Join(*screenshotDir, "readme-overview.png"))
	}
	b.GoTo("#/job/report-7")
	b.SetTheme("dark")
	b.SetSize(1280, 470)
	b.WaitForText("Why it waits")
	b.WaitForText("a@example.org")
	if *screenshotDir != "" {
		b.Screenshot(filepath.Join(*screenshotDir, "readme-job.png"))
	}
}
