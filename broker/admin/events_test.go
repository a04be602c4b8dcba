package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// stream reads events of a broker.
type stream struct {
	t      *testing.T
	reader *bufio.Reader
}

// openEvents opens a stream, or returns the status of its refusal.
func (w *world) openEvents(ctx context.Context, lastID ...string) (*stream, int) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/v1/events", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", strings.Join(lastID, ""))
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode == http.StatusOK && ct != "text/event-stream" {
		w.t.Errorf("the events are of type %q", ct)
	}
	return &stream{w.t, bufio.NewReader(resp.Body)}, resp.StatusCode
}

// next decodes the next event with this name into v.
func (s *stream) next(name string, v any) {
	s.t.Helper()
	line := func() string {
		text, err := s.reader.ReadString('\n')
		if err != nil {
			s.t.Fatal(err)
		}
		return strings.TrimSuffix(text, "\n")
	}
	event, data, end := line(), line(), line()
	if event != "event: "+name || end != "" {
		s.t.Fatalf("%q, %.100q, %q, want the event %s", event, data, end, name)
	}
	d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(data, "data: ")))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		s.t.Fatal(err)
	}
}

// TestHeadRequestGetsNoStream: a HEAD request gets headers and no stream.
func TestHeadRequestGetsNoStream(t *testing.T) {
	w := start(t, nil)
	host := strings.TrimPrefix(w.url, "http://")
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "HEAD /v1/events HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
	head, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(head), "HTTP/1.1 200 OK\r\n") || !strings.Contains(string(head), "text/event-stream") {
		t.Errorf("%q, %v", head, err)
	}
}

// TestEventStreamShowsChanges: a stream begins with the sums of the last minutes, and then shows
// changes.
func TestEventStreamShowsChanges(t *testing.T) {
	w := start(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	s, _ := w.openEvents(ctx)
	var moments []api.Moment
	s.next("history", &moments)
	var look api.Look
	s.next("look", &look)
	if len(look.Wait) == 0 || len(look.Run) != len(look.Wait) || look.Top == nil || look.Imbalance != 0 {
		t.Errorf("the first look: %+v", look)
	}
	jobs, err := gloom.Dial(ctx, gloom.Addrs(w.srv.SubmitAddr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Close()
	for i := range 3 {
		if _, err := jobs.Submit(ctx, gloom.Job{ID: fmt.Sprint("j", i), Type: `odd "näme"`, Body: json.RawMessage(`1`)}); err != nil {
			t.Fatal(err)
		}
	}
	for look.Ledger.Queued < 3 {
		s.next("look", &look)
	}
	firstStream, _ := w.openEvents(ctx, "document") // a client that has already loaded the document
	firstStream.next("look", &look)
	if look.Submitters != 1 || look.Types != 1 || look.MemoryBytes == 0 {
		t.Errorf("with three jobs: %+v", look)
	}
	if len(look.Top) != 1 || look.Top[0].Type != `odd "näme"` || look.Top[0].Queued != 3 {
		t.Errorf("the top: %+v", look.Top)
	}
	// All jobs were submitted between two snapshots.
	if look.Rates == nil || look.Rates.In == 0 {
		t.Errorf("rates: %+v", look.Rates)
	}
	// A kept outcome is not a job of the ledger, but counts towards the limit.
	w.call("POST", "/v1/jobs", `{"type":"kept","body":1,"expires_ms":1,"keep_ms":3600000}`, 202)
	for look.Ledger.Expired == 0 {
		s.next("look", &look)
	}
	if look.Jobs != 4 || look.Conns != 1 {
		t.Errorf("%d jobs and %d connections count, want 4 and 1", look.Jobs, look.Conns)
	}
}

// TestStreamsAreLimited: the number of streams is limited, and a client without a token
// gets none.
func TestStreamsAreLimited(t *testing.T) {
	w := start(t, func(o *settings.Options) { o.MaxHTTPConns = 4 })
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	var cancelOther context.CancelFunc
	for range 3 {
		var firstCtx context.Context
		firstCtx, cancelOther = context.WithCancel(ctx)
		s, status := w.openEvents(firstCtx)
		if status != http.StatusOK {
			t.Fatalf("a stream: status %d", status)
		}
		s.next("history", &[]api.Moment{})
	}
	if _, status := w.openEvents(ctx); status != http.StatusServiceUnavailable {
		t.Errorf("a stream too many: status %d", status)
	}
	cancelOther()
	for status := 0; status != http.StatusOK; {
		_, status = w.openEvents(ctx)
		if ctx.Err() != nil {
			t.Fatal("the place of a stream that has ended was not given to another")
		}
	}

	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("good admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = start(t, func(o *settings.Options) { o.TokenFile = file })
	if _, status := w.openEvents(ctx); status != http.StatusUnauthorized {
		t.Errorf("without a token: status %d", status)
	}
	w.token = "good"
	if _, status := w.openEvents(ctx); status != http.StatusOK {
		t.Errorf("with a token: status %d", status)
	}
}

// TestStreamEndsWithToken: a stream ends with its token, even if there is always something to
// send.
func TestStreamEndsWithToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("good watch\nhook submit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *settings.Options) { o.TokenFile = file })
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	w.token = "good"
	s, _ := w.openEvents(ctx)
	if err := os.WriteFile(file, []byte("hook submit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.srv.Reload(); err != nil {
		t.Fatal(err)
	}
	w.token = "hook"
	for ctx.Err() == nil {
		line, err := s.reader.ReadString('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "event: look") { // so that the next snapshot differs
			w.call("POST", "/v1/jobs", `{"type":"t","body":1}`, 202)
		}
	}
	t.Error("the stream of a token that was removed goes on")
}

// TestTypesAreSorted asks for types in each order, page by page.
func TestTypesAreSorted(t *testing.T) {
	w := start(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	jobs, err := gloom.Dial(ctx, gloom.Addrs(w.srv.SubmitAddr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Close()
	const limit = 7
	for i := range limit {
		for range i + 1 {
			p, err := jobs.Submit(ctx, gloom.Job{Type: fmt.Sprintf("Type%d", i), Body: json.RawMessage(`1`), Detach: true})
			if err == nil {
				_, err = p.Result(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	names := func(query string) (names []string) {
		for cursor := ""; ; {
			v := w.call("GET", "/v1/types?limit=3&"+query+cursor, "", 200)
			for _, x := range v["items"].([]any) {
				names = append(names, x.(map[string]any)["type"].(string))
			}
			if n := v["count"]; n != float64(limit) && !strings.Contains(query, "filter") {
				t.Errorf("%s: count is %v, want %d", query, n, limit)
			}
			next, hasNext := v["next"]
			if !hasNext {
				return names
			}
			cursor = fmt.Sprintf("&cursor=%v", next)
		}
	}
	byName := []string{"Type0", "Type1", "Type2", "Type3", "Type4", "Type5", "Type6"}
	byQueue := slices.Clone(byName)
	slices.Reverse(byQueue)
	for query, want := range map[string][]string{
		"sort=type": byName, "sort=-type": byQueue, "sort=queued": byQueue, "sort=-queued": byName,
		"sort=running": byName, "sort=in&filter=TYPE3": {"Type3"}, "filter=none": nil,
	} {
		if got := names(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, order := range []string{"delayed", "oldest", "workers", "idle", "failed", "dead", "out"} {
		if got := names("sort=" + order); len(got) != limit {
			t.Errorf("sort=%s: %v", order, got)
		}
	}
	for _, path := range []string{
		"types?sort=type", "types?", "jobs?", "types/Type1/jobs?", "workers?", "submitters?", "dead/Type1?",
	} {
		v := w.call("GET", "/v1/"+path+"&cursor=9223372036854775807", "", 200)
		if items := v["items"].([]any); len(items) != 0 || v["next"] != nil {
			t.Errorf("%s: behind the end there are %v", path, v)
		}
	}
	if e := w.call("GET", "/v1/types?sort=size", "", 400); !strings.Contains(e["reason"].(string), `"size"`) {
		t.Errorf("an order that does not exist: %v", e)
	}
	typ := w.call("GET", "/v1/types/Type6", "", 200)
	if typ["run_log2_us"] == nil || typ["wait_log2_us"] == nil {
		t.Errorf("a single type: %v", typ)
	}
}

// TestNewViewerGetsFindings: a new viewer gets findings about conditions that have lasted for some
// time.
func TestNewViewerGetsFindings(t *testing.T) {
	t.Parallel()
	w := start(t, nil)
	w.call("POST", "/v1/jobs", `{"type":"mail","id":"a","body":1}`, 202)
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	eventually(t, "the job has waited for some time", func() bool { // this request takes no snapshot of all types
		return w.call("GET", "/v1/jobs/a", "", 200)["age_seconds"].(float64) > 6
	})
	s, _ := w.openEvents(ctx)
	var moments []api.Moment
	s.next("history", &moments)
	var look api.Look
	s.next("look", &look)
	// On a busy machine there may be further findings.
	if !slices.ContainsFunc(look.Findings.Items, func(x api.Finding) bool { return x.Cause == "no_worker" && x.Subject == "mail" }) {
		t.Errorf("found at the first look: %+v", look.Findings)
	}
}

// TestStreamDoesNotDelayStop: an open stream does not keep a broker from stopping, and is closed properly.
func TestStreamDoesNotDelayStop(t *testing.T) {
	w := start(t, nil)
	s, _ := w.openEvents(t.Context())
	stopErr := make(chan error, 1)
	go func() { stopErr <- w.srv.Shutdown(t.Context()) }()
	if _, err := io.Copy(io.Discard, s.reader); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	if err := <-stopErr; err != nil {
		t.Error(err)
	}
}
