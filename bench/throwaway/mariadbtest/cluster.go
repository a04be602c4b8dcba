package mariadbtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gloom/bench/throwaway"
)

// galera is the library with which MariaDB servers form a cluster.
const galera = "/usr/lib/galera/libgalera_smm.so"

// NewCluster starts the two nodes of a Galera cluster for one test, and waits until both are ready.
func NewCluster(t throwaway.TB) (first, second *Server) {
	t.Helper()
	if _, err := os.Stat(galera); err != nil {
		t.Fatalf("%v: install the Debian package galera-4 (make deps)", err)
	}
	address := freeAddress(t)
	first = New(t, append(clusterArgs(t, address, "gcomm://"), "--wsrep-new-cluster")...)
	second = New(t)
	second.Stop()
	if err := second.joinCluster(first, clusterArgs(t, freeAddress(t), "gcomm://"+address)); err != nil {
		t.Fatalf("the second node: %v", err)
	}
	return first, second
}

func clusterArgs(t throwaway.TB, listen, cluster string) []string {
	return []string{"--wsrep-on=ON", "--wsrep-provider=" + galera, "--wsrep-cluster-address=" + cluster,
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-node-address=127.0.0.1",
		"--wsrep-provider-options=gmcast.listen_addr=tcp://" + listen + ";ist.recv_addr=" + freeAddress(t) + ";gcache.size=16M"}
}

func freeAddress(t throwaway.TB) string {
	port, err := throwaway.FreePort()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// joinCluster starts the server as a node that has all data of the first node, so that nothing
// needs to be copied: neither node has databases of users.
func (s *Server) joinCluster(first *Server, args []string) error {
	history, err := first.status("wsrep_local_state_uuid")
	if err != nil {
		return err
	}
	last, err := first.status("wsrep_last_committed")
	if err != nil {
		return err
	}
	state := fmt.Sprintf("# GALERA saved state\nversion: 2.1\nuuid: %s\nseqno: %s\nsafe_to_bootstrap: 0\n", history, last)
	if err := os.WriteFile(filepath.Join(s.Dir, "data", "grastate.dat"), []byte(state), 0o600); err != nil {
		return err
	}
	s.SetArgs(args...)
	if err := s.Launch(); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ready, err := s.status("wsrep_ready")
		if ready == "ON" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wsrep_ready is %q: %v", ready, err)
		}
	}
}

// status returns a status variable of the server.
func (s *Server) status(variable string) (value string, err error) {
	db, err := s.Open("")
	if err != nil {
		return "", err
	}
	defer db.Close()
	var name string
	err = db.QueryRowContext(context.Background(), "SHOW STATUS LIKE '"+variable+"'").Scan(&name, &value)
	if err == sql.ErrNoRows {
		err = fmt.Errorf("there is no status variable %s", variable)
	}
	return value, err
}
