package store

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"time"

	"gloom/cmd/internal/mariadb"
	"gloom/cmd/jobd/config"

	"github.com/go-sql-driver/mysql"
)

const (
	ioTimeout = 30 * time.Second
	// lockTimeout is the number of seconds that a statement waits for a locked row.
	lockTimeout = "5"
)

// newConnector returns a connector for the table of a daemon with this lease. A transaction that accepts rows
// locks the daemon's record, which every renewal of the lease changes. If one connection hangs while the others
// work, the server must free this lock long before the lease expires. If all open connections hang, the idle ones
// must be closed before a second renewal could use one of them.
func newConnector(c config.MySQL, lease time.Duration) (*mariadb.Connector, error) {
	m := mysql.NewConfig()
	m.User, m.Passwd, m.DBName = c.User, c.Password, c.Database
	m.Net, m.Addr = "tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	if c.Socket != "" {
		m.Net, m.Addr = "unix", c.Socket
	}
	m.MaxAllowedPacket = 1 << 30
	// Without strict mode, no final update fails because of its data. fitResult has already cut
	// the texts and replaced characters.
	m.Params = map[string]string{"sql_mode": "''", "innodb_lock_wait_timeout": lockTimeout}
	switch c.TLS {
	case "", "false":
	case "preferred", "skip-verify":
		m.TLSConfig = c.TLS
	case "true":
		m.TLS = &tls.Config{ServerName: c.Host, MinVersion: tls.VersionTLS12}
	default:
		return nil, fmt.Errorf("tls '%s' must be one of false, preferred, skip-verify, true", c.TLS)
	}
	link, err := mariadb.NewConnector(m, ioTimeout, max(time.Second, min(lease/2, mariadb.ServerTimeout)))
	if err != nil {
		return nil, err
	}
	link.AllowRepeatableRead = true
	return link, nil
}
