package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gloom/cmd/internal/failpoint"
)

// Accept implements Store. For each target it reads one range of the index, which is sorted by id;
// one read for all targets would have to sort and lock every waiting row.
func (s *SQL) Accept(ctx context.Context, requests []AcceptRequest, limit int) (Page, error) {
	adopted, err := s.Resolve(ctx)
	if err != nil {
		return Page{}, err
	}
	if limit <= 0 {
		limit = maxPage
	}
	var page Page
	var next map[string]readPosition
	err = s.transact(ctx, "accept", func(ctx context.Context, tx *sql.Tx) error {
		page = Page{}
		var truncated map[string]bool
		var err error
		if page.Rows, truncated, next, err = s.readWaiting(ctx, tx, requests, limit); err != nil {
			return err
		}
		for _, want := range requests {
			if truncated[want.Target] {
				page.MoreTargets = append(page.MoreTargets, want.Target)
			}
		}
		s.chooseBeginners(page.Rows, requests, time.Now().Unix())
		failpoint.Reach("accept: rows locked")
		if err := s.acceptLocked(ctx, tx, page.Rows, Waiting); err != nil {
			return err
		}
		return s.findLocked(ctx, tx, &page, requests, truncated)
	})
	if len(page.Rows) > 0 && isRowError(err) && s.passedOverCount() < maxPassedOver {
		return s.acceptOneByOne(ctx, page.Rows, Page{Rows: adopted, MoreTargets: targetsOf(requests)})
	}
	if err != nil {
		if isCommitUnknown(err) {
			s.addUncertain(page.Rows, false)
		}
		if len(adopted) > 0 {
			// These rows are ours: the error must not hide them. If it persists, the
			// next Accept returns it.
			return Page{Rows: adopted, MoreTargets: targetsOf(requests)}, nil
		}
		return Page{}, err
	}
	s.recordPosition(requests, next)
	s.rememberClaims(page.Rows, false)
	page.Rows = append(adopted, page.Rows...)
	return page, nil
}

// chooseBeginners chooses the rows that begin at once: the best ones of each target.
func (s *SQL) chooseBeginners(rows []Row, requests []AcceptRequest, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, want := range requests {
		var list []*Row
		for i := range rows {
			if rows[i].Target == want.Target {
				list = append(list, &rows[i])
			}
		}
		slices.SortStableFunc(list, func(a, b *Row) int { return cmp.Compare(b.Priority, a.Priority) })
		for _, row := range list[:min(want.MaxBegin, len(list))] {
			if _, known := s.claims[row.ID]; !known {
				row.StartedAt = at
			}
		}
	}
}

const (
	// maxPassedOver is the maximum number of rows that are passed over at a time. If more are
	// refused, the reason is not in the rows.
	maxPassedOver = 1000
	// A refused row is passed over for passOverFor.
	passOverFor = time.Minute
)

// acceptOneByOne accepts rows one by one after an update of all of them together was refused, for
// example because a trigger refuses one row.
func (s *SQL) acceptOneByOne(ctx context.Context, rows []Row, page Page) (Page, error) {
	for _, row := range rows {
		var accepted []Row
		err := s.transact(ctx, "accept", func(ctx context.Context, tx *sql.Tx) (err error) {
			accepted, err = s.queryRows(ctx, tx, fmt.Sprintf("SELECT id, target, %s FROM %s%s WHERE id = %d AND status = 'waiting' FOR UPDATE%s",
				s.priorityExpr(), s.table().name, primaryKeyHint, row.ID, s.skipLocked))
			if err != nil {
				return err
			}
			return s.acceptLocked(ctx, tx, accepted, Waiting)
		})
		switch {
		case err == nil:
			s.rememberClaims(accepted, false)
			page.Rows = append(page.Rows, accepted...)
		case isRowError(err):
			s.passOverRow(row.ID)
			s.options.Log.Error().Err(err).Int64("id", row.ID).Str("target", row.Target).Stringer("again", passOverFor).Msg("row cannot be accepted; it is passed over for a while")
		default:
			if isCommitUnknown(err) {
				s.addUncertain(accepted, false)
			}
			if len(page.Rows) > 0 {
				return page, nil // if the error persists, the next Accept returns it
			}
			return Page{}, err
		}
	}
	return page, nil
}

func (s *SQL) passOverRow(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passedOverUntil[id] = time.Now().Add(passOverFor)
}

// passedOverCount returns how many rows are passed over now.
func (s *SQL) passedOverCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.passedOverUntil, func(_ int64, until time.Time) bool { return now.After(until) })
	return len(s.passedOverUntil)
}

// exceptRefused returns an SQL condition that excludes the refused rows that are passed over.
func (s *SQL) exceptRefused() string {
	if s.passedOverCount() == 0 {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return " AND id NOT IN (" + joinIDs(slices.Sorted(maps.Keys(s.passedOverUntil))) + ")"
}

func byRowID(a, b Row) int { return cmp.Compare(a.ID, b.ID) }

func targetsOf(requests []AcceptRequest) []string {
	names := make([]string, len(requests))
	for i, want := range requests {
		names[i] = want.Target
	}
	return names
}

// readPosition says how far an Accept has come in the waiting rows of a target. The entries of
// accepted rows stay in the index until the server purges them. A read that begins at the lowest id
// walks over all these entries, and this walk costs more than the rest of the read. So an Accept
// continues where the last one ended, but not for longer than maxPositionAge: rows with lower ids
// may wait again.
type readPosition struct {
	fromID int64     // where to continue; 0 is the lowest id
	since  time.Time // when a read last began at the lowest id
}

const maxPositionAge = 100 * time.Millisecond

// lastPosition returns the position at which to continue reading the rows of a target.
func (s *SQL) lastPosition(target string) readPosition {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.positions[target]; time.Since(p.since) < maxPositionAge {
		return p
	}
	return readPosition{since: time.Now()}
}

// recordPosition notes how far a committed Accept has come.
func (s *SQL) recordPosition(requests []AcceptRequest, next map[string]readPosition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, want := range requests {
		delete(s.positions, want.Target)
	}
	maps.Copy(s.positions, next)
}

// targetReader is a target whose waiting rows are read in parts.
type targetReader struct {
	AcceptRequest
	readPosition
	minID       int64 // ids below it were not read; 0 if all were
	rows        []Row // read and locked, not taken yet
	firstRows   []Row // the first part, if readTogether has read it and readNext has not taken it yet
	hasFirst    bool
	room        int  // how many more rows may be read
	mayHaveMore bool // the last part was full, so there may be more rows
}

// readWaiting reads and locks the waiting rows with the lowest ids of all targets, at most
// limit. truncated holds the targets that may have more rows. next is the argument for
// recordPosition.
//
// It first reads each target's share of the limit, and more only when these rows are used up: a row
// that is locked but not accepted costs as much as one that is accepted.
func (s *SQL) readWaiting(ctx context.Context, tx *sql.Tx, requests []AcceptRequest, limit int) (rows []Row, truncated map[string]bool, next map[string]readPosition, err error) {
	sources := make([]*targetReader, len(requests))
	sum := 0
	for i, want := range requests {
		sources[i] = &targetReader{AcceptRequest: want, room: min(want.Rows, limit), mayHaveMore: true}
		if !s.table().hasPrio {
			sources[i].readPosition = s.lastPosition(want.Target)
			sources[i].minID = sources[i].fromID
		}
		sum += sources[i].room
	}
	for left := slices.Clone(sources); len(rows) < limit; {
		share := limit
		if sum > limit {
			share = (limit - len(rows) + len(left) - 1) / len(left)
		}
		if len(rows) == 0 {
			if err := s.readTogether(ctx, tx, left, share); err != nil {
				return nil, nil, nil, err
			}
		}
		for _, src := range left {
			if len(src.rows) == 0 && src.mayHaveMore && src.room > 0 {
				if err := s.readShare(ctx, tx, src, share, limit); err != nil {
					return nil, nil, nil, err
				}
			}
		}
		left = slices.DeleteFunc(left, func(src *targetReader) bool { return len(src.rows) == 0 })
		if len(left) == 0 {
			break
		}
		for used := false; len(rows) < limit && !used; { // until the rows read of one target are used up
			src := slices.MinFunc(left, func(a, b *targetReader) int { return byRowID(a.rows[0], b.rows[0]) })
			rows, src.rows = append(rows, src.rows[0]), src.rows[1:]
			used = len(src.rows) == 0
		}
	}
	slices.SortFunc(rows, byRowID)
	truncated, next = make(map[string]bool), make(map[string]readPosition)
	for _, src := range sources {
		truncated[src.Target] = src.mayHaveMore || len(src.rows) > 0
		if len(src.rows) > 0 {
			src.fromID = src.rows[0].ID
		}
		if src.mayHaveMore && src.fromID > 0 {
			next[src.Target] = src.readPosition
		}
	}
	return rows, truncated, next, nil
}

// readShare reads and locks the next waiting rows of a target or, if rows have a priority, the best of
// the first limit, best first.
func (s *SQL) readShare(ctx context.Context, tx *sql.Tx, src *targetReader, share, limit int) (err error) {
	if s.table().hasPrio && (src.room < limit || share < src.room) {
		src.rows, src.mayHaveMore, err = s.lockBest(ctx, tx, src.Target, src.room, limit)
		src.room = 0 // a further read would find these rows again, which this transaction has locked
		slices.SortFunc(src.rows, func(a, b Row) int { return cmp.Or(cmp.Compare(b.Priority, a.Priority), byRowID(a, b)) })
	} else {
		err = s.readNext(ctx, tx, src, min(src.room, share))
	}
	return err
}

// readNext reads and locks the next rows, at most limit, of a target. At the end of the rows it
// goes back to the lowest id.
func (s *SQL) readNext(ctx context.Context, tx *sql.Tx, src *targetReader, limit int) (err error) {
	lock := " FOR UPDATE" + s.skipLocked
	if src.hasFirst {
		src.rows, src.firstRows, src.hasFirst = src.firstRows, nil, false
	} else if src.rows, err = s.readFirst(ctx, tx, src.Target, src.fromID, math.MaxInt64, limit, lock); err != nil {
		return err
	}
	src.room -= limit
	if n := len(src.rows); n > 0 {
		if src.fromID = src.rows[n-1].ID + 1; src.fromID < 0 { // there is no larger id
			src.fromID, src.room = 0, 0
		}
	}
	if len(src.rows) < limit && src.minID > 0 {
		lower, err := s.readFirst(ctx, tx, src.Target, 0, src.minID-1, limit-len(src.rows), lock)
		if err != nil {
			return err
		}
		src.rows = append(lower, src.rows...)
		src.readPosition, src.room = readPosition{}, 0
	}
	src.mayHaveMore = len(src.rows) == limit
	return nil
}

// readFirst reads the first waiting rows of a target whose ids are from lowest to highest.
func (s *SQL) readFirst(ctx context.Context, tx *sql.Tx, target string, lowest, highest int64, limit int, lock string) ([]Row, error) {
	return s.queryRows(ctx, tx, s.firstText(lowest, highest, limit, lock), target, target)
}

// firstText returns the SQL of readFirst; both of its parameters are the target.
func (s *SQL) firstText(lowest, highest int64, limit int, lock string) string {
	return fmt.Sprintf("SELECT id, target, %s FROM %s%s WHERE status = 'waiting' AND %s AND id BETWEEN %d AND %d%s ORDER BY id LIMIT %d%s",
		s.priorityExpr(), s.table().name, s.table().indexHint(), s.table().targetCondition, lowest, highest, s.exceptRefused(), limit, lock)
}

// readTogether reads and locks the first part of all targets in one round trip, if that is possible. readNext
// then takes these rows.
func (s *SQL) readTogether(ctx context.Context, tx *sql.Tx, sources []*targetReader, share int) error {
	if len(sources) == 1 || s.table().hasPrio || s.connector.NeedsSingleStatements() || s.passedOverCount() > 0 { // a list of refused rows in each text could be too long
		return nil
	}
	var texts []string
	var args []any
	for _, src := range sources {
		texts = append(texts, s.firstText(src.fromID, math.MaxInt64, min(src.room, share), " FOR UPDATE"+s.skipLocked))
		args = append(args, src.Target, src.Target)
	}
	result, err := tx.QueryContext(ctx, strings.Join(texts, ";"), args...)
	if err != nil {
		return err
	}
	defer result.Close()
	for _, src := range sources {
		if src.firstRows, err = scanRows(result); err != nil {
			return err
		}
		src.hasFirst = true
		result.NextResultSet()
	}
	return result.Err()
}

// lockBest locks the rows of the highest priority among the first limit rows. It reads the rows
// without locks. Then it locks rows until there are enough, and skips rows that others have taken
// meanwhile.
func (s *SQL) lockBest(ctx context.Context, tx *sql.Tx, target string, maxRows, limit int) (accepted []Row, more bool, err error) {
	seen, err := s.readFirst(ctx, tx, target, 0, math.MaxInt64, limit, "")
	if err != nil {
		return nil, false, err
	}
	more = len(seen) == limit
	slices.SortStableFunc(seen, func(a, b Row) int { return cmp.Compare(b.Priority, a.Priority) })
	for len(seen) > 0 && len(accepted) < maxRows {
		n := min(maxRows-len(accepted), len(seen))
		ids := make([]int64, n)
		for i, row := range seen[:n] {
			ids[i] = row.ID
		}
		rows, err := s.queryRows(ctx, tx, "SELECT id, target, "+s.priorityExpr()+" FROM "+s.table().name+primaryKeyHint+
			" WHERE id IN ("+joinIDs(ids)+") AND status = 'waiting' ORDER BY id FOR UPDATE"+s.skipLocked)
		if err != nil {
			return nil, false, err
		}
		accepted, seen = append(accepted, rows...), seen[n:]
	}
	return accepted, more || len(seen) > 0, nil
}

// priorityExpr returns the SQL of a row's priority, also in a join with the companion table, which
// has no such column.
func (s *SQL) priorityExpr() string {
	if s.table().hasPrio {
		return "COALESCE(CAST(LEAST(priority, 9223372036854775807) AS SIGNED), 0)"
	}
	return "0"
}

func (s *SQL) queryRows(ctx context.Context, tx *sql.Tx, query string, args ...any) ([]Row, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return scanRows(rows)
}

func scanRows(rows *sql.Rows) (found []Row, err error) {
	for rows.Next() {
		var r Row
		if err := rows.Scan(&r.ID, &r.Target, &r.Priority); err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, rows.Err()
}

// acceptLocked accepts locked rows and claims them.
func (s *SQL) acceptLocked(ctx context.Context, tx *sql.Tx, rows []Row, from string) error {
	if len(rows) == 0 {
		return nil
	}
	ids := make([]int64, len(rows))
	var accepted, started []int64
	var at int64
	for i, row := range rows {
		if ids[i] = row.ID; row.StartedAt == 0 {
			accepted = append(accepted, row.ID)
		} else {
			started, at = append(started, row.ID), row.StartedAt
		}
	}
	s.clearClaims(ids)
	s.dropUncertain(s.copyUncertain(), ids) // an earlier accept was undone, or the row was reset
	if s.options.ReadFields {
		if err := s.readFields(ctx, tx, rows); err != nil {
			return err
		}
	}
	if s.hasClaimsTable {
		if err := s.checkOwner(ctx, tx); err != nil {
			return err
		}
	}
	var texts []string
	for _, part := range []struct {
		set string
		ids []int64
	}{{"status = 'accepted'", accepted}, {fmt.Sprintf("status = 'running', time_started = %d", at), started}} {
		if len(part.ids) > 0 {
			texts = append(texts, "UPDATE "+s.table().name+primaryKeyHint+" SET "+part.set+" WHERE id IN ("+joinIDs(part.ids)+")")
		}
	}
	args := make([][]any, len(texts))
	if s.hasClaimsTable {
		claims := make([]any, 0, 4*len(ids))
		token, owner := s.Token(), s.ownerName()
		for _, id := range ids {
			claims = append(claims, id, token, from == Manual, owner)
		}
		// If a claim already exists, the status of its row was reset by hand.
		texts, args = append(texts, "REPLACE INTO "+s.table().claims+claimValues(len(ids))), append(args, claims)
	}
	_, err := s.execAll(ctx, tx, texts, args)
	failpoint.Reach("accept: rows claimed")
	return err
}

// checkOwner returns ErrFenced unless our lease is valid. It locks our record until the transaction
// ends, so that a daemon that later settles this incarnation sees the claims made here.
func (s *SQL) checkOwner(ctx context.Context, tx *sql.Tx) error {
	found, err := queryIDs(ctx, tx, fmt.Sprintf("SELECT id FROM %s WHERE id = %d AND lease IS NOT NULL LOCK IN SHARE MODE", s.table().claims, -s.Token()))
	if err == nil && len(found) == 0 {
		err = ErrFenced
	}
	return err
}

// findLocked finds targets with waiting rows that this transaction did not see, because other
// transactions had locked them, and notes these targets in the page.
func (s *SQL) findLocked(ctx context.Context, tx *sql.Tx, page *Page, requests []AcceptRequest, truncated map[string]bool) error {
	if s.skipLocked == "" {
		return nil
	}
	for _, target := range targetsOf(requests) {
		if truncated[target] {
			continue
		}
		var name string
		err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT target FROM %s%s WHERE status = 'waiting' AND %s AND %s LIMIT 1",
			s.table().name, s.table().indexHint(), s.table().targetCondition, claimableID), target, target).Scan(&name)
		if err == nil && name == target {
			page.BusyTargets = append(page.BusyTargets, target)
		} else if err != nil && err != sql.ErrNoRows {
			return err
		}
	}
	return nil
}

// AcceptManual implements Store.
func (s *SQL) AcceptManual(ctx context.Context, ids []int64, serves func(string) bool) ([]ManualResult, error) {
	answers := make(map[int64]ManualResult, len(ids))
	for part := range slices.Chunk(ids, maxPage) {
		var accepted []Row
		err := s.transact(ctx, "manual", func(ctx context.Context, tx *sql.Tx) error {
			found, err := s.manualStates(ctx, tx, part)
			if err != nil {
				return err
			}
			accepted = nil
			var ignored []int64
			for id, r := range found {
				r.WasAccepted = r.Status == Manual && serves(r.Row.Target)
				if r.WasAccepted {
					accepted = append(accepted, r.Row)
				} else if r.Status == Manual || r.Status == Waiting {
					ignored = append(ignored, id)
				}
				found[id] = r
			}
			slices.SortFunc(accepted, byRowID)
			failpoint.Reach("manual: rows locked")
			if err := s.acceptLocked(ctx, tx, accepted, Manual); err != nil {
				return err
			}
			for _, row := range accepted { // acceptLocked has added their fields
				found[row.ID] = ManualResult{Row: row, WasFound: true, WasAccepted: true}
			}
			maps.Copy(answers, found)
			if len(ignored) == 0 {
				return nil
			}
			slices.Sort(ignored)
			_, err = tx.ExecContext(ctx, "UPDATE "+s.table().name+primaryKeyHint+" SET status = 'ignored' WHERE id IN ("+joinIDs(ignored)+")")
			return err
		})
		if err != nil {
			if isCommitUnknown(err) {
				s.addUncertain(accepted, true)
			}
			s.giveBack(answers, part)
			return nil, err
		}
		s.rememberClaims(accepted, true)
	}
	requests := make([]ManualResult, len(ids))
	for i, id := range ids {
		requests[i] = answers[id]
		requests[i].Row.ID = id
	}
	return requests, nil
}

// giveBack makes Resolve also return the rows that the earlier parts of a failed AcceptManual have
// accepted.
func (s *SQL) giveBack(answers map[int64]ManualResult, failed []int64) {
	var rows []Row
	for id, r := range answers {
		if r.WasAccepted && !slices.Contains(failed, id) {
			rows = append(rows, r.Row)
		}
	}
	s.addUncertain(rows, true)
}

// manualStates reads and locks rows by id.
func (s *SQL) manualStates(ctx context.Context, tx *sql.Tx, ids []int64) (map[int64]ManualResult, error) {
	rows, err := tx.QueryContext(ctx, "SELECT id, target, status, "+s.priorityExpr()+" FROM "+s.table().name+primaryKeyHint+
		" WHERE id IN ("+joinIDs(ids)+") ORDER BY id FOR UPDATE")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[int64]ManualResult, len(ids))
	for rows.Next() {
		r := ManualResult{WasFound: true}
		if err := rows.Scan(&r.Row.ID, &r.Row.Target, &r.Status, &r.Row.Priority); err != nil {
			return nil, err
		}
		found[r.Row.ID] = r
	}
	return found, rows.Err()
}

func (s *SQL) addUncertain(rows []Row, manual bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		s.uncertainAccepts[row.ID] = &uncertainAccept{manual, row.StartedAt}
	}
}

func (s *SQL) copyUncertain() map[int64]*uncertainAccept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.uncertainAccepts)
}

// Resolve implements Store. Its read waits for a transaction that is still in progress, so its
// answer is final.
func (s *SQL) Resolve(ctx context.Context) ([]Row, error) {
	select { // two at a time would return the same rows
	case s.resolving <- struct{}{}:
		defer func() { <-s.resolving }()
	case <-ctx.Done():
		return nil, &AwayError{ctx.Err()}
	}
	doubtful, token := s.copyUncertain(), s.Token()
	if len(doubtful) == 0 {
		return nil, nil
	}
	ids := slices.Sorted(maps.Keys(doubtful))
	if !s.hasClaimsTable {
		s.options.Log.Warn().Ints64("ids", ids).Msg("connection was lost while rows were accepted: without the companion table they may be left accepted or running")
		s.dropUncertain(doubtful, ids)
		return nil, nil
	}
	var adopted []Row
	var returnedIDs []int64
	err := s.transact(ctx, "resolve", func(ctx context.Context, tx *sql.Tx) error {
		if err := s.undoBegins(ctx, tx, doubtful, token); err != nil {
			return err
		}
		claims, err := s.queryRows(ctx, tx, "SELECT c.id, j.target, "+s.priorityExpr()+" FROM "+s.table().claims+" c"+primaryKeyHint+
			" STRAIGHT_JOIN "+s.table().name+" j"+primaryKeyHint+" ON j.id = c.id WHERE c.id IN ("+joinIDs(ids)+
			") AND c.token = ? AND j.status = 'accepted' FOR UPDATE", token)
		if err != nil {
			return err
		}
		adopted, returnedIDs = nil, nil
		now := s.copyUncertain()
		for _, row := range claims {
			switch d := doubtful[row.ID]; {
			case now[row.ID] != d: // the row was accepted again meanwhile
			case d.isManual:
				returnedIDs = append(returnedIDs, row.ID)
			default:
				adopted = append(adopted, row)
			}
		}
		if s.options.ReadFields && len(adopted) > 0 {
			if err := s.readFields(ctx, tx, adopted); err != nil {
				return err
			}
		}
		return s.restoreStatus(ctx, tx, returnedIDs, "manual")
	})
	if err != nil {
		return nil, err
	}
	s.dropUncertain(doubtful, ids)
	s.forgetClaims(returnedIDs)
	s.rememberClaims(adopted, false)
	return adopted, nil
}

// undoBegins sets rows back to accepted if they began in an accept whose outcome is not known. Nobody
// was told of them, so they do not run.
func (s *SQL) undoBegins(ctx context.Context, tx *sql.Tx, doubtful map[int64]*uncertainAccept, token int64) error {
	condition := "FALSE"
	now := s.copyUncertain()
	for _, id := range slices.Sorted(maps.Keys(doubtful)) {
		if d := doubtful[id]; d.startedAt != 0 && now[id] == d {
			condition += fmt.Sprintf(" OR j.id = %d AND j.time_started = %d", id, d.startedAt)
		}
	}
	if condition == "FALSE" {
		return nil
	}
	_, err := tx.ExecContext(ctx, "UPDATE "+s.table().claims+" c"+primaryKeyHint+" STRAIGHT_JOIN "+s.table().name+" j"+primaryKeyHint+" ON j.id = c.id SET j.status = 'accepted', j.time_started = 0"+
		" WHERE c.id IN ("+joinIDs(slices.Sorted(maps.Keys(doubtful)))+") AND c.token = ? AND j.status = 'running' AND ("+condition+")", token)
	return err
}

// dropUncertain removes the given doubts about rows, but not later doubts about the same rows.
func (s *SQL) dropUncertain(doubtful map[int64]*uncertainAccept, ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.uncertainAccepts[id] == doubtful[id] {
			delete(s.uncertainAccepts, id)
		}
	}
}

// restoreStatus gives accepted rows their old status and removes their claims.
func (s *SQL) restoreStatus(ctx context.Context, tx *sql.Tx, ids []int64, status string) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+s.table().name+primaryKeyHint+" SET status = ? WHERE id IN ("+joinIDs(ids)+")", status); err != nil {
		return err
	}
	return s.deleteClaims(ctx, tx, ids)
}

// deleteText returns the SQL that deletes claims. A DELETE takes no hint. Without order and limit the
// server may walk the whole table instead, wait for claims that other transactions have locked, and
// find deadlocks.
func (s *SQL) deleteText(ids []int64) string {
	return fmt.Sprintf("DELETE FROM %s WHERE id IN (%s) ORDER BY id LIMIT %d", s.table().claims, joinIDs(ids), len(ids))
}

func (s *SQL) deleteClaims(ctx context.Context, tx *sql.Tx, ids []int64) error {
	if len(ids) == 0 || !s.hasClaimsTable {
		return nil
	}
	result, err := tx.ExecContext(ctx, s.deleteText(ids))
	if err != nil {
		return err
	}
	return s.checkDeleted(ctx, tx, result, ids)
}

// checkDeleted returns an error if a DELETE of claims, which had this result, has left one of them:
// MariaDB may report success for a DELETE that KILL QUERY or its time limit has ended.
func (s *SQL) checkDeleted(ctx context.Context, tx *sql.Tx, result sql.Result, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	if n, err := result.RowsAffected(); err != nil || n == int64(len(ids)) {
		return err
	}
	remainingIDs, err := queryIDs(ctx, tx, "SELECT id FROM "+s.table().claims+primaryKeyHint+" WHERE id IN ("+joinIDs(ids)+")")
	if err == nil && len(remainingIDs) > 0 {
		err = errNotDeleted
	}
	return err
}
