package store_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

// TestRepeatedEnds: if the answer to an End was lost, the call is repeated. Whatever has happened
// to the job since, the repetition changes no later run.
func TestRepeatedEnds(t *testing.T) {
	for _, c := range []struct {
		name  string
		fate  Fate
		since func(t *testing.T, s Store, id job.ID)
		lock  string
		tries int
	}{
		{"given back, taken", GiveBack, func(t *testing.T, s Store, _ job.ID) { take(t, s, sysid, "a-x", 1, ttl) }, sysid, 1},
		{"given back, taken by another", GiveBack, func(t *testing.T, s Store, _ job.ID) { take(t, s, other, "a-x", 1, ttl) }, other, 1},
		{"given back, taken, expired", GiveBack, func(t *testing.T, s Store, _ job.ID) {
			take(t, s, other, "a-x", 1, gone)
			sweep(t, s, lax)
		}, "", 1},
		{"given back", GiveBack, func(*testing.T, Store, job.ID) {}, "", 0},
		{"archived, run again by hand, taken", Archive, func(t *testing.T, s Store, id job.ID) {
			if err := s.Retry(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			take(t, s, sysid, "a-x", 1, ttl)
		}, sysid, 1},
		{"to wait, taken", Again, func(t *testing.T, s Store, _ job.ID) { take(t, s, sysid, "a-x", 1, ttl) }, sysid, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s Store) {
				if err := s.Reserve(t.Context(), sysid, ttl); err != nil {
					t.Fatal(err)
				}
				e := entry("a-x", "1")
				ingest(t, s, e)
				old := take(t, s, sysid, "a-x", 1, ttl)[0].Run
				ending := Ending{Run: old, Fate: c.fate, Code: job.CodeOK, Status: 200}
				equal(t, "first", end(t, s, sysid, ending), "[true]")
				c.since(t, s, e.ID)
				before := counts(t, s, "a-x")
				equal(t, "repeated", end(t, s, sysid, ending), fmt.Sprintf("[%t]", c.name == "given back"))
				if _, err := s.Renew(t.Context(), sysid, ttl, []Run{old}); err != nil {
					t.Fatal(err)
				}
				r := get(t, s, e.ID)
				equal(t, "lock, tries", []any{r.Lock, r.Tries}, []any{c.lock, c.tries})
				equal(t, "counts", counts(t, s, "a-x"), before)
			})
		})
	}
}

// cutter is a proxy before a server. Once it is armed, it cuts the connection instead of passing on
// the answer to the next COMMIT.
type cutter struct {
	net.Listener
	armed, cut atomic.Bool
}

func newCutter(t *testing.T, server string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(client, server)
		}
	}()
	return c
}

func (c *cutter) serve(client net.Conn, server string) {
	defer client.Close()
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer to.Close()
	var mute atomic.Bool
	go func() {
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := to.Read(buf)
			if err != nil || mute.Load() { // the answer has arrived here, so the transaction is committed
				c.cut.Store(c.cut.Load() || mute.Load())
				return
			}
			client.Write(buf[:n])
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.HasSuffix(buf[:n], []byte("\x03COMMIT")) && c.armed.CompareAndSwap(true, false) {
			mute.Store(true)
		}
		if _, err := to.Write(buf[:n]); err != nil && err != io.EOF {
			return
		}
	}
}

// TestLostCommit: the answer to the COMMIT that gives a job back is lost. The daemon takes the job
// again, and then repeats the call. The new run keeps its lock.
func TestLostCommit(t *testing.T) {
	server := mariadbtest.Shared(t)
	proxy := newCutter(t, fmt.Sprintf("127.0.0.1:%d", server.Port()))
	s := openStore(t, fmt.Sprintf("mysql://root@%s/%s", proxy.Addr(), server.Database(t)))
	e := entry("a-x", "1")
	ingest(t, s, e)
	old := take(t, s, sysid, "a-x", 1, ttl)[0].Run
	back := []Ending{{Run: old, Fate: GiveBack}}
	proxy.armed.Store(true)
	_, err := s.End(t.Context(), sysid, back)
	fails(t, err, ErrAway)
	equal(t, "cut", proxy.cut.Load(), true)
	equal(t, "it was committed", get(t, s, e.ID).Tries, 0)
	run := take(t, s, sysid, "a-x", 1, ttl)[0].Run
	if counted, err := s.End(t.Context(), sysid, back); err != nil || counted[0] {
		t.Errorf("the repeated give-back counted: %v, %v", counted, err)
	}
	equal(t, "what others can take", len(take(t, s, other, "a-x", 1, ttl)), 0)
	equal(t, "the new run", end(t, s, sysid, Ending{Run: run, Fate: Archive, Code: job.CodeOK, Status: 200}), "[true]")
}

// TestFenceIsAdded: a table of an earlier version, or one that has lost it, gets the column fence,
// and a daemon of the earlier version can still use the table.
func TestFenceIsAdded(t *testing.T) {
	try := func(t *testing.T, open func() Store, db *sql.DB) {
		defer db.Close()
		e := entry("a-x", "1")
		ingest(t, open(), e)
		// This is the table of the earlier version.
		if _, err := db.Exec("ALTER TABLE sq_jobs DROP COLUMN fence"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := open().Reserve(t.Context(), sysid, ttl); err != nil && err != ErrTaken {
				t.Fatal(err)
			}
		}
		equal(t, "taken", payloads(take(t, open(), sysid, "a-x", 1, ttl)), "1")
		// This is how the earlier version inserts a job.
		now := time.Now().UTC().Format("2006-01-02 15:04:05.000")
		if _, err := db.Exec("INSERT INTO sq_jobs (id, type, dt, `lock`, create_dt, first_dt, data) VALUES (?,?,?,'',?,?,?)", string(ids.Next(1)), "a-x", now, now, now, "2"); err != nil {
			t.Fatal(err)
		}
		equal(t, "taken", payloads(take(t, open(), sysid, "a-x", 1, ttl)), "2")

		// The column is dropped while a daemon runs: the call that needs it fails, and the next
		// call adds it. A give-back from before that is repeated afterwards changes nothing,
		// because the later run has another fence.
		s := open()
		ingest(t, s, entry("a-y", "3"))
		back := Ending{Run: take(t, s, other, "a-y", 1, ttl)[0].Run, Fate: GiveBack}
		equal(t, "given back", end(t, s, other, back), "[true]")
		if _, err := db.Exec("ALTER TABLE sq_jobs DROP COLUMN fence"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Take(t.Context(), Taking{Sysid: other, Jobtype: "a-y", N: 1, TTL: ttl})
		if fails(t, err, ErrUnwell); !strings.Contains(err.Error(), "fence") {
			t.Errorf("the reason: %v", err)
		}
		equal(t, "taken", payloads(take(t, s, other, "a-y", 1, ttl)), "3")
		equal(t, "repeated", end(t, s, other, back), "[false]")
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store.db")
		db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		try(t, func() Store { return openStore(t, "sqlite:"+path) }, db)
	})
	t.Run("mariadb", func(t *testing.T) {
		server := mariadbtest.Shared(t)
		name := server.Database(t)
		db, err := server.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		try(t, func() Store {
			return openStore(t, fmt.Sprintf("mysql://root@127.0.0.1:%d/%s", server.Port(), name))
		}, db)
	})
}

// TestTheTableIsCheckedWhileACallWrites: after a refusal, a call checks the table again. In a SQLite
// store it waits for the one connection that writes, and the call that has it goes on.
func TestTheTableIsCheckedWhileACallWrites(t *testing.T) {
	s, err := Open("sqlite:" + filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := entry("a-x", "1")
	ingest(t, s, e)
	if err := Exec(t.Context(), s, "DROP TABLE sq_schedules"); err != nil {
		t.Fatal(err)
	}
	checked := make(chan error, 1)
	host := func() time.Time {
		_, err := s.FileSchedules(t.Context())
		fails(t, err, ErrUnwell)
		go func() {
			_, err := s.Job(t.Context(), e.ID)
			checked <- err
		}()
		for !WaitsToWrite(s) {
			runtime.Gosched()
		}
		return time.Now()
	}
	if _, err := s.Ingest(t.Context(), journal.Range{Segment: "another", To: 1}, nil, host); err != nil {
		t.Error(err)
	}
	if err := <-checked; err != nil {
		t.Error(err)
	}
}

// TestTwoDaemonsAddTheFence: if another daemon has just added the column, a daemon that wants to
// add it goes on at once.
func TestTwoDaemonsAddTheFence(t *testing.T) {
	s, err := Open(address(t, mariadbtest.Shared(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ingest(t, s, entry("a-x", "1"))
	AlterFirst(s)
	if err := Exec(t.Context(), s, "DROP TABLE sq_schedules"); err != nil {
		t.Fatal(err)
	}
	_, err = s.FileSchedules(t.Context()) // the next call checks the table
	fails(t, err, ErrUnwell)
	if err := Exec(t.Context(), s, "/* */ ALTER TABLE sq_jobs DROP COLUMN fence"); err != nil {
		t.Fatal(err)
	}
	take(t, s, sysid, "a-x", 1, ttl)
}
