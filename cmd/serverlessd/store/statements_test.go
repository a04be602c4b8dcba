package store

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
)

// TestStatementRunsAgainWhileRead: a statement can be run again while its rows are being read, and
// there can be more statements than are kept.
func TestStatementRunsAgainWhileRead(t *testing.T) {
	db := sql.OpenDB(&statementDriver{name: "file:/keep?vfs=memdb"})
	defer db.Close()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "CREATE TABLE n (n INT)"); err != nil {
		t.Fatal(err)
	}
	insert := func(texts int) {
		for i := range texts {
			if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO n SELECT %d %% 3", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	insert(3)
	const text = "SELECT DISTINCT n FROM n WHERE n >= ? ORDER BY n"
	var got []int
	read := func(from int, afterRow func(n int)) {
		err := eachRow(t.Context(), conn, text, []any{from}, func(r *sql.Rows) error {
			var n int
			err := r.Scan(&n)
			afterRow(n)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		read(0, func(n int) { read(n, func(m int) { got = append(got, 10*n+m) }) })
		insert(2 * maxKept)
	}
	if want := []int{0, 1, 2, 11, 12, 22, 0, 1, 2, 11, 12, 22}; !slices.Equal(got, want) {
		t.Errorf("nested reads brought %v, want %v", got, want)
	}
}
