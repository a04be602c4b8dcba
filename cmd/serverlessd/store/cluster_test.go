package store_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

// TestClusterUndoes: a Galera cluster undoes a transaction whenever one of another node, or a change
// of a table, is in its way. A part of the transaction never stays, however its statements are sent.
func TestClusterUndoes(t *testing.T) {
	const provider = "/usr/lib/galera/libgalera_smm.so"
	if _, err := os.Stat(provider); err != nil {
		t.Fatalf("%v: install the Debian package galera-4 (make deps)", err)
	}
	server := mariadbtest.New(t, "--wsrep-on=ON", "--wsrep-provider="+provider, "--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster",
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-node-address=127.0.0.1",
		"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0;gcache.size=16M")
	at := address(t, server)
	open := func() Store {
		s, err := Open(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	ingest(t, s) // makes the tables
	database := strings.TrimPrefix(strings.SplitN(at, "?", 2)[0], "mysql://root@/")

	// ingested counts the pieces; changes of the tables are frequent, but leave room for transactions.
	const perPiece = 4
	var ingested atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			server.Exec(t, database, fmt.Sprintf("ALTER TABLE %s COMMENT '%d'", []string{"sq_jobs", "sq_data"}[n%2], n))
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		}
	})
	for n := range 4 {
		all.Go(func() {
			ids := job.NewIDSource(fmt.Sprintf("0seve%d", n), time.Now)
			for i := 0; ctx.Err() == nil; i++ {
				var list []journal.Entry
				for range perPiece {
					list = append(list, journal.Entry{ID: ids.Next(1), Jobtype: "a-b", Payload: bytes.Repeat([]byte("x"), 2000), Accepted: time.Now(), End: 1})
				}
				var err error
				for range 100 {
					if _, err = s.Ingest(t.Context(), journal.Range{Segment: fmt.Sprintf("c%d-%d", n, i), To: 1}, list, time.Now); err == nil {
						break
					}
				}
				if err != nil {
					t.Errorf("a piece is never ingested: %v", err)
					return
				}
				ingested.Add(perPiece)
			}
		})
	}
	all.Wait()
	want := ingested.Load()
	if c := counts(t, s, "a-b"); c.Waiting != want {
		t.Errorf("%d jobs are counted, %d were ingested", c.Waiting, want)
	}
	if got := len(take(t, s, testSysid, "a-b", int(want)+1, testTTL)); got != int(want) {
		t.Errorf("%d jobs are there, %d were ingested", got, want)
	}
}
