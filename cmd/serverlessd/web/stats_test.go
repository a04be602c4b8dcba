package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/guard"
	"gloom/cmd/internal/door"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

// countingQueue is a queue that counts the calls of Snapshot.
type countingQueue struct {
	awayQueue
	snapshots int
}

func (q *countingQueue) Snapshot() *engine.Snapshot {
	q.snapshots++
	l := &engine.Snapshot{
		Counted: time.Now(), Types: map[string]store.Counts{
			"a-x": {Added: 9, Waiting: 5, Running: 1, OK: 3}, "a-none": {Added: 2, Waiting: 2}, "b-x": {Added: 7, OK: 7}, "a-old": {Added: 1, Failed: 1},
		},
		Stores: []engine.StoreSnapshot{{Name: "sqlite:a", Error: store.ErrAway.Error(), Away: true}}, Broker: fmt.Errorf("no route"),
	}
	l.Ended = map[string]int64{"ok": 10}
	return l
}

func (*countingQueue) Handlers() map[string]*job.Handler {
	h := func(lang string) *job.Handler {
		return &job.Handler{ID: "1", Source: job.Source{Lang: lang, Body: "12345"}}
	}
	return map[string]*job.Handler{"a-x": h("sh"), "b-x": h("http"), "c-new": h("node")}
}

func (*countingQueue) Health() error { return store.ErrAway }

// TestUnreadHandlersAreNotMissing: a type is not said to have no handler while the handlers of a store
// have not been read.
func TestUnreadHandlersAreNotMissing(t *testing.T) {
	l := &engine.Snapshot{Types: map[string]store.Counts{"a-x": {Waiting: 5}}}
	for unread, want := range map[bool]string{false: `{"type":"a-x","lang":null,`, true: `{"type":"a-x","lang":"",`} {
		l.HandlersUnread = unread
		text, err := json.Marshal((&snapshot{engine: l}).show(snapshotKey{types: 1}).Types)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// TestClientsGetSameSnapshot: all clients get the same snapshot, which is taken once. A client sees
// only the types that its token covers.
func TestClientsGetSameSnapshot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("all admin,read\nsome admin a-*\nother admin b-*\nreader read\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := door.Listen(door.Options{Addr: "127.0.0.1:0", Options: guard.Options{TokenFile: file}}, zerolog.Nop(), true, ScopeNames...)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Shutdown(t.Context())
	q := &countingQueue{}
	s := New(q, d, Options{MaxBodies: 2, Languages: []string{"http", "sh"}})
	get := func(path, token string, status int) string {
		t.Helper()
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+token)
		s.ServeHTTP(w, r)
		if w.Code != status {
			t.Fatalf("%s for %s: %d %s", path, token, w.Code, w.Body)
		}
		return w.Body.String()
	}
	types := func(text string) (names string, v snapshotView) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err, text)
		}
		for _, typ := range v.Types {
			names += typ.Type + " "
		}
		return names, v
	}
	s.renew(&s.snapshots)
	s.snapshots.takenAt = time.Now().Add(time.Hour) // the snapshot stays valid
	names, v := types(get("/v1/stats", "all", 200))
	if names != "a-none a-x b-x a-old c-new " || v.AllTypes != 5 || v.Ledger.Waiting != 7 || v.Ledger.Added != 19 || v.Ended["ok"] != 10 {
		t.Errorf("%s %+v", names, v)
	}
	if !v.Stores[0].Away || v.Stores[0].Error == "" {
		t.Errorf("%+v", v)
	}
	for range 99 {
		get("/v1/stats", "all", 200)
	}
	if q.snapshots != 1 {
		t.Errorf("%d snapshots for a hundred clients", q.snapshots)
	}
	if names, v := types(get("/v1/stats?types=2", "some", 200)); names != "a-none a-x " || v.AllTypes != 3 {
		t.Errorf("with a token for some types: %s %d", names, v.AllTypes)
	}
	if names, _ := types(get("/v1/stats?part=b-", "all", 200)); names != "b-x " {
		t.Errorf("part: %s", names)
	}
	for token, want := range map[string]bool{"all": true, "some": true, "other": false} {
		if got := strings.Contains(get("/v1/findings", token, 200), `"subject":"a-none","cause":"no_handler"`); got != want {
			t.Errorf("%s sees what is found of a-none: %v", token, got)
		}
		if _, v := types(get("/v1/stats", token, 200)); (v.Severities.Severe == 3) != want {
			t.Errorf("%s: %+v %v", token, v.Findings, v.Severities)
		}
	}
	get("/v1/findings", "reader", 403)
	get("/v1/stats", "reader", 403)
	get("/v1/status", "reader", 403)
	if text := get("/v1/status", "all", 200); !strings.Contains(text, `"scopes":["read","admin"]`) || !strings.Contains(text, `"langs":["http","sh"]`) {
		t.Error(text)
	}
	if text := get("/handlers?limit=2", "all", 200); !strings.Contains(text, `"cursor":"b-x"`) {
		t.Error(text)
	}
	if text := get("/handlers?cursor=b-x", "all", 200); !strings.Contains(text, `{"items":[{"type":"c-new","id":"1","dt":"0001-01-01T00:00:00.000Z","lang":"node","bytes":5}],"cursor":null}`) {
		t.Error(text)
	}
	if text := get("/handlers", "some", 200); strings.Contains(text, "b-x") {
		t.Error(text)
	}
	get("/jobs", "some", 403)
	get("/schedules", "some", 403)
}

// TestBrowserGetsPage: a browser gets the page and its files; programs get the name and version.
func TestBrowserGetsPage(t *testing.T) {
	d, err := door.Listen(door.Options{Addr: "127.0.0.1:0"}, zerolog.Nop(), true, ScopeNames...)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Shutdown(t.Context())
	s := New(&countingQueue{}, d, Options{Version: "v1", MaxBodies: 2})
	for _, c := range []struct{ method, path, accept, text string }{
		{"GET", "/", "text/html,application/xhtml+xml", "<title>Serverless</title>"},
		{"GET", "/", "*/*", `{"name":"serverlessd","version":"v1"}`},
		{"GET", "/", "", `{"name":"serverlessd","version":"v1"}`},
		{"GET", "/app.js", "", "start({"},
		{"GET", "/view/jobs.js", "", "listing"},
		{"GET", "/schedules.js", "", "schedulesOf"},
		{"POST", "/app.js", "", "method_not_allowed"},
		{"GET", "/view/nosuch.js", "", "not_found"},
	} {
		r, w := httptest.NewRequest(c.method, c.path, nil), httptest.NewRecorder()
		r.Header.Set("Accept", c.accept)
		s.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), c.text) {
			t.Errorf("%s %s for %q: %d %.200s", c.method, c.path, c.accept, w.Code, w.Body)
		}
		if html := strings.Contains(c.accept, "html"); html != strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'self'") || c.path == "/" && w.Header().Get("Vary") == "" {
			t.Errorf("%s for %q: %v", c.path, c.accept, w.Header())
		}
	}
}

// degradedQueue is a queue that works with some of its stores only.
type degradedQueue struct{ awayQueue }

func (degradedQueue) Health() error   { return nil }
func (degradedQueue) Degraded() error { return store.ErrAway }

// TestReadyWithSomeStores: a daemon of which some stores do not work is ready, and says so.
func TestReadyWithSomeStores(t *testing.T) {
	d, err := door.Listen(door.Options{Addr: "127.0.0.1:0"}, zerolog.Nop(), true, ScopeNames...)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Shutdown(t.Context())
	w := httptest.NewRecorder()
	New(degradedQueue{}, d, Options{MaxBodies: 2}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if want := "ok, but not all stores work: the store is away\n"; w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %q, want %q", w.Code, w.Body, want)
	}
}
