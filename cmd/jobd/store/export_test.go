package store

import (
	"database/sql"
	"fmt"
)

// What the tests see of the inside, all of which are in another package:
// package storetest imports this one.

const (
	CutMark   = cutMark
	StdoutCut = stdoutCut
)

var (
	IsNumber = isNumber
	KindOf   = kindOf
)

// PassesOver tells whether rows that are locked are passed over; Wait makes the
// store wait for them, as with servers that know no other way.
func (s *SQL) PassesOver() bool { return s.skip != "" }
func (s *SQL) Wait()            { s.skip = "" }

func (s *SQL) DB() *sql.DB                      { return s.db }
func (s *SQL) Doubtful(rows []Row, manual bool) { s.doubtful(rows, manual) }
func (s *SQL) Remember(b Batch)                 { s.remember(b) }
func (s *SQL) WaitingQuery(limit int) string {
	return fmt.Sprintf("SELECT id, target, 0 FROM jobs%s WHERE status = 'waiting' AND %s ORDER BY id LIMIT %d FOR UPDATE", s.table.force(), s.table.target, limit)
}
