package store_test

import (
	"context"
	"database/sql"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/cmd/internal/testing/proxytest"
	. "gloom/cmd/jobd/store"
)

// TestLargeOutputOnSlowPath: an output for which the path needs longer than a small transaction may take is
// written.
func TestLargeOutputOnSlowPath(t *testing.T) {
	const size, rate, timeout = 8 << 20, 2 << 20, 2 * time.Second
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	opt := table.options("d")
	opt.MySQL.Port = proxytest.Start(t, table.server.Addr(), func(net.Conn) (toServer, toClient proxytest.Filter, err error) {
		return func(sent []byte) ([]byte, error) {
			<-time.After(time.Duration(len(sent)) * time.Second / rate)
			return sent, nil
		}, nil, nil
	}).Port
	s := table.openWith(t, opt)
	register(t, s)
	accept(t, s, 5, "a")
	write(t, s, Batch{StartRows: []int64{1}})
	s.LimitCalls(timeout)
	if _, err := s.Write(t.Context(), Batch{FinishRows: []Result{{ID: 1, OK: true, Stdout: strings.Repeat("y", size)}}}); err != nil {
		t.Fatal(err)
	}
	if r := table.read(t, 1); r.Status != Done || len(*r.Stdout) != size {
		t.Fatalf("%s", r.Status)
	}
}

// TestLockedTableHoldsUpWriteForItsLimit: while another session has locked the table, a write takes about as
// long as a transaction may, although the table's shape, which is due to be read, cannot be read either.
func TestLockedTableHoldsUpWriteForItsLimit(t *testing.T) {
	const timeout = 2 * time.Second
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	s := table.openWith(t, table.options("d"))
	register(t, s)
	accept(t, s, 5, "a")
	s.LimitCalls(timeout)
	lockJobs(t, table)
	time.Sleep(ShapePeriod)
	begin := time.Now()
	if _, err := s.Write(t.Context(), Batch{StartRows: []int64{1}}); !IsAway(err) {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 3*(timeout+ShapePeriod) {
		t.Errorf("the write took %v", took)
	}
}

// TestLockedTableKeepsNoLease: while another session has locked the table, a daemon that stops gives its lease
// up, for which it needs the companion table only.
func TestLockedTableKeepsNoLease(t *testing.T) {
	table := newSQLTable(t)
	s := table.openWith(t, table.options("d"))
	register(t, s)
	lockJobs(t, table)
	time.Sleep(ShapePeriod)
	ctx, cancel := context.WithTimeout(t.Context(), ShapePeriod)
	defer cancel()
	if err := s.Leave(ctx); err != nil {
		t.Error(err)
	}
}

// TestHungAcceptLosesNoLease: if the connection of an accept hangs while the others work, the daemon can renew
// its lease in time. Otherwise its jobs would be killed and would run again.
func TestHungAcceptLosesNoLease(t *testing.T) {
	const lease = 6 * time.Second
	table := newSQLTable(t)
	insertRows(t, table, Waiting, "a")
	hangs := make(chan struct{})
	opt := table.options("d")
	opt.Lease = lease
	opt.MySQL.Port = proxytest.Start(t, table.server.Addr(), func(net.Conn) (toServer, toClient proxytest.Filter, err error) {
		return func(sent []byte) ([]byte, error) {
			if strings.Contains(string(sent), "REPLACE") { // our record is locked
				close(hangs)
				<-t.Context().Done()
			}
			return sent, nil
		}, nil, nil
	}).Port
	s := table.openWith(t, opt)
	register(t, s)
	begin := time.Now()
	go s.Accept(t.Context(), wantRows("a"), 5)
	<-hangs
	ctx, cancel := context.WithTimeout(t.Context(), 4*lease)
	defer cancel()
	for s.Renew(ctx) != nil && ctx.Err() == nil {
	}
	if took := time.Since(begin); took > lease {
		t.Errorf("the lease of %v was renewed after %v", lease, took)
	}
}

// TestLostConnectionsLoseNoLease: if all open connections hang, as after a firewall has lost its state, and new
// ones work, the daemon can renew its lease in time: the next renewal does not use another lost connection.
func TestLostConnectionsLoseNoLease(t *testing.T) {
	const lease = 6 * time.Second
	table := newSQLTable(t)
	var lost atomic.Bool
	opt := table.options("d")
	opt.Lease = lease
	opt.MySQL.Port = proxytest.Start(t, table.server.Addr(), func(net.Conn) (toServer, toClient proxytest.Filter, err error) {
		isNew := lost.Load()
		return func(sent []byte) ([]byte, error) {
			if lost.Load() && !isNew {
				<-t.Context().Done()
			}
			return sent, nil
		}, nil, nil
	}).Port
	s := table.openWith(t, opt)
	register(t, s)
	var conns []*sql.Conn
	for range 4 {
		conn, err := s.DB().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Close()
	}
	lost.Store(true)
	begin := time.Now()
	for renewed := false; !renewed; {
		ctx, cancel := context.WithTimeout(t.Context(), lease/2)
		renewed = s.Renew(ctx) == nil
		cancel()
	}
	if took := time.Since(begin); took > lease {
		t.Errorf("the lease of %v was renewed after %v", lease, took)
	}
}

// lockJobs locks the table of jobs in a session of its own until the test ends.
func lockJobs(t *testing.T, table *sqlTable) {
	t.Helper()
	conn, err := table.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.ExecContext(context.Background(), "UNLOCK TABLES")
		conn.Close()
	})
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES jobs WRITE"); err != nil {
		t.Fatal(err)
	}
}
