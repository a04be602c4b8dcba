package store

import (
	"errors"
	"slices"

	"gloom/cmd/internal/mariadb"
)

// kindOf returns the kind of an error. An error that does not come from the server counts as away:
// either the connection failed, or our own timeout passed.
func kindOf(err error) mariadb.Kind {
	if n := mariadb.Number(err); n != 0 {
		return mariadb.KindOf(n)
	}
	if err == errAltered {
		return mariadb.Conflict
	}
	return mariadb.Away
}

// errAltered means that the transaction must be repeated, because outputs did not fit the columns, which
// have been altered. Writing the rows twice in one transaction would run the user's triggers twice.
var errAltered = errors.New("the columns for outputs have been altered")

// errNotDeleted counts as away, as the error of an interrupted statement does.
var errNotDeleted = errors.New("the server has interrupted a DELETE without an error")

// isUnreachable reports whether a server does not answer, is overloaded, or has locked the table for
// another session. When the daemon starts, other errors, such as a wrong password or a missing table,
// count as mistakes in the configuration.
func isUnreachable(err error) bool {
	if n := mariadb.Number(err); n != 0 {
		return mariadb.KindOf(n) != mariadb.Refused && !slices.Contains(setupErrors, n)
	}
	return mariadb.IsUnanswered(err)
}

// setupErrors are errors that count as away while the daemon runs, but very likely come from the
// configuration when it starts.
var setupErrors = []uint16{1044, 1045, 1142, 1143, 1227, 1698, 1049, 1051, 1146, 1130, 1820, 1862, 3118, 3159, 3955, 4150, 4151}

// isRowError reports whether an error concerns the data of one row: its size, its characters, or the
// user's trigger or CHECK.
func isRowError(err error) bool { return hasNumber(err, dataErrors...) }

var dataErrors = []uint16{
	1118, 1139, 1406, 1713, // row, column or undo record too large
	1153, 1197, 1301, // packet, or transaction in the statement log, too large
	1264, 1265, 1292, // out of range, truncated, incorrect value
	1300, 1366, 1267, 3854, // characters that the charset lacks, collations
	1644, 3819, 4025, // a trigger or CHECK of the user, for whatever reason
	3140, // a JSON column
}

func hasNumber(err error, numbers ...uint16) bool {
	return slices.Contains(numbers, mariadb.Number(err))
}
