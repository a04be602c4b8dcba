package store

import (
	"slices"

	"gloom/cmd/internal/mariadb"
)

// kindOf takes what is no answer of the server for its absence: it was the
// connection, or our own timeout.
func kindOf(err error) mariadb.Kind {
	if n := mariadb.Number(err); n != 0 {
		return mariadb.KindOf(n)
	}
	return mariadb.Away
}

// unreachable tells of a server that does not answer, or has no room or time. At
// the start its other refusals, as of a password or a table, are mistakes.
func unreachable(err error) bool {
	if n := mariadb.Number(err); n != 0 {
		return mariadb.KindOf(n) == mariadb.Away && !slices.Contains(mistakes, n)
	}
	return mariadb.Unanswered(err)
}

// mistakes are absences that are the configuration's fault in all likelihood.
var mistakes = []uint16{1044, 1045, 1142, 1143, 1227, 1698, 1049, 1051, 1146, 1130}

func isNumber(err error, numbers ...uint16) bool {
	return slices.Contains(numbers, mariadb.Number(err))
}
