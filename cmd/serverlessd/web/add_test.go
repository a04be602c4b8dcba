package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"gloom/cmd/serverlessd/journal"
)

// away is a queue whose store is.
type away struct {
	Queue
	asked chan struct{} // somebody waits for the store
}

func (away) Add(context.Context, []journal.Batch) (r journal.Receipt, err error) { return r, nil }

func (a away) Stored(ctx context.Context, _ journal.Receipt) error {
	a.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// TestWaitTakesNoPlace: who waits for a store keeps nobody from adding.
func TestWaitTakesNoPlace(t *testing.T) {
	s := &Web{queue: away{asked: make(chan struct{})}, room: make(chan struct{}, 1), opt: Options{MaxBody: 100, MaxLine: 100}}
	add := func(ctx context.Context, query url.Values) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/acme/add/t", strings.NewReader("a\n"))
		return s.add(&request{Request: r, w: httptest.NewRecorder(), query: query, client: "acme", name: "t"})
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- add(ctx, url.Values{"wait": {"store"}}) }()
	select {
	case <-s.queue.(away).asked:
	case err := <-ended:
		t.Fatal(err)
	}
	if err := add(t.Context(), nil); err != nil {
		t.Errorf("while another waits for the store: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
