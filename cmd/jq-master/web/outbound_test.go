package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"gloom/cmd/internal/door"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
)

// stalledWriter is a connection whose client reads only when the test lets it.
type stalledWriter struct {
	http.ResponseWriter
	writes chan<- struct{}
	reads  <-chan struct{}
}

func (u *stalledWriter) Write(b []byte) (int, error) {
	u.writes <- struct{}{}
	<-u.reads
	return len(b), nil
}

func (u *stalledWriter) Flush() {}

// TestUnreadResultsAreBounded: however many clients request a large result and do not read it, only
// a few of these results are in memory. Small results do not wait, and a client that disconnects
// has fetched nothing.
func TestUnreadResultsAreBounded(t *testing.T) {
	const limit = 4 * largeReply
	s := &Server{Config: Config{MaxBody: limit}}
	s.outbound = semaphore.NewWeighted(s.outboundBytes())
	writes, reads := make(chan struct{}, 1000), make(chan struct{})
	fetched := make(chan bool, 1000)
	var wg sync.WaitGroup
	send := func(ctx context.Context, size int) {
		wg.Go(func() {
			r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
			x := &exchange{Server: s, w: &stalledWriter{httptest.NewRecorder(), writes, reads}, r: r, replyType: msgpackType}
			_, _ = x.sendStatus(&master.Status{Job: &job.Job{State: job.Done, Error: make([]byte, size/2)}, Result: make([]byte, size-size/2), Fetch: func(ok bool) { fetched <- ok }})
		})
	}
	awaitResults := func(want int) {
		t.Helper()
		for range want {
			select {
			case <-writes:
			case <-time.After(45 * time.Second):
				t.Fatal("a reply is not written")
			}
		}
		time.Sleep(50 * time.Millisecond)
		if n := len(writes); n > 0 {
			t.Fatalf("%d replies more than %d are being written", n, want)
		}
	}
	for range 3 * maxLargeReplies {
		send(t.Context(), limit)
	}
	awaitResults(maxLargeReplies)
	send(t.Context(), largeReply)
	awaitResults(1)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	send(ctx, 2*maxLargeReplies*limit) // a result that was stored when larger bodies were allowed
	if <-fetched {
		t.Error("a client that has left has fetched the result")
	}
	close(reads)
	wg.Wait()
	for len(fetched) > 0 {
		if !<-fetched {
			t.Error("a client that has read the result has not fetched it")
		}
	}
	send(t.Context(), 2*maxLargeReplies*limit)
	wg.Wait()
}

// TestGoneClientFetchesNothing: a client that left while its job ended has not fetched the result,
// even if the connection still accepts the reply.
func TestGoneClientFetchesNothing(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for _, want := range []bool{true, false} {
		x := &exchange{Server: &Server{}, w: httptest.NewRecorder(), r: httptest.NewRequestWithContext(ctx, "GET", "/", nil), replyType: msgpackType}
		fetched := make(chan bool, 1)
		_, _ = x.sendStatus(&master.Status{Job: &job.Job{State: job.Done}, Result: []byte{0xc0}, Fetch: func(ok bool) { fetched <- ok }})
		if got := <-fetched; got != want {
			t.Errorf("fetched is %v, not %v", got, want)
		}
		leave()
	}
}

// TestPanicGivesRoomBack: a reply that ends in a panic, which the HTTP server catches, takes no room
// from later ones.
func TestPanicGivesRoomBack(t *testing.T) {
	s := New(Config{Door: &door.Door{}, Registry: prometheus.NewRegistry()})
	e := s.newEndpoint("/", map[string]operation{"GET": {serve: func(x *exchange) (int, error) { panic(x.reserve(2 * largeReply)) }}})
	func() {
		defer func() { _ = recover() }()
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}()
	if !s.outbound.TryAcquire(s.outboundBytes()) {
		t.Error("its room is taken")
	}
}
