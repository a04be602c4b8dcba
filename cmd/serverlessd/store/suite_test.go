package store_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

func TestMain(m *testing.M) { os.Exit(mariadbtest.Main(m)) }

// forEachStore runs a test on each kind of store. Each call of open opens the same store again, as
// another daemon would.
func forEachStore(t *testing.T, f func(t *testing.T, open func() Store)) {
	opener := func(t *testing.T, address string) func() Store {
		return func() Store {
			s, err := Open(address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
	}
	t.Run("sqlite", func(t *testing.T) { f(t, opener(t, "sqlite:"+filepath.Join(t.TempDir(), "a store?.db"))) })
	t.Run("mariadb", func(t *testing.T) { f(t, opener(t, address(t, mariadbtest.Shared(t)))) })
}

func address(t testing.TB, server *mariadbtest.Server) string {
	return fmt.Sprintf("mysql://root@/%s?socket=%s", server.Database(t), url.QueryEscape(server.Socket()))
}

// eachStore runs a test on one store of each kind.
func eachStore(t *testing.T, f func(t *testing.T, s Store)) {
	forEachStore(t, func(t *testing.T, open func() Store) { f(t, open()) })
}

const (
	testSysid  = "0aaaaa"
	otherSysid = "zbbbbb"
	testTTL    = time.Hour
	expiredTTL = -time.Second // the ttl of locks that expire at once
)

var ids = job.NewIDSource("0seven", time.Now)

func entry(jobtype, payload string) journal.Entry {
	return journal.Entry{ID: ids.Next(1), Jobtype: jobtype, Payload: []byte(payload), Accepted: time.Now(), End: 1}
}

var segments int

// ingest ingests jobs as if from a new segment.
func ingest(t *testing.T, s Store, jobs ...journal.Entry) {
	t.Helper()
	segments++
	if _, err := s.Ingest(t.Context(), journal.Range{Segment: fmt.Sprint("s", segments), To: 1}, jobs, time.Now); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, s Store, owner, jobtype string, n int, ttl time.Duration) []TakenJob {
	t.Helper()
	taken, err := s.Take(t.Context(), TakeRequest{Sysid: owner, Jobtype: jobtype, N: n, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func payloads(taken []TakenJob) string {
	var list []string
	for _, j := range taken {
		list = append(list, string(j.Payload))
	}
	return strings.Join(list, " ")
}

func end(t *testing.T, s Store, owner string, ends ...RunEnd) []bool {
	t.Helper()
	counted, err := s.End(t.Context(), owner, ends)
	if err != nil {
		t.Fatal(err)
	}
	return counted
}

func counts(t *testing.T, s Store, jobtype string) Counts {
	t.Helper()
	byType, err := s.Counts(t.Context(), "")
	if err == nil {
		err = s.Divide(t.Context(), byType)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := byType[jobtype]
	c.Oldest = 0
	return c
}

func get(t *testing.T, s Store, id job.ID) Record {
	t.Helper()
	r, err := s.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return *r
}

func sweep(t *testing.T, s Store, w SweepOptions) SweepResult {
	t.Helper()
	if w.Limit == 0 {
		w.Limit = 1000
	}
	swept, err := s.Sweep(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "jobs ended", len(swept.Ended), swept.Abandoned+swept.Expired)
	swept.Ended, swept.FollowJobs = nil, nil
	return swept
}

// laxSweep removes nothing.
var laxSweep = SweepOptions{RetryFor: testTTL, KeepDone: testTTL, KeepUnrun: testTTL}

func checkEqual(t *testing.T, label string, got, want any) {
	t.Helper()
	if got, want := fmt.Sprint(got), fmt.Sprint(want); got != want {
		t.Fatalf("%s: %.500s, want %.500s", label, got, want)
	}
}

func checkError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}
