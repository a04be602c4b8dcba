package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/door"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// fullDiskQueue is a queue on a full disk that has files of jobs that were set aside.
type fullDiskQueue struct{ awayQueue }

func (fullDiskQueue) Add(context.Context, []journal.Batch) (journal.Receipt, error) {
	return journal.Receipt{}, fmt.Errorf("%w: 0 bytes are free", journal.ErrNoSpace)
}

func (fullDiskQueue) AsideFiles() ([]journal.AsideFile, error) {
	return []journal.AsideFile{
		{File: "damage-12.bad", Bytes: 7},
		{File: "gone.bad", Bytes: 20, Jobs: []journal.Entry{{ID: "gone"}}}, // another request puts it back after this list
		{File: "large.bad", Bytes: 40, Jobs: []journal.Entry{{ID: "large"}}, Accepted: time.UnixMilli(0)},
		{File: "ready.bad", Bytes: 20, Jobs: []journal.Entry{{ID: "one"}, {ID: "two"}}},
	}, nil
}

func (fullDiskQueue) PutBack(_ context.Context, file string) (int, error) {
	switch file {
	case "large.bad":
		return 0, &store.RefusedError{IDs: []job.ID{"large"}, Err: fmt.Errorf("too large")}
	case "ready.bad":
		return 2, nil
	}
	return 0, journal.ErrNoAsideFile
}

// TestJobsSetAsideArePutBack: jobs that were set aside are listed and put back over HTTP, but not
// by a page of another site, and all files only with all=true. If another request puts a file back
// at the same time, there is no error. A full disk does not count as a store that is away.
func TestJobsSetAsideArePutBack(t *testing.T) {
	d, err := door.Listen(door.Options{Addr: "127.0.0.1:0"}, zerolog.Nop(), true, ScopeNames...)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Shutdown(t.Context())
	w := New(fullDiskQueue{}, d, Options{MaxBody: 1 << 20, MaxLineBytes: 1 << 10, MaxLines: 10, MaxBodies: 2})
	for _, c := range []struct {
		method, path, origin string
		status               int
		text                 string
	}{
		{"POST", "/a/job/x", "", 507, `"journal_full"`},
		{"GET", "/aside", "", 200, `{"file":"large.bad","jobs":1,"ids":["large"],"bytes":40,"reason":"refused","accepted":"1970-01-01T00:00:00.000Z"}`},
		{"GET", "/aside", "", 200, `{"file":"damage-12.bad","jobs":0,"bytes":7,"reason":"damaged"}`},
		{"POST", "/put-back", "", 400, `"missing_field"`},
		{"POST", "/put-back?file=ready.bad&all=true", "", 400, "file=NAME"},
		{"POST", "/put-back?all=yes", "", 400, "must be true or false"},
		{"POST", "/put-back?fiel=ready.bad", "", 400, `"fiel"`},
		{"POST", "/put-back?file=ready.bad", "https://elsewhere.example", 403, `"forbidden_origin"`},
		{"GET", "/put-back?file=ready.bad", "", 405, "POST"},
		{"POST", "/put-back?file=none.bad", "", 404, `"unknown_file"`},
		{"POST", "/put-back?file=large.bad", "", 409, `"refused"`},
		{"POST", "/put-back?file=ready.bad", "", 200, `"jobs":2`},
		{"POST", "/put-back?all=true", "", 200, `{"jobs":2,"ok":false,"refused":{"large.bad":`},
	} {
		r := httptest.NewRequest(c.method, "http://"+d.Addr().String()+c.path, strings.NewReader(map[bool]string{true: "line"}[strings.HasPrefix(c.path, "/a/")]))
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		got := httptest.NewRecorder()
		w.ServeHTTP(got, r)
		if got.Code != c.status || !strings.Contains(got.Body.String(), c.text) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, got.Code, got.Body, c.status, c.text)
		}
		if c.status == http.StatusInsufficientStorage && got.Header().Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", c.path)
		}
	}
}

func (fullDiskQueue) Job(context.Context, job.ID) (*store.Record, error) {
	return nil, &journal.AsideError{Jobtype: "a-x", File: "large.bad", Cause: fmt.Errorf("too large")}
}

func (q fullDiskQueue) Payload(ctx context.Context, id job.ID, _ int) (*store.Record, []byte, error) {
	_, err := q.Job(ctx, id)
	return nil, nil, err
}

// TestSetAsideJob: a client that asks for its job that was set aside is told the job's place and
// the reason; for other clients the job is unknown.
func TestSetAsideJob(t *testing.T) {
	d, err := door.Listen(door.Options{Addr: "127.0.0.1:0"}, zerolog.Nop(), true, ScopeNames...)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Shutdown(t.Context())
	w := New(fullDiskQueue{}, d, Options{MaxBodies: 2})
	id := string(job.NewIDSource("0d0d0d", time.Now).Next(1))
	for path, text := range map[string]string{
		"GET /a/job/get/":     "set_aside",
		"GET /a/job/payload/": "set_aside",
		"DELETE /a/job/get/":  "set_aside",
		"POST /a/job/retry/":  "set_aside",
		"GET /jobs?id=":       "set_aside",
		"GET /b/job/get/":     "unknown_job",
		"GET /b/job/payload/": "unknown_job",
	} {
		method, path, _ := strings.Cut(path, " ")
		got := httptest.NewRecorder()
		w.ServeHTTP(got, httptest.NewRequest(method, "http://"+d.Addr().String()+path+id, nil))
		told := strings.Contains(got.Body.String(), "large.bad") && strings.Contains(got.Body.String(), "too large")
		if !strings.Contains(got.Body.String(), `"`+text+`"`) || told != (text == "set_aside") {
			t.Errorf("%s %s: %d %s", method, path, got.Code, got.Body)
		}
	}
}
