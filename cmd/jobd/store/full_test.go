package store_test

import (
	"strings"
	"testing"

	"gloom/bench/throwaway/mariadbtest"
	. "gloom/cmd/jobd/store"
)

// TestFullDisk uses a server whose tablespace may not grow, until it is restarted with
// more room.
func TestFullDisk(t *testing.T) {
	const size = 700_000
	room := func(limit string) []string {
		return []string{"--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:" + limit, "--innodb-flush-log-at-trx-commit=1"}
	}
	server := mariadbtest.New(t, room("28M")...)
	table := newTableOn(t, server)
	insertRows(t, table, Waiting, "a", "a")
	s := table.open(t, "d", longLease)
	accept(t, s, 5, "a")
	write(t, s, Batch{StartRows: []int64{1, 2}})
	table.exec(t, "CREATE TABLE ballast (id INT AUTO_INCREMENT PRIMARY KEY, x LONGBLOB) ENGINE=InnoDB")
	var err error
	for bytes := 1 << 20; bytes >= 1<<17; {
		if _, err = table.db.Exec("INSERT INTO ballast (x) VALUES (?)", strings.Repeat("x", bytes)); err != nil {
			bytes /= 2
		}
	}
	if !IsNumber(err, 1114) {
		t.Fatalf("the tablespace is not full: %v", err)
	}
	b := Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: strings.Repeat("y", size)}}}
	if _, err := s.Write(t.Context(), b); !IsAway(err) {
		t.Fatalf("on a full disk: %v", err)
	}
	checkEqual(t, "statuses", formatStatuses(t, table, 2), "running running")
	server.Stop()
	server.SetArgs(room("200M")...)
	if err := server.Launch(); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "lost", write(t, s, b).LostRows, "map[]")
	if r := table.read(t, 1); r.Status != Done || len(*r.Stdout) != size {
		t.Fatalf("%s", r.Status)
	}
}
