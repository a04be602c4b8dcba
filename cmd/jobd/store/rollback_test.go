package store_test

import (
	"fmt"
	"testing"

	"gloom/bench/throwaway/mariadbtest"
)

// TestRefusedRollback: once an account has used up its queries, the server refuses even a rollback.
// Half of the transaction must not be committed with the next transaction.
func TestRefusedRollback(t *testing.T) {
	server := mariadbtest.New(t)
	table := newTableOn(t, server)
	limit := func(queries int) {
		server.Exec(t, "", fmt.Sprintf("ALTER USER limited WITH MAX_QUERIES_PER_HOUR %d", queries))
		server.Exec(t, "", "FLUSH PRIVILEGES") // so that it applies to existing connections, too
	}
	server.Exec(t, "", "CREATE USER limited WITH MAX_QUERIES_PER_HOUR 1000000")
	server.Exec(t, "", "GRANT ALL ON "+table.name+".* TO limited")
	opt := table.options("d")
	opt.MySQL.User = "limited"
	s := register(t, table.openWith(t, opt))
	for queries := 1; ; queries++ {
		id := int64(queries)
		table.exec(t, "INSERT INTO jobs (id, target) VALUES (?, 'a')", id)
		limit(queries)
		p, err := s.Accept(t.Context(), wantRows("a"), 1)
		within := err == nil && len(p.Rows) > 0
		limit(1000000)
		if !within {
			p = accept(t, s, 1, "a")
		}
		if len(p.Rows) != 1 || p.Rows[0].ID != id {
			t.Fatalf("row %d, refused after %d queries: %v, then %+v; it is %s", id, queries, err, p, table.read(t, id).Status)
		}
		if within {
			if queries < 4 {
				t.Errorf("only %d queries were refused", queries)
			}
			return
		}
	}
}
