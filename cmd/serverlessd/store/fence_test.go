package store_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/internal/testing/proxytest"
	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

// TestRepeatedEnds: if the answer to an End was lost, the call is repeated. Whatever has happened
// to the job since, the repetition changes no later run.
func TestRepeatedEnds(t *testing.T) {
	for _, c := range []struct {
		name  string
		fate  EndAction
		since func(t *testing.T, s Store, id job.ID)
		lock  string
		tries int
	}{
		{"given back, taken", EndGiveBack, func(t *testing.T, s Store, _ job.ID) { take(t, s, testSysid, "a-x", 1, testTTL) }, testSysid, 1},
		{"given back, taken by another", EndGiveBack, func(t *testing.T, s Store, _ job.ID) { take(t, s, otherSysid, "a-x", 1, testTTL) }, otherSysid, 1},
		{"given back, taken, expired", EndGiveBack, func(t *testing.T, s Store, _ job.ID) {
			take(t, s, otherSysid, "a-x", 1, expiredTTL)
			sweep(t, s, laxSweep)
		}, "", 1},
		{"given back", EndGiveBack, func(*testing.T, Store, job.ID) {}, "", 0},
		{"archived, run again by hand, taken", EndArchive, func(t *testing.T, s Store, id job.ID) {
			if err := s.Retry(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			take(t, s, testSysid, "a-x", 1, testTTL)
		}, testSysid, 1},
		{"to wait, taken", EndRetry, func(t *testing.T, s Store, _ job.ID) { take(t, s, testSysid, "a-x", 1, testTTL) }, testSysid, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s Store) {
				if err := s.Reserve(t.Context(), testSysid, testTTL); err != nil {
					t.Fatal(err)
				}
				e := entry("a-x", "1")
				ingest(t, s, e)
				old := take(t, s, testSysid, "a-x", 1, testTTL)[0].Run
				ending := RunEnd{Run: old, Action: c.fate, Code: job.CodeOK, Status: 200}
				checkEqual(t, "first", end(t, s, testSysid, ending), "[true]")
				c.since(t, s, e.ID)
				before := counts(t, s, "a-x")
				checkEqual(t, "repeated", end(t, s, testSysid, ending), fmt.Sprintf("[%t]", c.name == "given back"))
				if _, err := s.Renew(t.Context(), testSysid, testTTL, []Run{old}); err != nil {
					t.Fatal(err)
				}
				r := get(t, s, e.ID)
				checkEqual(t, "lock, tries", []any{r.Lock, r.Tries}, []any{c.lock, c.tries})
				checkEqual(t, "counts", counts(t, s, "a-x"), before)
			})
		})
	}
}

// TestRepeatedRetryCounts: the answer to an End is lost, after which the job waits and is taken
// again. The repeated End reports that the first one was applied, and changes nothing.
func TestRepeatedRetryCounts(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ingest(t, s, entry("a-x", "1"))
		old := RunEnd{Run: take(t, s, testSysid, "a-x", 1, testTTL)[0].Run, Action: EndRetry, Code: job.CodeError, Status: 500}
		old.Last = &LastRun{At: time.Now(), Took: 7 * time.Millisecond, Code: job.CodeError, Status: 500, Data: []byte("why")}
		checkEqual(t, "first", end(t, s, testSysid, old), "[true]")
		secondRun := take(t, s, testSysid, "a-x", 1, testTTL)[0].Run
		record := func() Record {
			r := get(t, s, old.ID)
			r.Last = nil // a pointer
			return r
		}
		before := record()
		checkEqual(t, "repeated", end(t, s, testSysid, old), "[true]")
		checkEqual(t, "the job", record(), before)
		other := old
		other.Last = &LastRun{At: time.Now(), Took: 8 * time.Millisecond, Code: job.CodeError, Status: 500, Data: []byte("why")}
		checkEqual(t, "of another run", end(t, s, testSysid, other), "[false]")
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 1, Running: 1})
		checkEqual(t, "new run", end(t, s, testSysid, RunEnd{Run: secondRun, Action: EndArchive, Code: job.CodeOK, Status: 200}), "[true]")
	})
}

// commitCutter is a proxy in front of a server. Once it is armed, it cuts the connection instead of
// passing on the answer to the next COMMIT.
type commitCutter struct {
	net.Addr
	isArmed, isCut atomic.Bool
}

func newCommitCutter(t *testing.T, server string) *commitCutter {
	c := new(commitCutter)
	c.Addr = proxytest.Start(t, server, func(net.Conn) (toServer, toClient proxytest.Filter, err error) {
		var mute atomic.Bool
		return func(sent []byte) ([]byte, error) {
				if bytes.HasSuffix(sent, []byte("\x03COMMIT")) && c.isArmed.CompareAndSwap(true, false) {
					mute.Store(true)
				}
				return sent, nil
			}, func(answer []byte) ([]byte, error) {
				if mute.Load() { // the answer has arrived here, so the transaction is committed
					c.isCut.Store(true)
					return nil, io.EOF
				}
				return answer, nil
			}, nil
	})
	return c
}

// TestLostCommit: the answer to the COMMIT that gives a job back is lost. The daemon takes the job
// again, and then repeats the call. The new run keeps its lock.
func TestLostCommit(t *testing.T) {
	server := mariadbtest.Shared(t)
	proxy := newCommitCutter(t, fmt.Sprintf("127.0.0.1:%d", server.Port()))
	s := openStore(t, fmt.Sprintf("mysql://root@%s/%s", proxy, server.Database(t)))
	e := entry("a-x", "1")
	ingest(t, s, e)
	old := take(t, s, testSysid, "a-x", 1, testTTL)[0].Run
	giveBack := []RunEnd{{Run: old, Action: EndGiveBack}}
	proxy.isArmed.Store(true)
	_, err := s.End(t.Context(), testSysid, giveBack)
	checkError(t, err, ErrAway)
	checkEqual(t, "cut", proxy.isCut.Load(), true)
	checkEqual(t, "it was committed", get(t, s, e.ID).Tries, 0)
	run := take(t, s, testSysid, "a-x", 1, testTTL)[0].Run
	if counted, err := s.End(t.Context(), testSysid, giveBack); err != nil || counted[0] {
		t.Errorf("the repeated give-back counted: %v, %v", counted, err)
	}
	checkEqual(t, "what others can take", len(take(t, s, otherSysid, "a-x", 1, testTTL)), 0)
	checkEqual(t, "the new run", end(t, s, testSysid, RunEnd{Run: run, Action: EndArchive, Code: job.CodeOK, Status: 200}), "[true]")
}
