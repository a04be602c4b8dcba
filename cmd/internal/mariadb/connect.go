package mariadb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	dialTimeout = 5 * time.Second // bounds the time to connect
	// ServerTimeout is the longest time that a server should wait for the next statement of a connection. A
	// client's host may be lost during a transaction, and no packet tells the server. Until the server
	// ends the connection, nobody else gets the rows that the transaction has locked.
	ServerTimeout = 15 * time.Second
)

// Connector opens connections with the same settings whatever the server's defaults are: several
// statements can be sent in one round trip, texts are utf8mb4, a SELECT returns all rows, transactions
// are READ COMMITTED, a statement outside a transaction is committed at once, also after the COMMIT of a
// transaction, a row that already has the wanted values counts as affected, locks of a client that
// has been silent for a while are freed, and a read on a node of a cluster sees what was committed
// on other nodes before.
type Connector struct {
	driver.Connector
	serverTimeout time.Duration
	// AllowRepeatableRead lets a connection use REPEATABLE READ if the server replicates
	// statements and not rows: such a server refuses writes under READ COMMITTED.
	AllowRepeatableRead bool
	maxPacket           atomic.Int64
	lowestMaxPacket     atomic.Int64
	isCluster           atomic.Bool
}

// NewConnector returns a connector for the server that c describes. Timeout ends an operation
// that a statement's own deadline cannot end: a commit to a server that does not answer. The server
// waits serverTimeout, in whole seconds, for the next statement of a connection.
func NewConnector(c *mysql.Config, timeout, serverTimeout time.Duration) (*Connector, error) {
	c.Timeout, c.ReadTimeout = dialTimeout, timeout // no WriteTimeout: it would limit the size of a statement on a slow path
	c.InterpolateParams, c.MultiStatements, c.ClientFoundRows = true, true, true
	c.Logger = discardLogger{}
	// A server with --skip-character-set-client-handshake, or with another charset in init_connect,
	// ignores the charset that a client names when it connects.
	if err := c.Apply(mysql.Charset("utf8mb4", "utf8mb4_general_ci")); err != nil {
		return nil, err
	}
	if c.Params == nil {
		c.Params = make(map[string]string)
	}
	c.Params["wait_timeout"] = strconv.Itoa(int(serverTimeout / time.Second))
	c.Params["autocommit"], c.Params["completion_type"] = "1", "0"
	c.Params["sql_select_limit"], c.Params["sql_big_selects"] = "18446744073709551615", "1"
	inner, err := mysql.NewConnector(c)
	return &Connector{Connector: inner, serverTimeout: serverTimeout}, err
}

// discardLogger keeps the driver from writing to stderr the errors that it also returns.
type discardLogger struct{}

func (discardLogger) Print(...any) {}

// MaxPacket returns the server's max_allowed_packet in bytes, as of the newest connection; 0 before
// the first.
func (c *Connector) MaxPacket() int64 { return c.maxPacket.Load() }

// LowestMaxPacket returns the smallest max_allowed_packet that a connection ever had, 0 before the
// first. A connection keeps the value that it began with, so a packet that must fit into every
// connection may not be larger.
func (c *Connector) LowestMaxPacket() int64 { return c.lowestMaxPacket.Load() }

// NeedsSingleStatements reports whether each statement of a transaction must be sent alone, because
// a server of a Galera cluster was met. Such a server may undo a transaction in favour of another
// node's. If it does so between two statements that came together, it executes the second statement
// outside the transaction and reports success.
func (c *Connector) NeedsSingleStatements() bool { return c.isCluster.Load() }

// Open returns a pool with a limit on its connections.
func (c *Connector) Open(connections int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(c.serverTimeout * 2 / 3) // before the server ends it
	return db
}

// Connect implements driver.Connector.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.setUp(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return CloseUnlessReusable(conn), nil
}

func (c *Connector) setUp(ctx context.Context, conn driver.Conn) error {
	isolation := "READ COMMITTED"
	if c.AllowRepeatableRead {
		// A server may change this at any time; a connection keeps the setting that it
		// began with.
		statementBased, err := readSetting(ctx, conn, "@@log_bin AND @@binlog_format = 'STATEMENT'")
		if err != nil {
			return err
		}
		if statementBased == "1" {
			isolation = "REPEATABLE READ"
		}
	}
	cluster, err := readSetting(ctx, conn, "@@wsrep_on = 1")
	if err != nil {
		return err
	}
	if cluster == "1" {
		c.isCluster.Store(true)
		// A node must first have what other nodes committed before: a client may have committed a row on
		// one of them before it pokes the daemon.
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, "SET SESSION wsrep_sync_wait = 1", nil); err != nil {
			return err
		}
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL "+isolation, nil); err != nil {
		return err
	}
	packet, err := queryText(ctx, conn, "SELECT CONCAT(@@max_allowed_packet)")
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(packet, 10, 64)
	if err != nil {
		return fmt.Errorf("max_allowed_packet: %w", err)
	}
	c.maxPacket.Store(n)
	for old := c.lowestMaxPacket.Load(); (old == 0 || n < old) && !c.lowestMaxPacket.CompareAndSwap(old, n); old = c.lowestMaxPacket.Load() {
	}
	return nil
}

// readSetting returns the value of an expression with settings, or "" if the server lacks one of
// them.
func readSetting(ctx context.Context, conn driver.Conn, expression string) (string, error) {
	value, err := queryText(ctx, conn, "SELECT CONCAT("+expression+")")
	if n := Number(err); n != 0 && KindOf(n) == Refused {
		return "", nil
	}
	return value, err
}

// queryText returns the result of a query that has a single text.
func queryText(ctx context.Context, conn driver.Conn, query string) (string, error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	value := make([]driver.Value, 1)
	if err := rows.Next(value); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s", value[0]), nil
}
