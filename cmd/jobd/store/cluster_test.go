package store_test

import (
	"testing"

	"gloom/bench/throwaway/mariadbtest"
)

// TestClusterShowsCommitsOfOtherNodes: a row is committed on one node of a Galera cluster, and a
// daemon on another node is polled. The daemon sees the row, even if its node is still busy with an
// earlier commit.
func TestClusterShowsCommitsOfOtherNodes(t *testing.T) {
	first, second := mariadbtest.NewCluster(t)
	table := newTableOn(t, first)
	table.exec(t, "CREATE TABLE other (id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(200))")
	opt := table.options("d")
	opt.MySQL.Port = second.Port()
	s := register(t, table.openWith(t, opt))
	for id := int64(1); id <= 3; id++ {
		table.exec(t, "INSERT INTO other (text) SELECT REPEAT('x', 100) FROM seq_1_to_50000")
		table.exec(t, "INSERT INTO jobs (id, target) VALUES (?, 'a')", id)
		if p := accept(t, s, 1, "a"); len(p.Rows) != 1 || p.Rows[0].ID != id {
			t.Errorf("row %d was committed on the other node, and a poll has found %+v", id, p.Rows)
		}
	}
}
