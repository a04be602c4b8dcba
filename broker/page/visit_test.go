package page_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"gloom/broker/page"
)

// TestDocumentHasDataOfVisitor: the document contains the data that the visitor may request, or no
// data if a part of it is refused or late.
func TestDocumentHasDataOfVisitor(t *testing.T) {
	site := page.New(testDaemon(fstest.MapFS{}))
	release, waiters := make(chan struct{}), new(atomic.Int32)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "here" || r.Method != "GET" || r.Header.Get("Accept") != "application/json" || r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if r.URL.Query().Has("slow") {
			time.Sleep(time.Second)
		}
		if r.URL.Query().Has("hangs") {
			waiters.Add(1)
			<-release
		}
		if r.URL.Query().Has("broken") {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte(`{"path":"` + r.URL.Path + `</template>"}` + "\n"))
	})
	visit := func(host, path string) string {
		r := httptest.NewRequest("HEAD", "/", nil)
		r.Method, r.Host = "GET", host
		r.Header.Set("If-None-Match", "x")
		w := httptest.NewRecorder()
		site.Visit(w, r, h, map[string]string{"status": "/v1/status", "look": path})
		_, after, _ := strings.Cut(w.Body.String(), `<template id="first">`)
		first, _, _ := strings.Cut(after, "</template>")
		return first
	}
	if got := visit("here", "/v1/stats"); !strings.HasPrefix(got, `{"unix_ms":`) || !strings.HasSuffix(got, `,"look":{"path":"/v1/stats\u003c/template\u003e"},"status":{"path":"/v1/status\u003c/template\u003e"}}`) {
		t.Errorf("%s", got)
	}
	for name, got := range map[string]string{"refused": visit("elsewhere", "/v1/stats"), "late": visit("here", "/v1/stats?slow=1"), "broken": visit("here", "/v1/stats?broken=1")} {
		if got != "null" {
			t.Errorf("%s: %s", name, got)
		}
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { visit("here", "/v1/stats?hangs=1") })
	}
	wg.Wait()
	if n := waiters.Load(); n == 0 || n > 16 {
		t.Errorf("%d visits hang in the daemon", n)
	}
	if got := visit("here", "/v1/stats"); got != "null" {
		t.Errorf("too many visits: %s", got)
	}
	close(release)
	for end := time.Now().Add(5 * time.Second); visit("here", "/v1/stats") == "null"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("after they have ended, no visit has data")
		}
	}
}
