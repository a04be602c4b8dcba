package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"gloom/cmd/internal/mariadb"
)

const (
	ioTimeout   = 15 * time.Second
	lockTimeout = "3" // how many seconds a statement waits for a locked row
	maxConns    = 2*maxRequests + 4
	// maxText limits the bytes of statements that are sent together. If the server's packets are
	// smaller, it is less.
	maxText = 1 << 20
	// packetHead is the number of bytes that a packet has in addition to the text.
	packetHead = 1 << 10
)

// mysqlDialect is the dialect of MySQL 8 and MariaDB 10.6, or later.
type mysqlDialect struct {
	config    *mysql.Config
	connector *mariadb.Connector
}

// newMySQL parses mysql://USER:PASSWORD@HOST:PORT/DATABASE. After a question mark it may have
// socket=PATH, or tls= with true, skip-verify or preferred.
func newMySQL(address *url.URL) (*mysqlDialect, error) {
	c := mysql.NewConfig()
	c.User = address.User.Username()
	c.Passwd, _ = address.User.Password()
	c.DBName = strings.Trim(address.Path, "/")
	c.Net, c.Addr = "tcp", address.Host
	for key, values := range address.Query() {
		switch key {
		case "socket":
			c.Net, c.Addr = "unix", values[0]
		case "tls":
			c.TLSConfig = values[0]
		default:
			return nil, fmt.Errorf("%q is not an option of a mysql store; the options are socket and tls", key)
		}
	}
	if c.Net == "tcp" && address.Port() == "" {
		c.Addr = address.Hostname() + ":3306"
	}
	if c.DBName == "" || c.Addr == ":3306" {
		return nil, errors.New("a mysql store needs a host and a database: mysql://USER:PASSWORD@HOST/DATABASE")
	}
	c.MaxAllowedPacket = 0 // the server's
	c.Params = map[string]string{"innodb_lock_wait_timeout": lockTimeout, "sql_mode": "'STRICT_ALL_TABLES'"}
	return &mysqlDialect{config: c}, nil
}

func (d *mysqlDialect) name() string {
	at := d.config.Addr
	return "mysql://" + at + "/" + d.config.DBName
}

// open uses READ COMMITTED, because otherwise a daemon that takes jobs of a type would block all
// daemons that add jobs of this type.
func (d *mysqlDialect) open() (write, read *sql.DB, err error) {
	if d.connector, err = mariadb.NewConnector(d.config, ioTimeout, mariadb.ServerTimeout); err != nil {
		return nil, nil, err
	}
	db := d.connector.Open(maxConns)
	return db, db, nil
}

func (*mysqlDialect) schema() []string {
	const table = ") ENGINE=InnoDB CHARSET=ascii COLLATE=ascii_bin"
	return []string{
		"CREATE TABLE IF NOT EXISTS sq_jobs (id CHAR(24) PRIMARY KEY, type VARCHAR(200) NOT NULL, dt DATETIME(3) NOT NULL," +
			" `lock` VARCHAR(24) NOT NULL DEFAULT '', tries INT NOT NULL DEFAULT 0, create_dt DATETIME(3) NOT NULL, first_dt DATETIME(3) NOT NULL," +
			" done_dt DATETIME(3), code VARCHAR(24), exitcode SMALLINT, data VARBINARY(1024), fence BIGINT NOT NULL DEFAULT 0," +
			" KEY lock_dt (`lock`, dt), KEY type_lock_dt (type, `lock`, dt)" + table,
		"CREATE TABLE IF NOT EXISTS sq_data (id CHAR(24) PRIMARY KEY, data LONGBLOB NOT NULL" + table,
		"CREATE TABLE IF NOT EXISTS sq_results (id CHAR(24) PRIMARY KEY, data MEDIUMBLOB NOT NULL, truncated TINYINT NOT NULL, bad_lines INT NOT NULL" + table,
		"CREATE TABLE IF NOT EXISTS sq_last (id CHAR(24) PRIMARY KEY, tries INT NOT NULL, dt DATETIME(3) NOT NULL, took_ms BIGINT NOT NULL," +
			" code VARCHAR(24) NOT NULL, exitcode SMALLINT NOT NULL, data VARBINARY(4096) NOT NULL, stderr VARBINARY(4096) NOT NULL" + table,
		"CREATE TABLE IF NOT EXISTS sq_runs (id CHAR(24) NOT NULL, n INT NOT NULL, worker VARCHAR(24) NOT NULL, started DATETIME(3), took_ms BIGINT NOT NULL," +
			" outcome VARCHAR(16) NOT NULL, error VARBINARY(1024) NOT NULL, PRIMARY KEY (id, n)" + table,
		"CREATE TABLE IF NOT EXISTS sq_handlers (id CHAR(24) PRIMARY KEY, type VARCHAR(200) NOT NULL, dt DATETIME(3) NOT NULL," +
			" lang VARCHAR(16) NOT NULL, data LONGBLOB NOT NULL, KEY type_dt (type, dt)" + table,
		"CREATE TABLE IF NOT EXISTS sq_counts (type VARCHAR(200) NOT NULL, slot INT NOT NULL, open BIGINT NOT NULL, running BIGINT NOT NULL, ok BIGINT NOT NULL," +
			" failed BIGINT NOT NULL, abandoned BIGINT NOT NULL, expired BIGINT NOT NULL, deleted BIGINT NOT NULL, PRIMARY KEY (type, slot), KEY open (open, type)" + table,
		"CREATE TABLE IF NOT EXISTS sq_schedules (client VARCHAR(64) NOT NULL, name VARBINARY(128) NOT NULL, wake DATETIME(3) NOT NULL, seen DATETIME(3) NOT NULL," +
			" waits VARCHAR(24) NOT NULL, from_file TINYINT NOT NULL, data LONGBLOB NOT NULL," +
			" PRIMARY KEY (client, name), KEY wake (wake), KEY seen (seen), KEY waits (waits)" + table,
		"CREATE TABLE IF NOT EXISTS sq_keys (id CHAR(24) PRIMARY KEY, type VARCHAR(200) NOT NULL, name VARBINARY(256) NOT NULL, holds TINYINT," +
			" during TINYINT NOT NULL, until DATETIME(3), UNIQUE KEY type_name (type, name, holds), KEY until (until)" + table,
		"CREATE TABLE IF NOT EXISTS sq_points (segment VARCHAR(64) PRIMARY KEY, place BIGINT NOT NULL, dt DATETIME(3) NOT NULL" + table,
		"CREATE TABLE IF NOT EXISTS sq_meta (name VARCHAR(64) PRIMARY KEY, value BIGINT NOT NULL" + table,
	}
}

func (*mysqlDialect) now(ctx context.Context, q querier) (now time.Time, err error) {
	err = queryOne(ctx, q, "SELECT UTC_TIMESTAMP(3)", nil, (*sqlTime)(&now))
	return now, err
}

func (*mysqlDialect) begin(context.Context, *sql.DB) error { return nil }
func (*mysqlDialect) scheduleTime(now time.Time) time.Time { return now }

func (*mysqlDialect) skipLocked() string  { return " FOR UPDATE SKIP LOCKED" }
func (*mysqlDialect) limitClause() string { return " LIMIT ?" }
func (*mysqlDialect) forUpdate() string   { return " FOR UPDATE" }

func (*mysqlDialect) idIndexHint() string { return " FORCE INDEX (PRIMARY)" }

func (*mysqlDialect) onConflict(string) (clause, newValue string) {
	return " ON DUPLICATE KEY UPDATE ", "VALUES(%s)"
}

// tooLarge holds the server's error numbers for data that does not fit into its packets. The error
// for a column that is too short is not among them: the columns of this schema are long enough, and
// those of another schema can be changed.
var tooLarge = []uint16{1153, 1301}

func (*mysqlDialect) kind(err error) kind {
	switch n := mariadb.Number(err); {
	case n == 0 && (mariadb.IsUnanswered(err) || errors.Is(err, sql.ErrConnDone)):
		return kindAway
	case errors.Is(err, mysql.ErrPktTooLarge), slices.Contains(tooLarge, n),
		n == 1105 && strings.Contains(err.Error(), "max_allowed_packet"): // 1105 is the number of every error that has no number of its own
		return kindTooLarge
	case n == 1062:
		return kindDuplicate
	case n == 1050 || n == 1060 || mariadb.KindOf(n) == mariadb.Conflict: // another daemon has just created the table or the column
		return kindConflict
	}
	return kindTemporary
}

func (*mysqlDialect) insertRows(rows int) int { return rows }

// exec sends statements together, if the server permits that.
func (d *mysqlDialect) exec(ctx context.Context, t *tx, list []statement) error {
	limit := min(maxText, int(d.connector.LowestMaxPacket())-packetHead)
	if d.connector.NeedsSingleStatements() {
		limit = 0
	}
	var text strings.Builder
	var args []any
	size := 0
	flush := func() error {
		if text.Len() == 0 {
			return nil
		}
		_, err := t.ExecContext(ctx, text.String(), args...)
		text.Reset()
		args, size = nil, 0
		return err
	}
	for _, s := range list {
		growth := len(s.text)
		for _, a := range s.args {
			switch v := a.(type) { // escaped
			case []byte:
				growth += 2*len(v) + len("_binary''")
			case string:
				growth += 2*len(v) + len("''")
			default:
				growth += 32
			}
		}
		if size+growth > limit {
			if err := flush(); err != nil {
				return err
			}
		}
		if text.Len() > 0 {
			text.WriteString("; ")
		}
		text.WriteString(s.text)
		args = append(args, s.args...)
		size += growth
	}
	return flush()
}
