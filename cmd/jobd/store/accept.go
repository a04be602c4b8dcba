package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"gloom/cmd/internal/failpoint"
)

// Accept implements Store. For each target it reads one range of the index, which is in the
// order of ids; one read for all targets would have to sort and lock every waiting row.
func (s *SQL) Accept(ctx context.Context, wants []Want, limit int) (Page, error) {
	adopted, err := s.Resolve(ctx)
	if err != nil {
		return Page{}, err
	}
	if limit <= 0 {
		limit = page
	}
	var p Page
	err = s.transact(ctx, "accept", func(tx *sql.Tx) error {
		p = Page{}
		cut := make(map[string]bool)
		for _, want := range wants {
			rows, more, err := s.waiting(ctx, tx, want, limit)
			if err != nil {
				return err
			}
			cut[want.Target] = more
			p.Rows = append(p.Rows, rows...)
		}
		slices.SortFunc(p.Rows, byRowID)
		if len(p.Rows) > limit {
			for _, row := range p.Rows[limit:] {
				cut[row.Target] = true
			}
			p.Rows = p.Rows[:limit]
		}
		for _, want := range wants {
			if cut[want.Target] {
				p.More = append(p.More, want.Target)
			}
		}
		failpoint.Point("accept: rows locked")
		if err := s.acceptLocked(ctx, tx, p.Rows, Waiting); err != nil {
			return err
		}
		return s.passedOver(ctx, tx, &p, wants, cut)
	})
	if ofRow(err) && s.passedOverCount() < maxPassedOver {
		return s.acceptOneByOne(ctx, p.Rows, Page{Rows: adopted, More: targetsOf(wants)})
	}
	if err != nil {
		if undecided(err) {
			s.addDoubt(p.Rows, false)
		}
		if len(adopted) > 0 {
			// These rows are ours: the error must not hide them. If it persists, the
			// next Accept returns it.
			return Page{Rows: adopted, More: targetsOf(wants)}, nil
		}
		return Page{}, err
	}
	s.noteClaims(p.Rows, false)
	p.Rows = append(adopted, p.Rows...)
	return p, nil
}

const (
	// maxPassedOver is the most rows that are passed over at a time. If more are refused, the
	// reason is not in the rows.
	maxPassedOver = 1000
	// passOverFor is how long a refused row is passed over.
	passOverFor = time.Minute
)

// acceptOneByOne accepts rows one by one after an update of all of them together was refused, for example
// because a trigger refuses one row.
func (s *SQL) acceptOneByOne(ctx context.Context, rows []Row, p Page) (Page, error) {
	for _, row := range rows {
		var taken []Row
		err := s.transact(ctx, "accept", func(tx *sql.Tx) (err error) {
			taken, err = s.rows(ctx, tx, fmt.Sprintf("SELECT id, target, %s FROM %s%s WHERE id = %d AND status = 'waiting' FOR UPDATE%s",
				s.priority(), s.table().name, byID, row.ID, s.skip))
			if err != nil {
				return err
			}
			return s.acceptLocked(ctx, tx, taken, Waiting)
		})
		switch {
		case err == nil:
			s.noteClaims(taken, false)
			p.Rows = append(p.Rows, taken...)
		case ofRow(err):
			s.passOver(row.ID)
			s.opt.Log.Error().Err(err).Int64("id", row.ID).Str("target", row.Target).Dur("again", passOverFor).Msg("row cannot be accepted; it is passed over for a while")
		default:
			if undecided(err) {
				s.addDoubt(taken, false)
			}
			if len(p.Rows) > 0 {
				return p, nil // if the error persists, the next Accept returns it
			}
			return Page{}, err
		}
	}
	return p, nil
}

func (s *SQL) passOver(id int64) {
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

// allowed returns an SQL condition that excludes the rows that are passed over.
func (s *SQL) allowed() string {
	if s.passedOverCount() == 0 {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return " AND id NOT IN (" + list(slices.Sorted(maps.Keys(s.passedOverUntil))) + ")"
}

func byRowID(a, b Row) int { return cmp.Compare(a.ID, b.ID) }

func targetsOf(wants []Want) []string {
	names := make([]string, len(wants))
	for i, want := range wants {
		names[i] = want.Target
	}
	return names
}

// waiting reads and locks the first waiting rows of a target or, if they have a priority, the best
// of the first limit. more says that there may be more rows.
func (s *SQL) waiting(ctx context.Context, tx *sql.Tx, want Want, limit int) (rows []Row, more bool, err error) {
	most := min(want.Rows, limit)
	if !s.table().hasPrio || most == limit {
		if rows, err = s.readFirst(ctx, tx, want.Target, most, " FOR UPDATE"+s.skip); err != nil {
			return nil, false, err
		}
		more = len(rows) == most
	} else if rows, more, err = s.lockBest(ctx, tx, want.Target, most, limit); err != nil {
		return nil, false, err
	}
	// A name that the column's charset cannot represent may match another name.
	return slices.DeleteFunc(rows, func(r Row) bool { return r.Target != want.Target }), more, nil
}

// readFirst reads the first waiting rows of a target.
func (s *SQL) readFirst(ctx context.Context, tx *sql.Tx, target string, most int, how string) ([]Row, error) {
	return s.rows(ctx, tx, fmt.Sprintf("SELECT id, target, %s FROM %s%s WHERE status = 'waiting' AND %s AND %s%s ORDER BY id LIMIT %d%s",
		s.priority(), s.table().name, s.table().force(), s.table().target, claimable, s.allowed(), most, how), target, target)
}

// lockBest locks the rows of the highest priority among the first limit rows. It reads these without
// locks, and then locks rows until there are enough, skipping rows that others have taken
// meanwhile.
func (s *SQL) lockBest(ctx context.Context, tx *sql.Tx, target string, most, limit int) (taken []Row, more bool, err error) {
	seen, err := s.readFirst(ctx, tx, target, limit, "")
	if err != nil {
		return nil, false, err
	}
	more = len(seen) == limit
	slices.SortStableFunc(seen, func(a, b Row) int { return cmp.Compare(b.Priority, a.Priority) })
	for len(seen) > 0 && len(taken) < most {
		n := min(most-len(taken), len(seen))
		ids := make([]int64, n)
		for i, row := range seen[:n] {
			ids[i] = row.ID
		}
		rows, err := s.rows(ctx, tx, "SELECT id, target, "+s.priority()+" FROM "+s.table().name+byID+
			" WHERE id IN ("+list(ids)+") AND status = 'waiting' ORDER BY id FOR UPDATE"+s.skip)
		if err != nil {
			return nil, false, err
		}
		taken, seen = append(taken, rows...), seen[n:]
	}
	return taken, more || len(seen) > 0, nil
}

func (s *SQL) priority() string {
	if s.table().hasPrio {
		return "COALESCE(CAST(priority AS SIGNED), 0)"
	}
	return "0"
}

func (s *SQL) rows(ctx context.Context, tx *sql.Tx, query string, args ...any) ([]Row, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []Row
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
	for i, row := range rows {
		ids[i] = row.ID
	}
	s.forgetClaims(ids)
	s.settled(s.doubts(), ids) // an earlier accept was undone, or the row was reset
	if s.opt.Fields {
		if err := s.readFields(ctx, tx, rows); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+s.table().name+byID+" SET status = 'accepted' WHERE id IN ("+list(ids)+")"); err != nil {
		return err
	}
	failpoint.Point("accept: rows updated")
	if !s.claimed {
		return nil
	}
	if err := s.alive(ctx, tx); err != nil {
		return err
	}
	claims := make([]any, 0, 4*len(ids))
	token, owner := s.Token(), s.owner()
	for _, id := range ids {
		claims = append(claims, id, token, from == Manual, owner)
	}
	// If a claim already exists, the status of its row was reset by hand.
	_, err := tx.ExecContext(ctx, "REPLACE INTO "+s.table().claims+claimValues(len(ids)), claims...)
	failpoint.Point("accept: rows claimed")
	return err
}

// alive returns ErrFenced unless our lease is valid, and locks our record until the transaction
// ends, so that a daemon that settles this incarnation later sees the claims made here.
func (s *SQL) alive(ctx context.Context, tx *sql.Tx) error {
	own, err := s.existing(ctx, tx, fmt.Sprintf("SELECT id FROM %s WHERE id = %d AND lease IS NOT NULL LOCK IN SHARE MODE", s.table().claims, -s.Token()))
	if err == nil && len(own) == 0 {
		err = ErrFenced
	}
	return err
}

// passedOver finds the targets with waiting rows that this transaction could not see
// because they were locked.
func (s *SQL) passedOver(ctx context.Context, tx *sql.Tx, p *Page, wants []Want, cut map[string]bool) error {
	if s.skip == "" {
		return nil
	}
	for _, target := range targetsOf(wants) {
		if cut[target] {
			continue
		}
		var name string
		err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT target FROM %s%s WHERE status = 'waiting' AND %s AND %s LIMIT 1",
			s.table().name, s.table().force(), s.table().target, claimable), target, target).Scan(&name)
		if err == nil && name == target {
			p.Busy = append(p.Busy, target)
		} else if err != nil && err != sql.ErrNoRows {
			return err
		}
	}
	return nil
}

// AcceptManual implements Store.
func (s *SQL) AcceptManual(ctx context.Context, ids []int64, serves func(string) bool) ([]Request, error) {
	answers := make(map[int64]Request, len(ids))
	for part := range slices.Chunk(ids, page) {
		var taken []Row
		err := s.transact(ctx, "manual", func(tx *sql.Tx) error {
			found, err := s.states(ctx, tx, part)
			if err != nil {
				return err
			}
			taken = nil
			var ignored []int64
			for id, r := range found {
				r.Accepted = r.Status == Manual && serves(r.Row.Target)
				if r.Accepted {
					taken = append(taken, r.Row)
				} else if r.Status == Manual || r.Status == Waiting {
					ignored = append(ignored, id)
				}
				found[id] = r
			}
			slices.SortFunc(taken, byRowID)
			failpoint.Point("manual: rows locked")
			if err := s.acceptLocked(ctx, tx, taken, Manual); err != nil {
				return err
			}
			for _, row := range taken { // acceptLocked has added their fields
				found[row.ID] = Request{Row: row, Found: true, Accepted: true}
			}
			maps.Copy(answers, found)
			if len(ignored) == 0 {
				return nil
			}
			slices.Sort(ignored)
			_, err = tx.ExecContext(ctx, "UPDATE "+s.table().name+byID+" SET status = 'ignored' WHERE id IN ("+list(ignored)+")")
			return err
		})
		if err != nil {
			if undecided(err) {
				s.addDoubt(taken, true)
			}
			s.giveBack(answers, part)
			return nil, err
		}
		s.noteClaims(taken, true)
	}
	requests := make([]Request, len(ids))
	for i, id := range ids {
		requests[i] = answers[id]
		requests[i].Row.ID = id
	}
	return requests, nil
}

// giveBack makes Resolve return, too, the rows that earlier parts of a failed AcceptManual have
// accepted.
func (s *SQL) giveBack(answers map[int64]Request, failed []int64) {
	var rows []Row
	for id, r := range answers {
		if r.Accepted && !slices.Contains(failed, id) {
			rows = append(rows, r.Row)
		}
	}
	s.addDoubt(rows, true)
}

// states reads and locks rows by id.
func (s *SQL) states(ctx context.Context, tx *sql.Tx, ids []int64) (map[int64]Request, error) {
	rows, err := tx.QueryContext(ctx, "SELECT id, target, status, "+s.priority()+" FROM "+s.table().name+byID+
		" WHERE id IN ("+list(ids)+") ORDER BY id FOR UPDATE")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[int64]Request, len(ids))
	for rows.Next() {
		r := Request{Found: true}
		if err := rows.Scan(&r.Row.ID, &r.Row.Target, &r.Status, &r.Row.Priority); err != nil {
			return nil, err
		}
		found[r.Row.ID] = r
	}
	return found, rows.Err()
}

func (s *SQL) addDoubt(rows []Row, manual bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		s.doubt[row.ID] = &doubt{manual}
	}
}

func (s *SQL) doubts() map[int64]*doubt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.doubt)
}

// Resolve implements Store. Its read waits for a transaction that is still in progress, so its
// answer is final.
func (s *SQL) Resolve(ctx context.Context) ([]Row, error) {
	doubt, token := s.doubts(), s.Token()
	if len(doubt) == 0 {
		return nil, nil
	}
	ids := slices.Sorted(maps.Keys(doubt))
	if !s.claimed {
		s.opt.Log.Warn().Ints64("ids", ids).Msg("connection was lost while rows were accepted: without the companion table they may be left accepted")
		s.settled(doubt, ids)
		return nil, nil
	}
	var adopted []Row
	var back []int64
	err := s.transact(ctx, "resolve", func(tx *sql.Tx) error {
		mine, err := s.rows(ctx, tx, "SELECT c.id, j.target, "+s.joinedPriority()+" FROM "+s.table().claims+" c"+byID+
			" STRAIGHT_JOIN "+s.table().name+" j"+byID+" ON j.id = c.id WHERE c.id IN ("+list(ids)+
			") AND c.token = ? AND j.status = 'accepted' FOR UPDATE", token)
		if err != nil {
			return err
		}
		adopted, back = nil, nil
		now := s.doubts()
		for _, row := range mine {
			switch d := doubt[row.ID]; {
			case now[row.ID] != d: // accepted again meanwhile
			case d.manual:
				back = append(back, row.ID)
			default:
				adopted = append(adopted, row)
			}
		}
		if s.opt.Fields && len(adopted) > 0 {
			if err := s.readFields(ctx, tx, adopted); err != nil {
				return err
			}
		}
		return s.restoreStatus(ctx, tx, back, "manual")
	})
	if err != nil {
		return nil, err
	}
	s.settled(doubt, ids)
	s.forgetClaims(back)
	s.noteClaims(adopted, false)
	return adopted, nil
}

func (s *SQL) joinedPriority() string {
	if s.table().hasPrio {
		return "COALESCE(CAST(j.priority AS SIGNED), 0)"
	}
	return "0"
}

// settled removes the given doubts about rows, but not later doubts about the same rows.
func (s *SQL) settled(doubt map[int64]*doubt, ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.doubt[id] == doubt[id] {
			delete(s.doubt, id)
		}
	}
}

// restoreStatus gives accepted rows their old status and removes their claims.
func (s *SQL) restoreStatus(ctx context.Context, tx *sql.Tx, ids []int64, status string) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+s.table().name+byID+" SET status = ? WHERE id IN ("+list(ids)+")", status); err != nil {
		return err
	}
	return s.unclaim(ctx, tx, ids)
}

func (s *SQL) unclaim(ctx context.Context, tx *sql.Tx, ids []int64) error {
	if len(ids) == 0 || !s.claimed {
		return nil
	}
	_, err := tx.ExecContext(ctx, "DELETE FROM "+s.table().claims+" WHERE id IN ("+list(ids)+")")
	return err
}
