package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/broker/guard"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

// TestBusyStore: a request that waited in vain for its turn learns that the daemon has too many.
func TestBusyStore(t *testing.T) {
	if f := errorOf(fmt.Errorf("%w: in vain", store.ErrBusy)); f.Status != http.StatusServiceUnavailable || f.Code != "overloaded" {
		t.Errorf("%d %v", f.Status, f)
	}
}

// TestSlowBodies: bodies that do not end keep no other client from adding, and do not keep their
// own client from small adds. When they end, their buffers become free.
func TestSlowBodies(t *testing.T) {
	const limit = 4
	s := &Web{queue: awayQueue{}, bodyBuffers: newBufferPool(limit), opt: Options{MaxBody: 1 << 20, MaxLineBytes: 1 << 20, MaxLines: 1, MaxBodies: limit}}
	add := func(client string, body io.Reader) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
		return s.add(&request{Request: r, w: httptest.NewRecorder(), client: client, name: "t"})
	}
	largeBody := func() io.Reader { return strings.NewReader(strings.Repeat("a", 2*smallBody)) }
	ended, goesOn := make(chan error, limit), make(chan struct{})
	for range limit {
		from, to := io.Pipe()
		go func() {
			_, _ = to.Write(make([]byte, smallBody+1))
			<-goesOn
			to.Close()
		}()
		go func() { ended <- add("slow", from) }()
	}
	for range limit / 2 {
		if f := errorOf(<-ended); f == nil || f.Code != "overloaded" || !strings.HasSuffix(f.Error(), `; client "slow" has half of them`) {
			t.Errorf("beyond half of the places: %v", f)
		}
	}
	if text := s.bodyBuffers.shortage("other"); text != "none is free at the moment" {
		t.Errorf("another client: %s", text)
	}
	for name, err := range map[string]error{
		"a small one": add("slow", strings.NewReader("a\n")), "another's small one": add("other", strings.NewReader("a\n")), "another's large one": add("other", largeBody()),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := add("slow", largeBody()); err == nil || errorOf(err).Status != http.StatusServiceUnavailable {
		t.Errorf("one more: %v", err)
	}
	close(goesOn)
	for range limit - limit/2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := add("slow", largeBody()); err != nil {
		t.Errorf("after them: %v", err)
	}
}

// resultQueue is a queue that has a result for every id.
type resultQueue struct {
	awayQueue
	data []byte
	read atomic.Int64 // how often it was read
}

func (q *resultQueue) Result(_ context.Context, id job.ID, limit int) (*store.Record, []byte, error) {
	rec := &store.Record{ID: id, Jobtype: job.Jobtype("slow", "t"), Status: 200, DataBytes: int64(len(q.data))}
	if len(q.data) > limit {
		return rec, nil, nil
	}
	q.read.Add(1)
	return rec, q.data, nil
}

// stalledWriter is a connection whose client reads nothing until the test lets it.
type stalledWriter struct {
	*httptest.ResponseRecorder
	begun, goesOn chan struct{}
}

func (w stalledWriter) Write(p []byte) (int, error) {
	w.begun <- struct{}{}
	<-w.goesOn
	return w.ResponseRecorder.Write(p)
}

// TestUnreadResults: only a limited number of large results that clients do not read is in memory,
// and they do not delay small results. A further request of the same client is refused, and its
// result is not read.
func TestUnreadResults(t *testing.T) {
	const limit = 4
	q := &resultQueue{data: bytes.Repeat([]byte("a"), smallBody+1)}
	s := New(q, nil, Options{MaxBodies: limit})
	id := string(job.NewIDSource("0d0d0d", time.Now).Next(1))
	get := func(w http.ResponseWriter) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		return s.result(&request{Request: r, w: w, client: "slow", name: id, grant: &guard.Grant{AllTypes: true}})
	}
	begun, goesOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	for range limit / 2 {
		go func() { ended <- get(stalledWriter{httptest.NewRecorder(), begun, goesOn}) }()
		<-begun
	}
	if err := get(httptest.NewRecorder()); err == nil || errorOf(err).Status != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "at most 4 large results") {
		t.Errorf("one more: %v", err)
	}
	if n := q.read.Load(); n != limit/2 {
		t.Errorf("large results were read %d times, %d have places", n, limit/2)
	}
	q.data = q.data[:smallBody]
	if err := get(httptest.NewRecorder()); err != nil {
		t.Errorf("a small one: %v", err)
	}
	close(goesOn)
	for range limit / 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	q.data = append(q.data, 'a')
	if err := get(httptest.NewRecorder()); err != nil {
		t.Errorf("after them: %v", err)
	}
}

// removedJobQueue is a queue whose job is removed after its size was read.
type removedJobQueue struct{ awayQueue }

func (removedJobQueue) Payload(_ context.Context, id job.ID, limit int) (*store.Record, []byte, error) {
	if limit > smallBody {
		return nil, nil, store.ErrUnknown
	}
	return &store.Record{ID: id, Jobtype: job.Jobtype("a", "t"), Bytes: smallBody + 1}, nil, nil
}

// TestRemovedMeanwhile: a job that is removed while its payload waits for a buffer is unknown.
func TestRemovedMeanwhile(t *testing.T) {
	s := New(removedJobQueue{}, nil, Options{MaxBodies: 2})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	id := string(job.NewIDSource("0d0d0d", time.Now).Next(1))
	err := s.payload(&request{Request: r, w: httptest.NewRecorder(), client: "a", name: id, grant: &guard.Grant{AllTypes: true}})
	if f := errorOf(err); f.Status != http.StatusNotFound || f.Code != "unknown_job" {
		t.Errorf("%d %v", f.Status, f)
	}
}
