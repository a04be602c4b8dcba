package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gloom/cmd/internal/failpoint"
)

const (
	// batchRows and batchBytes bound one transaction: larger ones gain nothing and keep their
	// rows locked longer.
	batchRows  = 256
	batchBytes = 1 << 20
	// statementSize is the size of a final update without its outputs, in bytes.
	statementSize = 512
)

// Write implements Store. It uses as many transactions as needed.
func (s *SQL) Write(ctx context.Context, b Batch) (WriteResult, error) {
	w := WriteResult{LostRows: make(map[int64]string), FailedRows: make(map[int64]error)}
	if b.Token == 0 {
		b.Token = s.Token()
	}
	b.FinishRows = s.fitFinals(b.FinishRows)
	for part := range b.splitParts() {
		if err := s.writePart(ctx, part, &w); err != nil {
			for _, b := range w.writtenBatches {
				s.rememberWritten(b)
			}
			return w, err
		}
	}
	return w, nil
}

// splitParts splits a batch into smaller batches.
func (b Batch) splitParts() func(func(Batch) bool) {
	return func(yield func(Batch) bool) {
		for len(b.StartRows)+len(b.FinishRows)+len(b.ReturnRows)+len(b.RequeueRows) > 0 {
			room, bytes := batchRows, int64(0)
			part := Batch{Token: b.Token, StartedAt: b.StartedAt}
			part.StartRows, b.StartRows = cutList(b.StartRows, &room)
			part.ReturnRows, b.ReturnRows = cutList(b.ReturnRows, &room)
			part.RequeueRows, b.RequeueRows = cutList(b.RequeueRows, &room)
			for room > 0 && len(b.FinishRows) > 0 {
				size := b.FinishRows[0].sentSize()
				if bytes > 0 && bytes+size > batchBytes {
					break
				}
				part.FinishRows, b.FinishRows = append(part.FinishRows, b.FinishRows[0]), b.FinishRows[1:]
				bytes += size
				room--
			}
			if !yield(part) {
				return
			}
		}
	}
}

// sentSize returns the number of bytes that are sent to write a result.
func (f Result) sentSize() int64 { return escapedLen(f.Stdout) + escapedLen(f.Stderr) + statementSize }

func cutList(ids []int64, room *int) (part, rest []int64) {
	n := min(len(ids), *room)
	*room -= n
	return ids[:n], ids[n:]
}

// fitFinals returns the results with outputs that fit into one packet and into their columns, as
// these were last read.
func (s *SQL) fitFinals(finals []Result) []Result {
	packet := s.connector.MaxPacket() - statementSize
	fittedResults := make([]Result, len(finals))
	for i, f := range finals {
		fittedResults[i] = s.table().fitResult(f, packet)
	}
	return fittedResults
}

// fitResult cuts the outputs of one row to what its columns and a packet can hold. If stdout is
// cut, stderr says so.
func (t *table) fitResult(f Result, packet int64) Result {
	stdout, truncated := t.stdout.cutToFit(f.Stdout, packet)
	stderr, _ := t.stderr.cutToFit(f.Stderr, packet)
	a, b := fitPacket(stdout, stderr, packet)
	if (truncated || len(a) < len(stdout)) && f.MarkStdoutCut() {
		return t.fitResult(f, packet)
	}
	f.Stdout, f.Stderr = a, b
	return f
}

// writePart writes a part. If the database refuses it, writePart writes each row alone,
// so that a refused row does not affect others.
func (s *SQL) writePart(ctx context.Context, b Batch, w *WriteResult) error {
	err := s.writeOnce(ctx, b, w)
	if err == nil || IsAway(err) {
		return err
	}
	if b.rowCount() > 1 {
		for _, single := range b.splitSingles() {
			if err := s.writePart(ctx, single, w); err != nil {
				return err
			}
		}
		return nil
	}
	if len(b.FinishRows) == 1 {
		return s.retryShortened(ctx, b, err, w)
	}
	for _, id := range slices.Concat(b.StartRows, b.ReturnRows, b.RequeueRows) {
		w.FailedRows[id] = err
	}
	for _, id := range b.StartRows { // if it is returned now, it would be refused again
		s.passOverRow(id)
	}
	return nil
}

func (b Batch) rowCount() int {
	return len(b.StartRows) + len(b.FinishRows) + len(b.ReturnRows) + len(b.RequeueRows)
}

func (b Batch) splitSingles() []Batch {
	var singles []Batch
	for i := range b.StartRows {
		singles = append(singles, Batch{Token: b.Token, StartRows: b.StartRows[i : i+1], StartedAt: b.StartedAt})
	}
	for i := range b.ReturnRows {
		singles = append(singles, Batch{Token: b.Token, ReturnRows: b.ReturnRows[i : i+1]})
	}
	for i := range b.RequeueRows {
		singles = append(singles, Batch{Token: b.Token, RequeueRows: b.RequeueRows[i : i+1]})
	}
	for i := range b.FinishRows {
		singles = append(singles, Batch{Token: b.Token, FinishRows: b.FinishRows[i : i+1]})
	}
	return singles
}

// retryShortened repeats a final update with less and less output, if the server has refused the
// output for so long that it will not take it. Until then, and after other errors, the whole output
// is written later. If the server refuses even a short output, stderr says why, and stdout is
// empty. In a column of JSON, which takes no empty text, stdout is NULL.
func (s *SQL) retryShortened(ctx context.Context, b Batch, err error, w *WriteResult) error {
	final := b.FinishRows[0]
	if final.Stdout == "" && isRowError(err) { // this is done at once, because NULL in place of an empty text loses nothing
		final.nullStdout = true
		if retryErr := s.writeOnce(ctx, Batch{Token: b.Token, FinishRows: []Result{final}}, w); retryErr == nil || IsAway(retryErr) {
			return retryErr
		}
		final.nullStdout = false
	}
	reason := "[the database refuses the output: " + err.Error() + "]\n"
	for size := int64(max(len(final.Stdout), len(final.Stderr))); ; {
		if final.nullStderr || !isRowError(err) || !s.isPermanent(final.ID) {
			w.FailedRows[final.ID] = err
			return nil
		}
		s.options.Log.Warn().Int64("id", final.ID).Int64("bytes", size/4).Err(err).Msg("final update was refused; trying with less output")
		switch size /= 4; {
		case size >= minOutput:
			if int64(len(final.Stdout)) > size {
				final.MarkStdoutCut()
			}
			final.Stdout, final.Stderr = column{maxBytes: size}.cutTo(final.Stdout), column{maxBytes: size}.cutTo(final.Stderr)
		case final.Stderr != reason:
			final.Stdout, final.Stderr = "", s.table().fitResult(Result{Stderr: reason + strings.TrimPrefix(final.Stderr, stdoutCutMark)}, minOutput).Stderr
			reason = final.Stderr
		case !final.nullStdout:
			final.nullStdout = true
		default:
			final.Stderr, final.nullStderr = "", true
		}
		err = s.writeOnce(ctx, Batch{Token: b.Token, FinishRows: []Result{final}}, w)
		if err == nil || IsAway(err) {
			return err
		}
	}
}

// minOutput is the smallest size, in bytes, to which a retry cuts an output. If the server refuses
// even that, only the reason is written.
const minOutput = 256

// cutTo is like cutToFit, but the size may be 0.
func (c column) cutTo(s string) string {
	if int64(len(s)) <= c.maxBytes {
		return s
	}
	return shorten(s, c.maxBytes)
}

// writeOnce writes a part in one transaction. Its first statement locks claims and rows and reads
// their states, on which all later statements depend.
func (s *SQL) writeOnce(ctx context.Context, b Batch, w *WriteResult) error {
	ids := slices.Concat(b.StartRows, b.ReturnRows, b.RequeueRows)
	bytes := int64(0)
	for _, f := range b.FinishRows {
		ids = append(ids, f.ID)
		bytes += f.sentSize()
	}
	slices.Sort(ids)
	var lostReasons map[int64]string
	var busyIDs []int64
	var todo batchPlan
	shape := s.table()
	err := s.transactLarge(ctx, "write", bytes, func(ctx context.Context, tx *sql.Tx) error {
		if now := s.table(); now != shape {
			b.FinishRows, shape = s.fitFinals(b.FinishRows), now
		}
		todo = batchPlan{}
		lockedByID, err := s.lockRows(ctx, tx, b.Token, ids)
		if err != nil {
			return err
		}
		failpoint.Reach("write: rows locked")
		if lostReasons, busyIDs, err = s.resolveMissing(ctx, tx, b.Token, ids, lockedByID, &todo); err != nil {
			return err
		}
		if err = s.findSettledEarly(ctx, tx, b.FinishRows, lockedByID, lostReasons); err != nil {
			return err
		}
		s.markRunning(lockedByID)
		todo.planBatch(b, lockedByID, lostReasons)
		s.rememberRunning(todo.start, b.StartedAt)
		return s.writePlan(ctx, tx, b.StartedAt, &todo)
	})
	if isCommitUnknown(err) {
		s.rememberWritten(b)
	}
	if err != nil {
		return err
	}
	s.renumber(todo.claimsNumber)
	w.writtenBatches = append(w.writtenBatches, b)
	for id, reason := range lostReasons {
		if reason == claimGone {
			todo.freeClaims = append(todo.freeClaims, id)
		}
	}
	s.forgetClaims(todo.freeClaims) // claims on rows that we have accepted again are kept
	s.forgetUnsure(ids, lostReasons)
	s.forgetSightings(ids, busyIDs)
	maps.Copy(w.LostRows, lostReasons)
	w.BusyRows = append(w.BusyRows, busyIDs...)
	return nil
}

// markRunning sets the status of accepted rows to running, in the map and not in the table, if
// this daemon is running them. Such a table was restored from an earlier state.
func (s *SQL) markRunning(rows map[int64]lockedRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, row := range rows {
		if row.status == Accepted && s.claims[id].isRunning {
			row.status = Running
			rows[id] = row
		}
	}
}

// rememberClaims remembers rows that we have claimed.
func (s *SQL) rememberClaims(rows []Row, manual bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		s.claims[row.ID] = claim{isManual: manual, isRunning: row.StartedAt != 0, startedAt: row.StartedAt}
	}
}

// rememberRunning remembers which of our rows run, and their time_started.
func (s *SQL) rememberRunning(ids []int64, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.claims[id] = claim{isManual: s.claims[id].isManual, isRunning: true, startedAt: at}
	}
}

// clearClaims drops the knowledge of the claims on rows that are being claimed again. The rows stay
// ours, because they may run here even if the new claim fails.
func (s *SQL) clearClaims(ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if _, isClaimed := s.claims[id]; isClaimed {
			s.claims[id] = claim{}
		}
	}
}

// forgetClaims forgets claims on rows that are no longer ours.
func (s *SQL) forgetClaims(ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.claims, id)
	}
}

// batchPlan lists what a part has to write, given the states of its rows.
type batchPlan struct {
	start, giveBack, giveBackManual []int64 // accepted rows: those to start, to make waiting again, and to make manual again
	requeue, requeueManual          []int64 // running rows: those to make waiting again, and to make manual again
	finish                          []Result
	freeClaims                      []int64 // claims to remove
	claimsNumber                    int64   // see renumber
}

// lockedRow is a row on which we have a claim.
type lockedRow struct {
	status   string
	isManual bool
}

func (p *batchPlan) planBatch(b Batch, rows map[int64]lockedRow, lostReasons map[int64]string) {
	changed := func(id int64, status string) {
		if status == Accepted { // its claim stays
			lostReasons[id] = acceptedAgain
			return
		}
		lostReasons[id] = "status was set to " + status
		p.freeClaims = append(p.freeClaims, id)
	}
	for _, id := range b.StartRows {
		if row, ok := rows[id]; ok && (row.status == Accepted || row.status == Running) {
			p.start = append(p.start, id)
		} else if ok {
			changed(id, row.status)
		}
	}
	for _, id := range b.ReturnRows {
		row, ok := rows[id]
		switch {
		case !ok:
		case row.status != Accepted:
			changed(id, row.status)
		case row.isManual:
			p.giveBackManual = append(p.giveBackManual, id)
		default:
			p.giveBack = append(p.giveBack, id)
		}
	}
	for _, id := range b.RequeueRows {
		row, ok := rows[id]
		switch {
		case !ok:
		case row.status != Running:
			changed(id, row.status)
		case row.isManual:
			p.requeueManual = append(p.requeueManual, id)
		default:
			p.requeue = append(p.requeue, id)
		}
	}
	for _, f := range b.FinishRows {
		if row, ok := rows[f.ID]; ok && row.status == Running {
			p.finish = append(p.finish, f)
			p.freeClaims = append(p.freeClaims, f.ID)
		} else if ok {
			changed(f.ID, row.status)
		}
	}
	p.freeClaims = slices.Concat(p.freeClaims, p.giveBack, p.giveBackManual, p.requeue, p.requeueManual)
}

func (s *SQL) writePlan(ctx context.Context, tx *sql.Tx, at int64, plan *batchPlan) error {
	t := s.table()
	update := "UPDATE " + t.name + primaryKeyHint + " SET "
	var texts []string
	var args [][]any
	add := func(set string, ids []int64, values ...any) {
		texts = append(texts, update+set+" WHERE id IN ("+joinIDs(ids)+")")
		args = append(args, values)
	}
	updateRows := func(set string, ids []int64) {
		if len(ids) > 0 {
			add(set, ids)
		}
	}
	updateRows(fmt.Sprintf("status = 'running', time_started = %d", at), plan.start)
	updateRows("status = 'waiting'", plan.giveBack)
	updateRows("status = 'manual'", plan.giveBackManual)
	updateRows("status = 'waiting', time_started = 0", plan.requeue)
	updateRows("status = 'manual', time_started = 0", plan.requeueManual)
	groups := groupByResult(plan.finish)
	for _, group := range groups {
		add("status = 'done', result = ?, return_code = ?, sig = ?, stdout = "+t.stdout.placeholder()+
			", stderr = "+t.stderr.placeholder()+", time_finished = ?", group.ids, group.updateArgs()...)
	}
	var claims []int64
	if s.hasClaimsTable && len(plan.freeClaims) > 0 {
		claims = plan.freeClaims
		texts, args = append(texts, s.deleteText(claims)), append(args, nil)
	}
	result, err := s.execAll(ctx, tx, texts, args)
	if err != nil {
		return err
	}
	if altered, err := s.foundAltered(ctx, tx, t, groups); err != nil {
		return err
	} else if altered {
		return errAltered
	}
	failpoint.Reach("write: rows updated")
	return s.checkDeleted(ctx, tx, result, claims)
}

// execAll executes statements, in one round trip if the server allows it, and returns the result of the last one.
func (s *SQL) execAll(ctx context.Context, tx *sql.Tx, texts []string, args [][]any) (result sql.Result, err error) {
	if len(texts) > 1 && !s.connector.NeedsSingleStatements() {
		texts, args = []string{strings.Join(texts, ";")}, [][]any{slices.Concat(args...)}
	}
	for i, text := range texts {
		if result, err = tx.ExecContext(ctx, text, args[i]...); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// foundAltered reports whether the columns for outputs are no longer those of t, whose limits the
// outputs fit. The server cuts a text that is too long for its column, and replaces characters, and
// does not say so. Therefore foundAltered reads the written text and, if this differs from the
// intended text, the shape of the table. If the shape is the same, a trigger has changed the
// outputs. One row speaks for its whole group, which got the same text.
func (s *SQL) foundAltered(ctx context.Context, tx *sql.Tx, t *table, groups []resultGroup) (bool, error) {
	wanted := make(map[int64][2]int64, len(groups))
	var finals []Result
	for _, g := range groups {
		if f := g.Result; len(f.Stdout)+len(f.Stderr) > 0 {
			wanted[f.ID] = [2]int64{t.stdout.storedLen(f.Stdout), t.stderr.storedLen(f.Stderr)}
			finals = append(finals, f)
		}
	}
	if len(wanted) == 0 {
		return false, nil
	}
	rows, err := tx.QueryContext(ctx, "SELECT id, COALESCE("+t.stdout.lenFunction()+"(stdout), 0), COALESCE("+t.stderr.lenFunction()+"(stderr), 0) FROM "+
		t.name+primaryKeyHint+" WHERE id IN ("+joinIDs(slices.Sorted(maps.Keys(wanted)))+")")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	same := true
	for rows.Next() {
		var id int64
		var sizes [2]int64
		if err := rows.Scan(&id, &sizes[0], &sizes[1]); err != nil {
			return false, err
		}
		same = same && sizes == wanted[id]
	}
	if err := rows.Err(); same || err != nil {
		return false, err
	}
	// In this transaction: another connection would wait behind an ALTER TABLE that waits for this one.
	now, err := readTableShape(ctx, tx, s.options.MySQL.Table, s.options.Claims)
	if err != nil {
		return false, err
	}
	s.tableShape.Store(now)
	return now.stdout != t.stdout || now.stderr != t.stderr || !slices.Equal(s.fitFinals(finals), finals), nil
}

func (f Result) updateArgs() []any {
	result := "fail"
	if f.OK {
		result = "ok"
	}
	var code, sig any
	if f.Code >= 0 {
		code = f.Code & 0xff
	}
	if f.Signal != "" {
		sig = f.Signal
	}
	stdout, stderr := any(f.Stdout), any(f.Stderr)
	if f.nullStdout {
		stdout = nil
	}
	if f.nullStderr {
		stderr = nil
	}
	return []any{result, code, sig, stdout, stderr, f.At}
}

// resultGroup is a set of rows that end in the same way.
type resultGroup struct {
	Result
	ids []int64
}

// groupByResult groups rows that one statement can end: many jobs have no output, or the same output.
func groupByResult(finals []Result) []resultGroup {
	var endings []resultGroup
	at := make(map[Result]int, len(finals))
	for _, f := range finals {
		key := f
		key.ID, key.Started = 0, 0
		if i, ok := at[key]; ok {
			endings[i].ids = append(endings[i].ids, f.ID)
			continue
		}
		at[key] = len(endings)
		endings = append(endings, resultGroup{f, []int64{f.ID}})
	}
	return endings
}

// lockRows locks those of the given rows that are ours, and returns them. If the server can, it skips
// rows that other transactions have locked.
func (s *SQL) lockRows(ctx context.Context, tx *sql.Tx, token int64, ids []int64) (map[int64]lockedRow, error) {
	query := "SELECT id, status, 0 FROM " + s.table().name + primaryKeyHint + " WHERE id IN (" + joinIDs(ids) + ") ORDER BY id FOR UPDATE" + s.skipLocked
	if s.hasClaimsTable {
		query = fmt.Sprintf("SELECT c.id, j.status, c.by_hand FROM %s c%s STRAIGHT_JOIN %s j%s ON j.id = c.id"+
			" WHERE c.id IN (%s) AND c.token = %d ORDER BY c.id FOR UPDATE%s",
			s.table().claims, primaryKeyHint, s.table().name, primaryKeyHint, joinIDs(ids), token, s.skipLocked)
	}
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	lockedRows := make(map[int64]lockedRow, len(ids))
	for rows.Next() {
		var id int64
		var h lockedRow
		if err := rows.Scan(&id, &h.status, &h.isManual); err != nil {
			return nil, err
		}
		lockedRows[id] = h
	}
	return lockedRows, rows.Err()
}

const claimGone = "claim is gone"

// acceptedAgain is why a row is lost that was waiting again: others have set its status, or have
// replaced it by another row with its id.
const acceptedAgain = "row was made waiting again, or replaced, and this daemon has accepted it anew"

// resolveMissing finds out why rows could not be locked: they are no longer ours, or another
// transaction has them locked. It reclaims rows whose claims were lost and adds them to found. A
// missing row counts as busy for a while, because a table that is being restored is empty at first.
func (s *SQL) resolveMissing(ctx context.Context, tx *sql.Tx, token int64, ids []int64, lockedRows map[int64]lockedRow, plan *batchPlan) (lostReasons map[int64]string, busyIDs []int64, err error) {
	lostReasons = make(map[int64]string)
	var missing []int64
	for _, id := range ids {
		if _, ok := lockedRows[id]; !ok {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return lostReasons, nil, nil
	}
	claimed := missing
	if s.hasClaimsTable {
		claimed, err = queryIDs(ctx, tx, fmt.Sprintf("SELECT id FROM %s WHERE id IN (%s) AND token = %d", s.table().claims, joinIDs(missing), token))
		if err != nil {
			return nil, nil, err
		}
		if len(claimed) < len(missing) && token == s.Token() {
			number, unknown, err := s.reclaim(ctx, tx)
			if err != nil && err != ErrFenced {
				return nil, nil, err
			}
			plan.claimsNumber = number
			locked, err := s.lockRows(ctx, tx, token, missing)
			if err != nil {
				return nil, nil, err
			}
			maps.Copy(lockedRows, locked)
			claimed = slices.Concat(claimed, unknown, slices.Collect(maps.Keys(locked)))
		}
	}
	exists, err := queryIDs(ctx, tx, "SELECT id FROM "+s.table().name+primaryKeyHint+" WHERE id IN ("+joinIDs(missing)+")")
	if err != nil {
		return nil, nil, err
	}
	for _, id := range missing {
		_, locked := lockedRows[id]
		switch {
		case locked:
		case !slices.Contains(claimed, id):
			lostReasons[id] = claimGone
		case !slices.Contains(exists, id) && s.isPermanent(id):
			lostReasons[id] = "row was deleted"
			plan.freeClaims = append(plan.freeClaims, id)
		default:
			busyIDs = append(busyIDs, id)
		}
	}
	return lostReasons, busyIDs, nil
}

// findSettledEarly finds rows that another daemon has ended because it took our daemon for dead. It
// also finds rows that we started and that still run although no daemon has a claim on them, or only an
// earlier incarnation of ours, which lost its lease when the row could not be settled. Such rows still get
// their results.
func (s *SQL) findSettledEarly(ctx context.Context, tx *sql.Tx, finals []Result, rows map[int64]lockedRow, lostReasons map[int64]string) error {
	var ids []int64
	running := "FALSE"
	for _, f := range finals {
		if lostReasons[f.ID] == claimGone {
			ids = append(ids, f.ID)
			if s.hasClaimsTable && f.Started != 0 {
				running += fmt.Sprintf(" OR id = %d AND time_started = %d", f.ID, f.Started)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	reason, _ := s.table().stderr.cutToFit(DeathReason(s.options.Name), maxReason)
	args := []any{reason}
	if s.hasClaimsTable {
		running = fmt.Sprintf("(%s) AND id NOT IN (SELECT id FROM %s WHERE token = %d OR owner <> ?)", running, s.table().claims, s.Token())
		args = append(args, s.ownerName())
	}
	done, err := queryIDs(ctx, tx, "SELECT id FROM "+s.table().name+primaryKeyHint+" WHERE id IN ("+joinIDs(ids)+
		") AND (status = 'done' AND result = 'fail' AND stderr = "+s.table().stderr.pattern()+" OR status = 'running' AND "+running+") ORDER BY id FOR UPDATE"+s.skipLocked, args...)
	for _, id := range done {
		rows[id] = lockedRow{status: Running}
		delete(lostReasons, id)
	}
	return err
}

func queryIDs(ctx context.Context, db querier, query string, args ...any) ([]int64, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// rememberWritten notes rows that were or may have been written and will be written again. If they then
// have no claim, this does not mean that they belong to others.
func (s *SQL) rememberWritten(b Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range b.FinishRows {
		s.uncertainWrites[f.ID] = true
	}
	for _, id := range slices.Concat(b.ReturnRows, b.RequeueRows) {
		s.uncertainWrites[id] = true
	}
}

func (s *SQL) forgetUnsure(ids []int64, lostReasons map[int64]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.uncertainWrites) == 0 {
		return
	}
	for _, id := range ids {
		if s.uncertainWrites[id] {
			delete(s.uncertainWrites, id)
			delete(lostReasons, id)
		}
	}
}
