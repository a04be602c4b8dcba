// Package browser tests the page in a real Chromium, against brokers with jobs.
package browser

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"

	"gloom/broker/admin"
	"gloom/broker/page/pagetest"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// patience bounds every wait.
const patience = pagetest.WaitTimeout

var (
	screenshotDir = flag.String("shots", "", "directory for screenshots of every view, 320 to 1920 pixels, light and dark")
	runLong       = flag.Bool("long", false, "what takes longer, too: every width, fifty tabs")
)

// chromium is the browser's context; each tab gets one of its own under it.
var chromium context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		ctx, end, err := pagetest.StartChromium()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer end()
		chromium = ctx
		return m.Run()
	}())
}

// world is a broker with its HTTP server.
type world struct {
	t   *testing.T
	srv *server.Server
	ctx context.Context
	url string
}

func start(t *testing.T, change func(*settings.Options)) *world {
	t.Helper()
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	opt.Version = "v1.2.3"
	if change != nil {
		change(&opt)
	}
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	srv.ServeHTTP(admin.New(srv, zerolog.Nop()))
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	return &world{t: t, srv: srv, ctx: ctx, url: "http://" + srv.HTTPAddr().String()}
}

// submit submits detached jobs.
func (w *world) submit(jobs ...gloom.Job) {
	w.t.Helper()
	s, err := gloom.Dial(w.ctx, gloom.Addrs(w.srv.SubmitAddr().String()), gloom.ClientName("tests"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	var pendings []*gloom.Pending
	for _, j := range jobs {
		if j.Body == nil {
			j.Body = json.RawMessage(`{"to":"a@example.org"}`)
		}
		j.Detach = true
		p, err := s.Submit(w.ctx, j)
		if err != nil {
			w.t.Fatal(err)
		}
		pendings = append(pendings, p)
	}
	for _, p := range pendings {
		if _, err := p.Result(w.ctx); err != nil {
			w.t.Fatal(err)
		}
	}
}

// startWorker serves a type until the test ends.
func (w *world) startWorker(typ string, do gloom.Handler) {
	w.t.Helper()
	worker := gloom.Worker{Type: typ, Handler: do, Options: []gloom.Option{gloom.Addrs(w.srv.WorkerAddr().String()), gloom.ClientName("worker of tests")}}
	if err := worker.Start(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = worker.Stop(ctx)
	})
}

// stuckHandler is a handler that runs until its job is cancelled.
func stuckHandler(ctx context.Context, _ *gloom.Job) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func failingHandler(context.Context, *gloom.Job) (any, error) {
	return nil, gloom.Fatal(errors.New("no such address"))
}

// callAPI makes a request of /v1 and decodes the answer.
func (w *world) callAPI(method, path, body string) map[string]any {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return out
}

// waitUntil waits until a condition of an answer is true.
func (w *world) waitUntil(path string, isReached func(map[string]any) bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		v := w.callAPI("GET", path, "")
		if isReached(v) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s stayed %v", path, v)
		}
	}
}

// openPage opens the page in a new profile, and returns when the first snapshot has come.
func (w *world) openPage(route string) *pagetest.Tab {
	w.t.Helper()
	t := pagetest.NewTab(w.t, chromium, chromedp.WithNewBrowserContext())
	t.Visit(w.url + "/" + route)
	return t
}
