package web

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/door"
	"gloom/cmd/jobd-master/master"
)

// TestNobodyLooks: without a viewer the master does not ask its workers; after a request for the
// statistics it does for a while, so that plots are filled when the page is opened again.
func TestNobodyLooks(t *testing.T) {
	m := master.New(master.Options{PingInterval: time.Hour, PokeThrottle: time.Hour, WorkerTimeout: time.Second, Log: zerolog.Nop()})
	s := &Server{Config: Config{Master: m, Door: &door.Door{}}}
	watched := func(want bool) {
		t.Helper()
		if _, _, known := s.moment(); known != want {
			t.Errorf("a look is taken: %v, want %v", known, want)
		}
	}
	watched(false)
	if _, err := s.stats(nil); err != nil {
		t.Fatal(err)
	}
	watched(true)
	s.asked.Store(time.Now().Add(-watchFor - time.Second).UnixNano())
	watched(false)
}
