package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gloom/cmd/internal/failpoint"
	"gloom/cmd/internal/mariadb"
	"gloom/cmd/internal/process"
)

// The companion table has three kinds of records. A claim has the id of its row and the name of its
// owner. The record of an incarnation has the negated token as its id, and owner, place, beat and
// lease; a NULL lease says that it is being settled. Leases are set and compared by the database's
// clock alone. The record tableNumberID has the table's number as its token: if that record is
// gone, an incarnation knows that its own records were lost and that no settlement removed them.
const createClaims = `CREATE TABLE IF NOT EXISTS %s (
  id BIGINT NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL,
  by_hand TINYINT NOT NULL DEFAULT 0,
  owner VARCHAR(255) NOT NULL DEFAULT '',
  place VARCHAR(255) NOT NULL DEFAULT '',
  beat BIGINT NOT NULL DEFAULT 0,
  lease DATETIME(3) NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COMMENT='rows that jobd daemons have accepted'`

// tableNumberID is neither the id of a row nor that of an incarnation: ids of rows are at least 0, and
// tokens at most 1<<62.
const tableNumberID int64 = math.MinInt64

// claimableID is the SQL condition that a row's id can be the id of a claim. Rows with other ids are
// never accepted: a claim with a negative id would count as an incarnation.
const claimableID = "id BETWEEN 0 AND 9223372036854775807"

// makeClaims creates the companion table if it does not exist.
func (s *SQL) makeClaims(ctx context.Context) error {
	err := s.tryClaims(ctx)
	if hasNumber(err, 1146, 1142) { // the table does not exist, or this user may not use it
		if _, err = s.db.ExecContext(ctx, fmt.Sprintf(createClaims, s.table().claims)); err == nil {
			err = s.tryClaims(ctx)
		}
	}
	switch {
	case err == nil:
		s.hasClaimsTable = true
	case hasNumber(err, 1044, 1045, 1142, 1143, 1227): // a server that is read-only is not among these, because it may become writable
		s.options.Log.Warn().Err(err).Str("table", s.table().claims).
			Msg("the companion table cannot be used: after a crash, accepted and running rows will be left as they are")
	case hasNumber(err, 1054):
		return fmt.Errorf("%s is not a companion table: %w", s.table().claims, err)
	default:
		return err
	}
	return nil
}

// tryClaims tries every kind of statement on the companion table, and rolls them back.
func (s *SQL) tryClaims(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	id := -rand.Int64N(1<<62) - 1
	for _, query := range []string{
		"INSERT INTO %[1]s (id, token, by_hand, owner, place, beat, lease) VALUES (%[2]d, 0, 0, '', '', 0, NULL)",
		"UPDATE %[1]s SET beat = beat + 1 WHERE id = %[2]d",
		"DELETE FROM %[1]s WHERE id = %[2]d",
	} {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(query, s.table().claims, id)); err != nil {
			return err
		}
	}
	_, err = queryIDs(ctx, tx, fmt.Sprintf("SELECT id FROM %s WHERE id = %d FOR UPDATE", s.table().claims, tableNumberID))
	return err
}

// Register begins a new incarnation.
func (s *SQL) Register(ctx context.Context) error {
	token := rand.Int64N(1<<62) + 1
	var number int64
	if s.hasClaimsTable {
		err := s.transact(ctx, "register", func(ctx context.Context, tx *sql.Tx) (err error) {
			number, err = s.createOwner(ctx, tx, token)
			return err
		})
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.claimsNumber = token, number
	clear(s.uncertainAccepts) // other daemons settle the rows of our earlier incarnation
	clear(s.uncertainWrites)
	clear(s.claims)
	return nil
}

// createOwner creates the record of an incarnation if it does not exist, and returns the table's
// number.
func (s *SQL) createOwner(ctx context.Context, tx *sql.Tx, token int64) (number int64, err error) {
	_, err = tx.ExecContext(ctx, "INSERT IGNORE INTO "+s.table().claims+" (id, token, owner, place, beat, lease) VALUES (?, ?, ?, ?, 1, "+s.leaseExpr()+"), (?, ?, '', '', 0, NULL)",
		-token, token, s.ownerName(), formatProcess(process.Self()), tableNumberID, rand.Int64())
	if err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, "SELECT token FROM "+s.table().claims+" WHERE id = ? LOCK IN SHARE MODE", tableNumberID).Scan(&number)
	return number, err
}

// ownerName returns the form in which the companion table stores the daemon's name.
func (s *SQL) ownerName() string {
	name := []rune(s.options.Name)
	return string(name[:min(len(name), 255)])
}

// leaseExpr returns the SQL of the time at which a lease that is set now expires.
func (s *SQL) leaseExpr() string {
	return fmt.Sprintf("UTC_TIMESTAMP(3) + INTERVAL %d MICROSECOND", s.options.Lease.Microseconds())
}

// statementError classifies the error of a statement outside a transaction.
func (s *SQL) statementError(err error) error {
	if err == nil || kindOf(err) == mariadb.Refused {
		return err
	}
	return &AwayError{err}
}

// Renew extends the lease.
func (s *SQL) Renew(ctx context.Context) error {
	if !s.hasClaimsTable {
		return s.statementError(s.db.PingContext(ctx))
	}
	result, err := s.db.ExecContext(ctx, "UPDATE "+s.table().claims+" SET beat = beat + 1, lease = "+s.leaseExpr()+" WHERE id = ? AND lease IS NOT NULL", -s.Token())
	if hasNumber(err, 1146) && s.isPermanent(0) { // while a table is being restored from a dump, it is missing for a moment
		if _, err := s.db.ExecContext(ctx, fmt.Sprintf(createClaims, s.table().claims)); err != nil {
			return s.statementError(err)
		}
	} else if err != nil {
		return s.statementError(err)
	} else if n, err := result.RowsAffected(); err != nil || n > 0 {
		return s.statementError(err)
	}
	var number int64
	err = s.transact(ctx, "reclaim", func(ctx context.Context, tx *sql.Tx) (err error) {
		number, _, err = s.reclaim(ctx, tx)
		return err
	})
	if err == nil {
		s.renumber(number)
	}
	return err
}

// renumber sets the number of a table in which our record was created again; 0 means that the
// record was not lost.
func (s *SQL) renumber(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number != 0 {
		s.claimsNumber = number
	}
}

// reclaim creates lost claims on our rows again, after the companion table was emptied. It returns
// the locked or missing rows, which it could not check, and ErrFenced if this incarnation was
// settled. The number is for renumber, after the commit.
func (s *SQL) reclaim(ctx context.Context, tx *sql.Tx) (number int64, unknown []int64, err error) {
	ownClaims := s.rememberedClaims()
	if number, err = s.ensureAlive(ctx, tx); err != nil || len(ownClaims) == 0 {
		return number, nil, err
	}
	rows, err := tx.QueryContext(ctx, "SELECT id, status, time_started FROM "+s.table().name+primaryKeyHint+
		" WHERE id IN ("+joinIDs(slices.Sorted(maps.Keys(ownClaims)))+") ORDER BY id FOR UPDATE"+s.skipLocked)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	var claims []any
	for rows.Next() {
		var id, started int64
		var status string
		if err := rows.Scan(&id, &status, &started); err != nil {
			return 0, nil, err
		}
		if c := ownClaims[id]; status == Accepted && !c.isUncertain || status == Running && c.isRunning && started == c.startedAt {
			claims = append(claims, id, s.Token(), c.isManual, s.ownerName())
		}
		delete(ownClaims, id)
	}
	if err := rows.Err(); err != nil {
		return 0, nil, err
	}
	unknown = slices.Collect(maps.Keys(ownClaims))
	if len(claims) > 0 {
		_, err = tx.ExecContext(ctx, "INSERT IGNORE INTO "+s.table().claims+claimValues(len(claims)/4), claims...)
	}
	return number, unknown, err
}

// claimValues returns, in SQL, the columns and parameters for n claims.
func claimValues(n int) string {
	return " (id, token, by_hand, owner) VALUES (?,?,?,?)" + strings.Repeat(",(?,?,?,?)", n-1)
}

// ensureAlive is like checkOwner, but first creates our record again if it was lost. A missing
// record was lost, not settled, if the table has another number or still has claims of ours,
// because a settlement removes the record last. A record without a lease is being settled.
func (s *SQL) ensureAlive(ctx context.Context, tx *sql.Tx) (number int64, err error) {
	if err = s.checkOwner(ctx, tx); err != ErrFenced {
		return 0, err
	}
	s.mu.Lock()
	token, old := s.token, s.claimsNumber
	s.mu.Unlock()
	records, err := queryIDs(ctx, tx, fmt.Sprintf("SELECT id FROM %s WHERE id = %d AND token = %d OR id >= 0 AND token = %d OR id = %d", s.table().claims, tableNumberID, old, token, -token))
	if err != nil {
		return 0, err
	}
	if slices.Contains(records, -token) || slices.Equal(records, []int64{tableNumberID}) {
		return 0, ErrFenced
	}
	s.options.Log.Warn().Str("table", s.table().claims).Msg("the companion table has lost records: this daemon creates its own again")
	if number, err = s.createOwner(ctx, tx, token); err != nil {
		return 0, err
	}
	return number, s.checkOwner(ctx, tx)
}

// rememberedClaims returns claims on all rows that we have claimed or may have claimed.
func (s *SQL) rememberedClaims() map[int64]claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := maps.Clone(s.claims)
	for id := range s.uncertainWrites {
		if c, ok := rows[id]; ok {
			c.isUncertain = true
			rows[id] = c
		}
	}
	for id, d := range s.uncertainAccepts {
		if s.claims[id] == (claim{}) { // unknown, or cleared by that accept
			rows[id] = claim{isManual: d.isManual, isRunning: d.startedAt != 0, startedAt: d.startedAt}
		}
	}
	return rows
}

// Leave implements Store. Others may settle remaining claims at once.
func (s *SQL) Leave(ctx context.Context) error {
	token := s.Token()
	if !s.hasClaimsTable || token == 0 { // this daemon is not registered
		return nil
	}
	return s.transact(ctx, "leave", func(ctx context.Context, tx *sql.Tx) error {
		ids, err := queryIDs(ctx, tx, fmt.Sprintf("SELECT id FROM %s WHERE token = %d AND id >= 0", s.table().claims, token))
		if err != nil {
			return err
		}
		query := "DELETE FROM " + s.table().claims + " WHERE id = ?"
		if len(ids) > 0 {
			query = "UPDATE " + s.table().claims + " SET lease = NULL WHERE id = ?"
		}
		_, err = tx.ExecContext(ctx, query, -token)
		return err
	})
}

// Owners implements Store. An incarnation that has claims but no record may create its record
// again until a lease has passed.
func (s *SQL) Owners(ctx context.Context) ([]Owner, error) {
	if !s.hasClaimsTable {
		return nil, nil
	}
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT token, owner, place, beat, lease IS NULL, COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), lease), 0) FROM %[1]s"+
		" WHERE id < 0 AND id <> %[4]d AND token <> %[2]d UNION ALL SELECT c.token, COALESCE(NULLIF(MAX(c.owner), ''), 'unknown'), '', 0, 0, %[3]d FROM %[1]s c LEFT JOIN %[1]s o ON o.id = -c.token"+
		" WHERE c.id >= 0 AND c.token <> %[2]d AND o.id IS NULL GROUP BY c.token", s.table().claims, s.Token(), s.options.Lease.Microseconds(), tableNumberID))
	if err != nil {
		return nil, s.statementError(err)
	}
	defer rows.Close()
	var owners []Owner
	for rows.Next() {
		var o Owner
		var place string
		var left int64
		if err := rows.Scan(&o.Token, &o.Name, &place, &o.Heartbeat, &o.IsSettling, &left); err != nil {
			return nil, err
		}
		o.LeaseLeft = time.Duration(left) * time.Microsecond
		o.Process = parseProcess(place)
		owners = append(owners, o)
	}
	return owners, s.statementError(rows.Err())
}

// Settle implements Store. It first marks the incarnation, which can then no longer renew its
// lease. It settles the incarnation's rows in parts, and finally removes the record.
func (s *SQL) Settle(ctx context.Context, owner Owner, orphans OrphanPolicy) (SettleResult, error) {
	sum := SettleResult{FailedRows: make(map[int64]string)}
	if !s.hasClaimsTable {
		return sum, nil
	}
	marked := false
	err := s.transact(ctx, "settle", func(ctx context.Context, tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE "+s.table().claims+" SET lease = NULL WHERE id = ? AND (beat = ? OR lease IS NULL)", -owner.Token, owner.Heartbeat)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if marked = n > 0; marked || err != nil {
			return err
		}
		if result, err = tx.ExecContext(ctx, "INSERT IGNORE INTO "+s.table().claims+" (id, token, owner) VALUES (?, ?, ?)", -owner.Token, owner.Token, owner.Name); err != nil {
			return err
		}
		n, err = result.RowsAffected()
		marked = n > 0 // there was no record; from now on the incarnation cannot create one
		return err
	})
	if err != nil || !marked {
		return sum, err
	}
	targets := make(map[string]bool)
	sum.Incomplete = len(orphans.Except) > 0
	var partErr error
	for {
		ids, err := queryIDs(ctx, s.db, fmt.Sprintf("SELECT id FROM %s WHERE token = %d AND id >= 0 AND id NOT IN (%s) LIMIT %d",
			s.table().claims, owner.Token, joinIDs(append([]int64{tableNumberID}, orphans.Except...)), maxPage))
		if err != nil {
			return sum, s.statementError(err)
		}
		if len(ids) == 0 {
			break
		}
		n, err := s.settlePart(ctx, owner, orphans, ids, &sum, targets)
		if n < len(ids) {
			sum.Incomplete, partErr = true, err
			break
		}
	}
	sum.Targets = slices.Sorted(maps.Keys(targets))
	if sum.Incomplete {
		return sum, partErr
	}
	failpoint.Reach("settle: before the record goes")
	_, err = s.db.ExecContext(ctx, "DELETE FROM "+s.table().claims+" WHERE id = ?", -owner.Token)
	return sum, s.statementError(err)
}

// OwnClaims implements Store.
func (s *SQL) OwnClaims(ctx context.Context) ([]int64, error) {
	ids, err := queryIDs(ctx, s.db, fmt.Sprintf("SELECT id FROM %s WHERE token = %d AND id >= 0", s.table().claims, s.Token()))
	uncertain := s.copyUncertain()
	return slices.DeleteFunc(ids, func(id int64) bool { return uncertain[id] != nil }), s.statementError(err)
}

// SettleOwnClaims implements Store.
func (s *SQL) SettleOwnClaims(ctx context.Context, ids []int64, orphans OrphanPolicy) (sum SettleResult, err error) {
	targets := make(map[string]bool)
	sum.FailedRows = make(map[int64]string)
	_, err = s.settlePart(ctx, Owner{Token: s.Token()}, orphans, ids, &sum, targets)
	sum.Targets = slices.Sorted(maps.Keys(targets))
	return sum, err
}

// settlePart settles some rows and returns how many. The others were locked or refused, or have been
// missing only for a short time. If the database refuses the part, settlePart settles each row alone, so that a
// refused row does not affect others.
func (s *SQL) settlePart(ctx context.Context, owner Owner, orphans OrphanPolicy, ids []int64, sum *SettleResult, targets map[string]bool) (int, error) {
	n, err := s.settleOnce(ctx, owner, orphans, ids, sum, targets)
	if err == nil || IsAway(err) || len(ids) == 1 {
		return n, err
	}
	var refusal error
	settled := 0
	for _, id := range ids {
		n, err := s.settleOnce(ctx, owner, orphans, []int64{id}, sum, targets)
		if IsAway(err) {
			return settled, err
		}
		settled, refusal = settled+n, cmp.Or(err, refusal)
	}
	return settled, refusal
}

// settleOnce is like settlePart, in one transaction.
func (s *SQL) settleOnce(ctx context.Context, owner Owner, orphans OrphanPolicy, ids []int64, sum *SettleResult, targets map[string]bool) (int, error) {
	slices.Sort(ids)
	var part SettleResult
	var freedClaims []int64
	var names []string
	err := s.transact(ctx, "settle", func(ctx context.Context, tx *sql.Tx) error {
		reason, _ := s.table().stderr.cutToFit(orphans.Reason, maxReason)
		part, freedClaims, names = SettleResult{FailedRows: make(map[int64]string)}, nil, nil
		claims, err := queryIDs(ctx, tx, fmt.Sprintf("SELECT id FROM %s%s WHERE id IN (%s) AND token = %d ORDER BY id FOR UPDATE%s",
			s.table().claims, primaryKeyHint, joinIDs(ids), owner.Token, s.skipLocked))
		if err != nil || len(claims) == 0 {
			return err
		}
		rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT j.id, j.target, j.status, c.by_hand FROM %s c%s STRAIGHT_JOIN %s j%s ON j.id = c.id"+
			" WHERE c.id IN (%s) ORDER BY c.id FOR UPDATE%s", s.table().claims, primaryKeyHint, s.table().name, primaryKeyHint, joinIDs(claims), s.skipLocked))
		if err != nil {
			return err
		}
		defer rows.Close()
		var plan batchPlan
		locked := make(map[int64]bool)
		for rows.Next() {
			var id int64
			var target, status string
			var manual bool
			if err := rows.Scan(&id, &target, &status, &manual); err != nil {
				return err
			}
			locked[id] = true
			switch {
			case status == Accepted && manual:
				plan.giveBackManual = append(plan.giveBackManual, id)
			case status == Accepted:
				plan.giveBack = append(plan.giveBack, id)
				names = append(names, target)
			case status == Running && !orphans.Requeue:
				plan.finish = append(plan.finish, Result{ID: id, Code: -1, Stderr: reason, At: orphans.FinishedAt})
				part.FailedRows[id] = target
			case status == Running && manual:
				plan.requeueManual = append(plan.requeueManual, id)
			case status == Running:
				plan.requeue = append(plan.requeue, id)
				names = append(names, target)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		rows.Close()
		if freedClaims, err = s.claimsWithoutRow(ctx, tx, claims, locked); err != nil {
			return err
		}
		for id := range locked {
			freedClaims = append(freedClaims, id)
		}
		slices.Sort(freedClaims)
		plan.freeClaims = freedClaims
		part.RequeuedCount = len(plan.giveBack) + len(plan.giveBackManual) + len(plan.requeue) + len(plan.requeueManual)
		failpoint.Reach("settle: rows locked")
		return s.writePlan(ctx, tx, 0, &plan)
	})
	if err != nil {
		return 0, err
	}
	s.forgetSightings(freedClaims, nil)
	sum.RequeuedCount += part.RequeuedCount
	maps.Copy(sum.FailedRows, part.FailedRows)
	for _, name := range names {
		targets[name] = true
	}
	return len(freedClaims), nil
}

// claimsWithoutRow returns the claims whose rows were deleted.
func (s *SQL) claimsWithoutRow(ctx context.Context, tx *sql.Tx, claims []int64, locked map[int64]bool) ([]int64, error) {
	var missing []int64
	for _, id := range claims {
		if !locked[id] {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	exists, err := queryIDs(ctx, tx, "SELECT id FROM "+s.table().name+primaryKeyHint+" WHERE id IN ("+joinIDs(missing)+")")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(missing, func(id int64) bool { return slices.Contains(exists, id) || !s.isPermanent(id) }), nil
}

// maxReason is the largest size of a reason, in bytes.
const maxReason = 1 << 16

var _ Store = (*SQL)(nil)
