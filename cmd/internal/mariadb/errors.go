// Package mariadb classifies the errors of a MariaDB or MySQL server by what to do
// about them.
package mariadb

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// Kind says what to do about an error number.
type Kind int

const (
	Refused  Kind = iota // the statement is at fault, and repeating it is useless
	Conflict             // another transaction was in the way, and the statement should be repeated soon
	Away                 // the server is at fault, and the statement should be repeated later
)

// These are the server's numbers of errors that are not the statement's fault.
var (
	conflictNumbers = []uint16{
		1205, // lock wait timeout
		1213, // deadlock
		1020, // record has changed since last read (snapshot isolation)
		1412, // table definition has changed since the snapshot
		1180, // error during commit (cluster conflict)
	}
	awayNumbers = []uint16{
		1021, 1026, 1030, 1114, // disk full, error writing file, error from engine, table is full
		1037, 1038, 1041, 1135, // out of memory, no thread
		1040, 1203, 1226, // too many connections
		1206, 1637, // no room for locks, too many transactions
		1042, 1043, 1152, 1156, 1158, 1159, 1160, 1161, 1184, // network
		1044, 1045, 1142, 1143, 1227, 1698, // privileges that are being changed
		1820, 1862, 3118, 3159, 3955, 4150, 4151, // password has expired, account is locked, TLS is required
		1047,             // cluster node not ready
		1049, 1051, 1146, // database or table is missing, as during a restore
		1053, 1077, 1079, // shutdown in progress
		1129, 1130, // host is blocked
		1192, 1223, // locked tables
		1194, 1195, 1034, // table crashed
		1290, 1792, 1836, 3100, 3101, // read-only; hooks
		1317, 1927, 3024, 1969, 3169, // interrupted, connection killed, statement timeout
		3032, 3168, // offline mode, server is not available
		4031, // disconnected for inactivity
	}
)

// Number returns the server's number of an error, 0 if the server has not answered.
func Number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// KindOf classifies a server's error number.
func KindOf(number uint16) Kind {
	switch {
	case slices.Contains(conflictNumbers, number):
		return Conflict
	case slices.Contains(awayNumbers, number), isProxyError(number):
		return Away
	}
	return Refused
}

// isProxyError reports whether this number comes from a proxy in front of the server: it is that of
// a client that has lost its server, or one of ProxySQL's own. In neither case is it known whether
// the server has executed the statement.
func isProxyError(number uint16) bool {
	return number >= 2000 && number < 3000 || number >= 9000 && number < 10000
}

// IsUnanswered reports whether an error came instead of a server's answer.
func IsUnanswered(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}
