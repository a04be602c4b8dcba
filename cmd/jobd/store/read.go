package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gloom/cmd/jobd/overview"
)

// Reader reads a table for the pages and tools of operators. Each statement reads a bounded range
// of an index and takes no locks, however many rows there are.
type Reader interface {
	// Counts returns the numbers of rows in a state (Waiting or Manual) by target, including
	// targets that are not served. Targets without such rows are left out.
	Counts(ctx context.Context, status string, served []string) ([]overview.Count, error)

	// List lists rows of a target.
	List(ctx context.Context, q overview.Query) (overview.List, error)

	// Detail returns a row with the end of its output, nil if there is no such row.
	Detail(ctx context.Context, id int64) (*overview.Detail, error)
}

const (
	// maxExamined is the maximum number of rows that a List examines if it filters by result.
	maxExamined = 2000
	// maxCounted is the maximum number of rows of a target that are counted. After countedInAll rows
	// of all targets, the limit for each further target is minCounted.
	maxCounted, countedInAll, minCounted = 10_000, 40_000, 100
	// maxTargets is the maximum number of targets that are found by reading the table, in addition to
	// the served targets.
	maxTargets = 100
	// A Detail has the last outputEnd characters of an output, and the first fieldStart characters of
	// a user's column.
	outputEnd, fieldStart = 1 << 16, 1 << 14
	readTimeout           = 5 * time.Second
	// readableID is the SQL condition that an id fits into an int64.
	readableID = " AND id <= 9223372036854775807"
)

var errNoIndex = errors.New("the table has no index on (status, target, id): its rows are not listed")

// startReading waits for one of the places for readers, and returns a context with readTimeout and the
// table. done must be called to release the place.
func (s *SQL) startReading(ctx context.Context) (_ context.Context, done func(), t *table, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	select {
	case s.readerSlots <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil, nil, nil, ctx.Err()
	}
	s.refreshShape(ctx)
	return ctx, func() { <-s.readerSlots; cancel() }, s.table(), nil
}

// Counts implements Reader.
func (s *SQL) Counts(ctx context.Context, status string, served []string) ([]overview.Count, error) {
	ctx, done, t, err := s.startReading(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if t.index == "" {
		return nil, errNoIndex
	}
	targets := slices.Clone(served)
	if t.canListTargets {
		found, err := s.listTargets(ctx, t, status)
		if err != nil {
			return nil, err
		}
		// The index treats Low and low as equal. Targets are case-sensitive.
		targets = slices.DeleteFunc(targets, func(target string) bool {
			return !slices.ContainsFunc(found, func(f string) bool { return strings.EqualFold(f, target) })
		})
		for _, f := range found {
			if !slices.Contains(targets, f) {
				targets = append(targets, f)
			}
		}
	}
	list, total := []overview.Count{}, 0
	for _, target := range targets[:min(len(targets), 2*maxTargets)] {
		limit := maxCounted
		if total >= countedInAll {
			limit = minCounted
		}
		count, seen, err := s.countRows(ctx, t, status, target, limit)
		if err != nil {
			return nil, err
		}
		total += seen
		if count.Rows > 0 {
			list = append(list, count)
		}
	}
	return list, nil
}

// listTargets returns the targets that have rows in a state. It takes one step in the index for
// each target.
func (s *SQL) listTargets(ctx context.Context, t *table, status string) (list []string, err error) {
	for len(list) < maxTargets {
		query, args := "SELECT target FROM "+t.name+t.indexHint()+" WHERE status = ?", []any{status}
		if len(list) > 0 {
			query, args = query+" AND target > "+t.targetParam, append(args, list[len(list)-1])
		}
		var target string
		err := s.db.QueryRowContext(ctx, query+" ORDER BY target, id LIMIT 1", args...).Scan(&target)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return nil, err
		}
		list = append(list, target)
	}
	return list, nil
}

// countRows counts rows, at most the given number, and returns how many it has read.
func (s *SQL) countRows(ctx context.Context, t *table, status, target string, limit int) (count overview.Count, seen int, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT target, COUNT(*), MIN(id) FROM (SELECT target, id FROM "+t.name+t.indexHint()+
		" WHERE status = ? AND target = "+t.targetParam+readableID+" ORDER BY id LIMIT ?) s GROUP BY BINARY target", status, target, limit)
	if err != nil {
		return count, 0, err
	}
	defer rows.Close()
	first := int64(0)
	for rows.Next() {
		var name string
		var n int
		var id int64
		if err := rows.Scan(&name, &n, &id); err != nil {
			return count, 0, err
		}
		seen += n
		if name == target {
			count.Rows, first = n, id
		}
	}
	if err := rows.Err(); err != nil {
		return count, 0, err
	}
	count.Target, count.More = target, seen == limit
	if t.hasCreated && first != 0 {
		var created int64
		err = s.db.QueryRowContext(ctx, "SELECT time_created FROM "+t.name+primaryKeyHint+" WHERE id = ?", first).Scan(&created)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil // the row was deleted after it was counted
		}
		count.Oldest = unixTime(&created)
	}
	return count, seen, err
}

// rowColumns returns the SQL for the columns that an overview.Row has.
func (t *table) rowColumns() string {
	columns := "id, target, status, result, return_code, sig, time_started, time_finished"
	for _, c := range []struct {
		name    string
		present bool
	}{{"time_created", t.hasCreated}, {"priority", t.hasPrio}} {
		if c.present {
			columns += ", " + c.name
		} else {
			columns += ", NULL"
		}
	}
	return columns
}

// scanRow reads the columns of a row that rowColumns lists, followed by further columns.
func scanRow(rows *sql.Rows, l *overview.Row, extra ...any) error {
	var created, started, finished *int64
	err := rows.Scan(append([]any{&l.ID, &l.Target, &l.Status, &l.Result, &l.Code, &l.Signal, &started, &finished, &created, &l.Priority}, extra...)...)
	l.Created, l.Started, l.Finished = unixTime(created), unixTime(started), unixTime(finished)
	return err
}

// unixTime converts a time in UNIX seconds; 0 and NULL become nil.
func unixTime(unix *int64) *time.Time {
	if unix == nil || *unix == 0 {
		return nil
	}
	return new(time.Unix(*unix, 0).UTC())
}

// List implements Reader.
func (s *SQL) List(ctx context.Context, q overview.Query) (overview.List, error) {
	ctx, done, t, err := s.startReading(ctx)
	if err != nil {
		return overview.List{}, err
	}
	defer done()
	if t.index == "" {
		return overview.List{}, errNoIndex
	}
	limit := q.Limit
	if q.Result != "" {
		limit = maxExamined
	}
	from, order, args := "", "id", []any{q.Status, q.Target}
	if q.From != 0 {
		from, args = " AND id > ?", append(args, q.From)
	}
	if q.Status == Done || q.Status == Ignored {
		order, from = "id DESC", strings.Replace(from, ">", "<", 1)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+t.rowColumns()+" FROM "+t.name+t.indexHint()+" WHERE status = ? AND target = "+t.targetParam+readableID+from+
		" ORDER BY "+order+" LIMIT ?", append(args, limit)...)
	if err != nil {
		return overview.List{}, err
	}
	defer rows.Close()
	list, seen, last := overview.List{Items: []overview.Row{}}, 0, int64(0)
	for len(list.Items) < q.Limit && rows.Next() {
		var l overview.Row
		if err := scanRow(rows, &l); err != nil {
			return overview.List{}, err
		}
		seen, last = seen+1, l.ID
		if l.Target == q.Target && (q.Result == "" || l.Result != nil && *l.Result == q.Result) {
			list.Items = append(list.Items, l)
		}
	}
	if len(list.Items) == q.Limit || seen == limit {
		list.Next = &last
	}
	return list, rows.Err()
}

// Detail implements Reader.
func (s *SQL) Detail(ctx context.Context, id int64) (*overview.Detail, error) {
	ctx, done, t, err := s.startReading(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	columns := t.rowColumns()
	for _, c := range []string{"stdout", "stderr"} {
		columns += fmt.Sprintf(", COALESCE(RIGHT(%s, %d), ''), COALESCE(LENGTH(%s), 0)", c, outputEnd, c)
	}
	for _, f := range t.userColumns {
		if f.isNumber {
			columns += ", " + quotePart(f.name)
		} else {
			columns += fmt.Sprintf(", LEFT(%s, %d)", quotePart(f.name), fieldStart)
		}
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+columns+" FROM "+t.name+primaryKeyHint+" WHERE id = ?", id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	var d overview.Detail
	values := make([]sql.RawBytes, len(t.userColumns))
	extra := []any{&d.Stdout, &d.StdoutBytes, &d.Stderr, &d.StderrBytes}
	for i := range values {
		extra = append(extra, &values[i])
	}
	if err := scanRow(rows, &d.Row, extra...); err != nil {
		return nil, err
	}
	d.Stdout, d.Stderr = strings.ToValidUTF8(d.Stdout, "\ufffd"), strings.ToValidUTF8(d.Stderr, "\ufffd")
	d.Fields, err = t.fieldsJSON(d.ID, values)
	return &d, err
}
