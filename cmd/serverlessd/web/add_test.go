package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
)

// awayQueue is a queue whose store is away.
type awayQueue struct {
	Queue
	waiting chan struct{} // closed when a caller waits for the store
}

func (awayQueue) Add(_ context.Context, batches []journal.Batch) (r journal.Receipt, err error) {
	for range batches {
		r.First = append(r.First, job.NewIDSource("0d0d0d", time.Now).Next(1))
	}
	return r, nil
}

func (awayQueue) IsUnhandled(string) bool { return false }

func (a awayQueue) Stored(ctx context.Context, _ journal.Receipt) error {
	a.waiting <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// TestWaitTakesNoBuffer: requests that wait for a store do not keep others from adding.
func TestWaitTakesNoBuffer(t *testing.T) {
	s := &Web{queue: awayQueue{waiting: make(chan struct{})}, bodyBuffers: newBufferPool(1), opt: Options{MaxBody: 1 << 20, MaxLineBytes: 1 << 20, MaxLines: 1}}
	add := func(ctx context.Context, query url.Values) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/acme/add/t", strings.NewReader(strings.Repeat("a", 2*smallBody)))
		return s.add(&request{Request: r, w: httptest.NewRecorder(), query: query, client: "acme", name: "t"})
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- add(ctx, url.Values{"wait": {"store"}}) }()
	select {
	case <-s.queue.(awayQueue).waiting:
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

// storedQueue is a queue whose store has accepted all added jobs, unless err says why not.
type storedQueue struct {
	awayQueue
	err error
}

func (s storedQueue) Stored(context.Context, journal.Receipt) error { return s.err }

func TestAddReportsWhetherStored(t *testing.T) {
	for want, err := range map[string]error{
		`"stored":true}`:  nil,
		`"stored":false}`: context.DeadlineExceeded,
		`"stored":false,"reason":"` + journal.ErrSetAside.Error() + `"}`: journal.ErrSetAside,
	} {
		s := &Web{queue: storedQueue{err: err}, bodyBuffers: newBufferPool(1), opt: Options{MaxBody: 100, MaxLineBytes: 100, MaxLines: 1}}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/acme/add/t", strings.NewReader("a\n"))
		if err := s.add(&request{Request: r, w: w, query: url.Values{"wait": {"store"}}, client: "acme", name: "t"}); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(w.Body.String()); !strings.HasSuffix(got, want) {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// addRecorder is a queue that records the last add.
type addRecorder struct {
	awayQueue
	last *journal.Batch
}

func (n addRecorder) Add(ctx context.Context, batches []journal.Batch) (journal.Receipt, error) {
	*n.last = batches[0]
	return n.awayQueue.Add(ctx, batches)
}

// TestJournalKeepsDelayOrDate: the journal gets a delay as a delay, and a due date as a date.
func TestJournalKeepsDelayOrDate(t *testing.T) {
	for query, want := range map[string]time.Duration{"delay=30s": 30 * time.Second, "dt=" + time.Now().AddDate(1, 0, 0).Format(time.DateOnly): 0, "delay=0": 0} {
		var got journal.Batch
		s := &Web{queue: addRecorder{last: &got}, bodyBuffers: newBufferPool(1), opt: Options{MaxBody: 100, MaxLineBytes: 100, MaxLines: 1}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/acme/add/t?"+query, strings.NewReader("a\n"))
		if err := s.add(&request{Request: r, w: httptest.NewRecorder(), query: r.URL.Query(), client: "acme", name: "t"}); err != nil {
			t.Fatal(err)
		}
		if got.Delay != want || got.Due.IsZero() != (query == "delay=0") {
			t.Errorf("%s: %+v", query, got)
		}
	}
}

// TestMemoryOfAnAdd: however many lines a body has, an add takes at most a small multiple of the
// body's size and of --max-lines in memory.
func TestMemoryOfAnAdd(t *testing.T) {
	const lines, perLine, perByte = 1000, 300, 6
	s := &Web{queue: awayQueue{}, bodyBuffers: newBufferPool(1), opt: Options{MaxBody: 1 << 20, MaxLineBytes: 100, MaxLines: lines}}
	for _, n := range []int{1, lines, lines + 1, 1 << 19} {
		body := strings.Repeat("a\n", n)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/acme/add/t", strings.NewReader(body))
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := s.add(&request{Request: r, w: w, client: "acme", name: "t"})
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<10+perByte*uint64(len(body))+perLine*lines {
			t.Errorf("%d lines of %d bytes took %d bytes", n, len(body), used)
		}
		if n > lines {
			if f := errorOf(err); f.Status != http.StatusRequestEntityTooLarge {
				t.Errorf("%d lines: %v", n, err)
			}
			continue
		}
		var answer struct {
			Count int
			IDs   []job.ID
		}
		if err2 := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || err2 != nil || answer.Count != n || len(answer.IDs) != n {
			t.Errorf("%d lines: %v, %v, %d ids", n, err, err2, len(answer.IDs))
		}
	}
}
