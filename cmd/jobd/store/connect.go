package store

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"gloom/cmd/internal/mariadb"
	"gloom/cmd/jobd/config"

	"github.com/go-sql-driver/mysql"
)

const (
	dialTimeout = 5 * time.Second
	// ioTimeout ends what a statement's own deadline cannot: a commit, to a
	// server that does not answer.
	ioTimeout = 30 * time.Second
	// lockTimeout is for how many seconds a statement waits for a row.
	lockTimeout = 5
)

// connector opens connections and sets them up the same way whatever the
// server's defaults are.
type connector struct {
	driver.Connector
	packet atomic.Int64 // max_allowed_packet, as of the newest connection
}

func newConnector(c config.MySQL) (*connector, error) {
	m := mysql.NewConfig()
	m.User, m.Passwd, m.DBName = c.User, c.Password, c.Database
	m.Net, m.Addr = "tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	if c.Socket != "" {
		m.Net, m.Addr = "unix", c.Socket
	}
	m.Timeout, m.ReadTimeout, m.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	m.InterpolateParams = true // one round trip per statement
	m.MultiStatements = true   // and one for many
	m.ClientFoundRows = true   // a row that already is what it shall be counts too
	m.MaxAllowedPacket = 1 << 30
	m.Logger = silent{}
	switch c.TLS {
	case "", "false":
	case "preferred", "skip-verify":
		m.TLSConfig = c.TLS
	case "true":
		m.TLS = &tls.Config{ServerName: c.Host, MinVersion: tls.VersionTLS12}
	default:
		return nil, fmt.Errorf("tls '%s' is none of false, preferred, skip-verify, true", c.TLS)
	}
	inner, err := mysql.NewConnector(m)
	if err != nil {
		return nil, err
	}
	return &connector{Connector: inner}, nil
}

// silent keeps the driver from writing to stderr what it also returns.
type silent struct{}

func (silent) Print(...any) {}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.setUp(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return mariadb.Once(conn), nil
}

func (c *connector) setUp(ctx context.Context, conn driver.Conn) error {
	isolation := "READ COMMITTED"
	// Where statements are replicated in place of rows, that is refused. A server may
	// begin and cease to do so at any time; a connection keeps the way it began with.
	log, err := ask(ctx, conn, "SELECT @@log_bin AND @@binlog_format = 'STATEMENT'")
	if err != nil && kindOf(err) != mariadb.Refused { // refused: it knows no such thing
		return err
	}
	if log == "1" {
		isolation = "REPEATABLE READ"
	}
	// Without strict mode no final update fails over its data; what is written
	// has been cut and replaced before.
	statements := fmt.Sprintf("SET SESSION sql_mode = '', innodb_lock_wait_timeout = %d, autocommit = 1; "+
		"SET SESSION TRANSACTION ISOLATION LEVEL %s", lockTimeout, isolation)
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, statements, nil); err != nil {
		return err
	}
	value, err := ask(ctx, conn, "SELECT @@max_allowed_packet")
	if err != nil {
		return err
	}
	packet, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	c.packet.Store(packet)
	return nil
}

// ask returns the one value that a query has.
func ask(ctx context.Context, conn driver.Conn, query string) (string, error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	value := make([]driver.Value, 1)
	if err := rows.Next(value); err != nil {
		return "", err
	}
	return fmt.Sprint(text(value[0])), nil
}

func text(value driver.Value) any {
	if b, ok := value.([]byte); ok {
		return string(b)
	}
	return value
}
