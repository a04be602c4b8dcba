package jobd

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"gloom/bench/proc"
	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/jobd/config"
)

const (
	tableName = "gloom_bench_jobs"
	database  = "gloom_bench"
	// idleTarget is the target of the backlog. No worker serves it.
	idleTarget = "resting"
)

const tableText = `CREATE TABLE ` + tableName + ` (
  id int(10) unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  target char(16) NOT NULL,
  time_created int(10) unsigned NOT NULL,
  time_started int(10) unsigned NOT NULL DEFAULT 0,
  time_finished int(10) unsigned NOT NULL DEFAULT 0,
  status enum('waiting','manual','accepted','running','done','ignored') NOT NULL DEFAULT 'waiting',
  result enum('ok','fail') DEFAULT NULL,
  return_code tinyint(3) unsigned DEFAULT NULL,
  sig char(10) DEFAULT NULL,
  stdout mediumtext DEFAULT NULL,
  stderr mediumtext DEFAULT NULL,
  KEY status_target_idx (status, target, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8`

// testDB is the database under measurement.
type testDB struct {
	ownServer *mariadbtest.Server // nil when the options name a running server
	mysql     config.MySQL
	db        *sql.DB
	pid       int // the server's process, 0 if it is not on this machine
}

func openDB(o Options) (*testDB, error) {
	b := &testDB{mysql: o.MySQL}
	if o.MySQL.User == "" {
		var err error
		if b.ownServer, err = mariadbtest.Start(mariadbtest.Options{Durable: true, Args: []string{"--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M"}}); err != nil {
			return nil, err
		}
		b.mysql = config.MySQL{Host: "127.0.0.1", Port: b.ownServer.Port(), User: "root", Database: database}
		b.pid = b.ownServer.PID()
	} else {
		b.pid, _ = proc.ListenerPID(o.MySQL.Port)
	}
	b.mysql.Table, b.mysql.FetchLimit = tableName, o.FetchLimit
	c := mysql.NewConfig()
	c.User, c.Passwd = b.mysql.User, b.mysql.Password
	c.Net, c.Addr = "tcp", net.JoinHostPort(b.mysql.Host, strconv.Itoa(b.mysql.Port))
	if b.mysql.Socket != "" {
		c.Net, c.Addr = "unix", b.mysql.Socket
	}
	c.InterpolateParams, c.MultiStatements = true, true
	if b.ownServer == nil {
		c.DBName = b.mysql.Database
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		b.close()
		return nil, err
	}
	b.db = sql.OpenDB(connector)
	if b.ownServer != nil {
		if _, err := b.db.Exec("CREATE DATABASE " + database + " CHARACTER SET utf8"); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

func (b *testDB) close() {
	if b.db != nil {
		if b.ownServer == nil {
			b.db.Exec(fmt.Sprintf("DROP TABLE IF EXISTS `%s`.%s, `%[1]s`.%[2]s_claims", b.mysql.Database, tableName))
		}
		b.db.Close()
	}
	if b.ownServer != nil {
		b.ownServer.Close()
	}
}

// session returns a connection on which the database is selected.
func (b *testDB) session(ctx context.Context) (*sql.Conn, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "USE `"+b.mysql.Database+"`"); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// fill creates an empty table and inserts the backlog.
func (b *testDB) fill(ctx context.Context, conn *sql.Conn, o Options) error {
	if _, err := conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+tableName+", "+tableName+"_claims; "+tableText); err != nil {
		return err
	}
	return b.insert(ctx, conn, o.Backlog, func(int) string { return idleTarget })
}

func (b *testDB) insert(ctx context.Context, conn *sql.Conn, rows int, target func(int) string) error {
	const step = 5000
	now := time.Now().Unix()
	for from := 0; from < rows; from += step {
		var q strings.Builder
		q.WriteString("INSERT INTO " + tableName + " (target, time_created) VALUES ")
		for i := from; i < min(rows, from+step); i++ {
			if i > from {
				q.WriteByte(',')
			}
			fmt.Fprintf(&q, "('%s',%d)", target(i), now)
		}
		if _, err := conn.ExecContext(ctx, q.String()); err != nil {
			return err
		}
	}
	return nil
}

// unfinishedRows counts the served rows that have not ended correctly.
func (b *testDB) unfinishedRows(ctx context.Context, conn *sql.Conn, answer string) (n int, err error) {
	err = conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+tableName+" WHERE target <> ? AND NOT (status = 'done' AND result = 'ok'"+
		" AND time_started > 0 AND time_finished >= time_started AND stdout = ? AND stderr = '')", idleTarget, answer).Scan(&n)
	return n, err
}

func (b *testDB) version(ctx context.Context) (version, flush string) {
	b.db.QueryRowContext(ctx, "SELECT VERSION(), @@innodb_flush_log_at_trx_commit").Scan(&version, &flush)
	return version, flush
}

func targetName(i int) string { return "t" + strconv.Itoa(i) }
