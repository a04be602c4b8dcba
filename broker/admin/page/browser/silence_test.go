package browser

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"gloom/broker/page/pagetest"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// gate is a proxy in front of a host. While it is locked, it forwards no byte and closes no
// connection.
type gate struct {
	sync.RWMutex
	net.Listener
}

// placeGate puts a gate in front of the broker, and replaces the world's url with that of the gate.
func placeGate(w *world) *gate {
	w.t.Helper()
	host, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	g := &gate{Listener: l}
	w.t.Cleanup(func() { _ = l.Close() })
	w.url = "http://" + l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", host.Host)
			if err != nil {
				_ = conn.Close()
				continue
			}
			go g.forward(conn, out)
			go g.forward(out, conn)
		}
	}()
	return g
}

func (g *gate) forward(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		g.RLock()
		if n > 0 {
			if _, writeErr := to.Write(buf[:n]); err == nil {
				err = writeErr
			}
		}
		g.RUnlock()
		if err != nil {
			return
		}
	}
}

// TestSilentBrokerIsNotShownAsRunning: a broker that sends nothing, although its connections are
// open, is not shown as running.
func TestSilentBrokerIsNotShownAsRunning(t *testing.T) {
	w := start(t, nil)
	g := placeGate(w)
	b := w.openPage("")
	w.submit(gloom.Job{Type: "before"})
	b.WaitForText("before")
	g.Lock()
	thaw := sync.OnceFunc(g.Unlock)
	defer thaw()
	pagetest.Eval[any](b, `const now = Date.now; Date.now = () => now() + 20000`)
	b.WaitForText("The broker does not answer", "before")
	thaw()
	b.WaitForNoText("The broker does not answer")
	w.submit(gloom.Job{Type: "after"})
	b.WaitForText("after")
	b.CheckPolicy()
}

// TestMissingStreamScriptIsRequestedAgain: if the script that reads the stream for all tabs did not load, it is
// requested again.
func TestMissingStreamScriptIsRequestedAgain(t *testing.T) {
	w := start(t, nil)
	b := pagetest.NewTab(t, chromium, chromedp.WithNewBrowserContext())
	b.Ignore("Failed to fetch a worker script")
	b.OnNewDocument(`window.workers = 0;
		window.SharedWorker = class extends SharedWorker { constructor(url, o) { super(window.workers++ ? url : 'nosuch.js', o); } };`)
	b.Visit(w.url + "/")
	b.WaitUntil(`window.workers === 1`)
	pagetest.Eval[any](b, `const now = Date.now; Date.now = () => now() + 20000`)
	b.WaitUntil(`window.workers > 1`)
	b.WaitForNoText("The broker does not answer")
	w.submit(gloom.Job{Type: "after"})
	b.WaitForText("after")
	b.CheckPolicy()
}

// TestTimeOfRepliesWithoutSnapshotIsShown: if replies came, but never a snapshot, the page of a broker that is away says all
// the same what time they are from.
func TestTimeOfRepliesWithoutSnapshotIsShown(t *testing.T) {
	w := start(t, nil)
	w.submit(gloom.Job{Type: "mail"})
	b := pagetest.NewTab(t, chromium, chromedp.WithNewBrowserContext())
	b.Ignore("Failed to fetch a worker script")
	b.OnNewDocument(`window.SharedWorker = class extends SharedWorker { constructor(url, o) { super('nosuch.js', o); } };
		const lag = performance.now.bind(performance);
		performance.now = () => lag() + 2000; // the document's data counts as old`)
	b.Visit(w.url + "/#/type/mail")
	b.WaitForText("oldest")
	pagetest.Eval[any](b, `const now = Date.now; Date.now = () => now() + 20000`)
	b.WaitForText("The broker does not answer", "What you see is from")
	b.CheckPolicy()
}

// TestRefusedStreamIsExplained: the page says why a broker refuses the stream.
func TestRefusedStreamIsExplained(t *testing.T) {
	w := start(t, func(o *settings.Options) { o.MaxHTTPConns = 40 })
	var streams []io.Closer
	for range 30 { // as many streams as are allowed: three quarters of the connections
		r, err := http.NewRequestWithContext(w.ctx, "GET", w.url+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		streams = append(streams, resp.Body)
	}
	b := w.openPage("")
	b.Ignore("503 (Service Unavailable)")
	b.WaitForText("The broker refuses its events: 30 streams of events are open")
	for _, s := range streams {
		_ = s.Close()
	}
	b.WaitForNoText("The broker refuses")
	b.WaitForText("Everything is healthy")
	b.CheckPolicy()
}
