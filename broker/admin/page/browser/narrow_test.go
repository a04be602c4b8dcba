package browser

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gloom/broker/page/pagetest"
	gloom "gloom/clients/go"
)

// TestPageOnTelephone: in the width of a telephone, the page still shows the current view's tab,
// which worker hangs and why jobs failed. A worker that hangs has a link to its jobs; a pattern of
// types is not a link.
func TestPageOnTelephone(t *testing.T) {
	w := start(t, nil)
	release, reason := make(chan struct{}), strings.Repeat("dial-tcp-", 8)
	t.Cleanup(func() { close(release) })
	hangingWorker := gloom.Worker{Types: []string{"etl-*"}, Options: []gloom.Option{gloom.Addrs(w.srv.WorkerAddr().String()), gloom.ClientName("hangs")},
		Handler: func(context.Context, *gloom.Job) (any, error) { <-release; return nil, nil }}
	if err := hangingWorker.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, end := context.WithCancel(context.Background())
		end()
		_ = hangingWorker.Stop(ctx)
	})
	w.startWorker("mail", func(_ context.Context, j *gloom.Job) (any, error) {
		if j.ID == "mail-1" {
			return nil, gloom.Fatal(errors.New("another"))
		}
		return nil, gloom.Fatal(errors.New(reason))
	})
	w.submit(gloom.Job{Type: "mail", ID: "mail-1"}, gloom.Job{Type: "mail", ID: "mail-2"}, gloom.Job{Type: "mail", ID: "mail-3"},
		gloom.Job{Type: "etl-a", ID: "etl-1", Timeout: 50 * time.Millisecond, Retries: gloom.NoRetries})
	w.waitUntil("/v1/status", func(v map[string]any) bool { return v["dead"].(float64) >= 3 })
	b := w.openPage("")
	b.CheckFits(320)
	b.GoTo("#/jobs")
	b.WaitUntil(`(() => { const nav = document.querySelector('nav').getBoundingClientRect(), e = document.querySelector('nav [aria-current]').getBoundingClientRect();
		return e.left > nav.left - 1 && e.right < nav.right + 1; })()`)
	b.GoTo("#/workers")
	b.WaitForText("hangs", "1 overdue")
	b.CheckFits(320)
	b.SetSize(1280, 900)
	b.WaitForText("etl-*")
	if pagetest.Eval[bool](b, `return [...document.querySelectorAll('main a')].some(a => a.innerText.includes('*'))`) {
		t.Error("a pattern is linked as a type")
	}
	b.GoTo("#/dead/mail")
	b.WaitForText("Of the 3 that were read:", "2 × dial-tcp", "1 × another")
	b.CheckFits(320)
	b.CheckAccessible("narrow dead letters")
	b.GoTo("#/")
	b.WaitForText("hangs")
	pagetest.Eval[any](b, `[...document.querySelectorAll('.findings a')].find(a => a.innerText === 'hangs').click()`)
	b.WaitForText("Jobs of worker")
	b.CheckPolicy()
}
