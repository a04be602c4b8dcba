package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/door"
	"gloom/cmd/jobd-master/master"
)

// TestIdlePageAsksNoWorker: without a viewer the master does not ask its workers. After a request for the
// statistics the master continues to ask its workers for a while, so that the plots have data when
// the page is opened again.
func TestIdlePageAsksNoWorker(t *testing.T) {
	m := master.New(master.Options{PingInterval: time.Hour, PokeThrottle: time.Hour, WorkerTimeout: time.Second, Log: zerolog.Nop()})
	s := &Server{Config: Config{Master: m, Door: &door.Door{}}}
	watched := func(want bool) {
		t.Helper()
		if _, _, known := s.currentMoment(); known != want {
			t.Errorf("a look is taken: %v, want %v", known, want)
		}
	}
	watched(false)
	if _, err := s.getStats(nil); err != nil {
		t.Fatal(err)
	}
	watched(true)
	s.lastRequest.Store(time.Now().Add(-watchPeriod - time.Second).UnixNano())
	watched(false)
}

// TestTargetIsFoundByAnyName: a target is found by any name, also if it is "/".
func TestTargetIsFoundByAnyName(t *testing.T) {
	listener, err := daemon.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := New(Config{Master: master.New(master.Options{PingInterval: time.Hour, PokeThrottle: time.Hour, WorkerTimeout: time.Second, Log: zerolog.Nop()}), Door: door.NewOnListener(listener, door.Options{TrustLocal: true}, zerolog.Nop(), "admin"), Probes: http.NotFoundHandler()})
	for _, segment := range []string{"%2F", "%2f", "%FF%2F", "%FF..", "a%2Fb"} {
		r := httptest.NewRequest("GET", "http://"+listener.Addr().String()+"/v1/targets/"+segment, nil)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no worker serves the target") {
			t.Errorf("%s: %d, %s", segment, w.Code, w.Body)
		}
	}
}

// TestInvalidQueryIsRefused: a query that is malformed, or has an unknown or repeated parameter, is
// refused.
func TestInvalidQueryIsRefused(t *testing.T) {
	listener, err := daemon.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := New(Config{Master: master.New(master.Options{PingInterval: time.Hour, PokeThrottle: time.Hour, WorkerTimeout: time.Second, Log: zerolog.Nop()}), Door: door.NewOnListener(listener, door.Options{TrustLocal: true}, zerolog.Nop(), "admin"), Probes: http.NotFoundHandler()})
	for query, text := range map[string]string{
		"part=a":        "",
		"prat=a":        "no parameter",
		"part=a;b":      "malformed",
		"part=%zz":      "malformed",
		"part=a&part=b": "given 2 times",
	} {
		r := httptest.NewRequest("GET", "http://"+listener.Addr().String()+"/v1/workers?"+query, nil)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if want := map[bool]int{true: 200, false: 400}[text == ""]; w.Code != want || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: %d, %s", query, w.Code, w.Body)
		}
	}
}

// TestRowIsFoundByAnyID: the id of a row may have 64 bits.
func TestRowIsFoundByAnyID(t *testing.T) {
	listener, err := daemon.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := New(Config{Master: master.New(master.Options{PingInterval: time.Hour, PokeThrottle: time.Hour, WorkerTimeout: time.Second, Log: zerolog.Nop()}), Door: door.NewOnListener(listener, door.Options{TrustLocal: true}, zerolog.Nop(), "admin"), Probes: http.NotFoundHandler()})
	for path, want := range map[string]int{
		"rows/1": 200, "rows/9007199254740993": 200, "rows/9223372036854775807": 200, "rows/9223372036854775808": 400, "rows/0": 400, "rows/x": 400,
		"targets/a/rows?status=done&cursor=9007199254740993": 404, "targets/a/rows?status=done&cursor=0": 400,
	} {
		r := httptest.NewRequest("GET", "http://"+listener.Addr().String()+"/v1/"+path, nil)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, %s", path, w.Code, w.Body)
		}
	}
}
