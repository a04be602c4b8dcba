package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// kind is what to do about an error.
type kind int

const (
	refused  kind = iota // the statement is at fault: repeating it is in vain
	conflict             // another transaction was in the way: repeat it soon
	away                 // the server is: repeat it later
)

// The server's error numbers that are not the statement's fault.
var (
	conflicts = []uint16{
		1205, // lock wait timeout
		1213, // deadlock
		1020, // record has changed since last read (snapshot isolation)
		1180, // error during commit (cluster conflict)
	}
	absences = []uint16{
		1021, 1026, 1030, 1114, // disk full, error writing file, error from engine, table is full
		1037, 1038, 1041, // out of memory
		1040, 1203, 1226, // too many connections
		1042, 1043, 1152, 1156, 1158, 1159, 1160, 1161, 1184, // network
		1044, 1045, 1142, 1143, 1227, 1698, // rights that somebody is changing
		1047,             // cluster node not ready
		1049, 1051, 1146, // database or table is missing, as during a restore
		1053, 1077, 1079, // shutdown in progress
		1129, 1130, // host is blocked
		1192, 1223, // locked tables
		1194, 1195, 1034, // table crashed
		1290, 1792, 1836, 3100, 3101, // read-only; hooks
		1317, 1927, 3024, 1969, // interrupted, connection killed, statement timeout
		4031, // disconnected for inactivity
	}
)

func kindOf(err error) kind {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return away // no answer of the server: the connection, or our own timeout
	}
	switch {
	case slices.Contains(conflicts, server.Number):
		return conflict
	case slices.Contains(absences, server.Number):
		return away
	}
	return refused
}

// unreachable tells of a server that does not answer, or has no room or time. At
// the start its other refusals, as of a password or a table, are mistakes.
func unreachable(err error) bool {
	var server *mysql.MySQLError
	var network net.Error
	if errors.As(err, &server) {
		return kindOf(err) == away && !slices.Contains(mistakes, server.Number)
	}
	return errors.As(err, &network) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// mistakes are absences that are the configuration's fault in all likelihood.
var mistakes = []uint16{1044, 1045, 1142, 1143, 1227, 1698, 1049, 1051, 1146, 1130}

func isNumber(err error, numbers ...uint16) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && slices.Contains(numbers, server.Number)
}
