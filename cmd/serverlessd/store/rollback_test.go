package store_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

// TestRefusedRollback: a server may refuse even the rollback of a transaction, as it does when an
// account has used up its queries. Then the next transaction must not commit half of that
// transaction.
func TestRefusedRollback(t *testing.T) {
	server := mariadbtest.Shared(t)
	name := server.Database(t)
	at := func(user string) Store {
		return openStore(t, fmt.Sprintf("mysql://%s@/%s?socket=%s", user, name, url.QueryEscape(server.Socket())))
	}
	limit := func(queries int) {
		server.Exec(t, name, fmt.Sprintf("ALTER USER limited@localhost WITH MAX_QUERIES_PER_HOUR %d", queries))
		server.Exec(t, name, "FLUSH PRIVILEGES") // the limit then applies to existing connections, too
	}
	server.Exec(t, name, "CREATE USER limited@localhost WITH MAX_QUERIES_PER_HOUR 1000000")
	t.Cleanup(func() { server.Exec(t, name, "DROP USER limited@localhost") })
	server.Exec(t, name, "GRANT ALL ON "+name+".* TO limited@localhost")
	s, root := at("limited"), at("root")
	ingest(t, s, entry("a-first", "1"))
	for queries := 1; ; queries++ {
		limit(queries)
		jobtype := fmt.Sprint("a-", queries)
		jobs := []journal.Entry{entry(jobtype, "1"), entry(jobtype, "2")}
		put := func() error {
			_, err := s.Ingest(t.Context(), journal.Range{Segment: jobtype, To: 1}, jobs, time.Now)
			return err
		}
		err := put()
		within := err == nil
		limit(1000000)
		for tries := 0; err != nil; tries++ {
			if !errors.Is(err, ErrAway) || tries == 5 {
				t.Fatalf("after %d queries: %v", queries, err)
			}
			err = put()
		}
		if c := counts(t, root, jobtype); c.Waiting != 2 {
			t.Errorf("2 jobs were added, refused after %d queries, and the store counts %+v", queries, c)
		}
		if within {
			if queries < 5 {
				t.Errorf("only %d queries were refused", queries)
			}
			return
		}
	}
}
