// Package browser tests the page of serverlessd in a real Chromium, with the real program.
package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gloom/bench/throwaway"
	"gloom/broker/page/pagetest"
)

var (
	shots   = flag.String("shots", "", "directory for pictures of every view, light and dark, narrow and wide")
	picture = flag.String("picture", "", "file for the picture that README.md shows")
)

var program = throwaway.Probe{Name: "serverlessd"}

// chromium is the context of the browser. It is the parent of each tab's context.
var chromium context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(program.Main(1, func() (int, error) {
		ctx, end, err := pagetest.StartChromium()
		if err != nil {
			return 1, err
		}
		defer end()
		chromium = ctx
		return m.Run(), nil
	}))
}

// world is a daemon for one test.
type world struct {
	t      *testing.T
	daemon *throwaway.Daemon
	url    string
}

// start starts a daemon in a directory, or in a new one if dir is "".
func start(t *testing.T, dir string, flags ...string) *world {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	cmd, err := program.Command(append([]string{
		"--addr=127.0.0.1:0", "--dir=" + dir, "--langs=sh,http,gloom", "--retry-delay=1h", "--retry-max=1h", "--concurrency=4",
	}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	d, err := throwaway.Start(cmd, "serverlessd is ready")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return &world{t, d, "http://" + d.Field("addr")}
}

// waitUntilReady waits until the daemon is ready.
func (w *world) waitUntilReady() *world {
	w.t.Helper()
	w.waitUntil("it is ready", func() bool { code, _ := w.try("GET", "/readyz", ""); return code == 200 })
	return w
}

// try makes a request with a body.
func (w *world) try(method, path, body string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// ask is like try, but fails the test unless the request succeeds and the answer is JSON.
func (w *world) ask(method, path, body string) (out map[string]any) {
	w.t.Helper()
	code, text := w.try(method, path, body)
	if err := json.Unmarshal([]byte(text), &out); code >= 300 || err != nil {
		w.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return out
}

// waitUntil waits until a condition holds, and fails the test if it does not.
func (w *world) waitUntil(label string, cond func() bool) {
	w.t.Helper()
	for end := time.Now().Add(pagetest.WaitTimeout); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not in time: %s", label)
		}
	}
}

// add adds a job for each line, and returns their ids.
func (w *world) add(client, typ, lines, query string) (ids []string) {
	w.t.Helper()
	for _, id := range w.ask("POST", "/"+client+"/job/"+typ+"?wait=store"+query, lines)["ids"].([]any) {
		ids = append(ids, id.(string))
	}
	return ids
}

// addHandler adds a handler in sh.
func (w *world) addHandler(client, typ, body string) {
	w.t.Helper()
	w.ask("PUT", "/"+client+"/handler/add/"+typ+"?lang=sh", body)
}

// state returns the state of a job.
func (w *world) state(client, id string) string {
	w.t.Helper()
	code, text := w.try("GET", "/"+client+"/job/get/"+id, "")
	var j struct{ State string }
	if err := json.Unmarshal([]byte(text), &j); err != nil || code != 200 {
		return fmt.Sprint(code)
	}
	return j.State
}

// awaitState waits until a job has this state.
func (w *world) awaitState(client, id, state string) {
	w.t.Helper()
	w.waitUntil(id+" is "+state, func() bool { return w.state(client, id) == state })
}

// open opens the page in a new profile.
func (w *world) open(route string) *pagetest.Tab {
	w.t.Helper()
	b := pagetest.NewTab(w.t, chromium, chromedp.WithNewBrowserContext())
	b.Visit(w.url + "/" + route)
	return b
}

// leftOverSegment returns a directory whose journal has jobs that no store has yet.
func leftOverSegment(t *testing.T, typ, lines string) (segment string, first string) {
	t.Helper()
	dir := t.TempDir()
	w := start(t, dir, "--store=mysql://nobody:none@127.0.0.1:1/none")
	first = w.ask("POST", "/acme/job/"+typ, lines)["ids"].([]any)[0].(string)
	w.daemon.Kill()
	found, err := filepath.Glob(filepath.Join(dir, "journal", "*"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0], first
}

// startBusy starts a daemon with jobs in all states, and returns the ids of the jobs that tests use.
func startBusy(t *testing.T) (w *world, ids map[string]string) {
	t.Helper()
	dir := t.TempDir()
	from, first := leftOverSegment(t, "large", "a line that no store took\nanother\n")
	for name, text := range map[string]string{"damage-12-34.bad": "not what was written", first + ".bad": ""} {
		data := []byte(text)
		if text == "" {
			var err error
			if data, err = os.ReadFile(from); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, "journal"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "journal", name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w = start(t, dir).waitUntilReady()
	w.addHandler("acme", "greet", `read name; echo "R: 200 hello $name"`)
	w.addHandler("acme", "mail", `echo "550 no such mailbox" >&2; exit 65`)
	w.addHandler("acme", "sms", `echo "the gateway is busy" >&2; exit 75`)
	w.addHandler("acme", "video", `sleep 600`)
	w.addHandler("umbrella", "mail", `echo "R: 200 {\"sent\":18446744073709551615}"`)
	ids = map[string]string{
		"ok":       w.add("acme", "greet", "world\nmoon\nsun\n", "")[0],
		"failed":   w.add("acme", "mail", `{"to":"nobody@example.org","n":9223372036854775809}`+"\n", "")[0],
		"deferred": w.add("acme", "sms", "+49 30 1234\n", "")[0],
		"running":  w.add("acme", "video", "holiday.mp4\n", "")[0],
		"waiting":  w.add("acme", "report", "all\nsome\n", "")[0],
		"other":    w.add("umbrella", "mail", "anybody\n", "")[0],
	}
	w.add("acme", "greet", "later\n", "&delay=3h")
	w.ask("PUT", "/acme/schedule/nightly", `{"cron":"30 2 * * *","zone":"Europe/Berlin","job":{"type":"report","payload":"{\"of\":9223372036854775809}"},"note":"for the boss"}`)
	w.awaitState("acme", ids["ok"], "ok")
	w.awaitState("acme", ids["failed"], "failed")
	w.awaitState("acme", ids["deferred"], "deferred")
	w.awaitState("acme", ids["running"], "running")
	w.awaitState("umbrella", ids["other"], "ok")
	return w, ids
}

func jobPath(client, id string) string { return "#/job/" + client + "/" + url.PathEscape(id) }
