package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"gloom/cmd/serverlessd/job"
)

// count returns the change that the transaction makes to a type's counts, which are those in
// countColumns. The counts of a type are the sums of several rows, so that daemons do not wait for
// each other's rows.
func (t *tx) count(jobtype string) *Counts {
	c := t.counts[jobtype]
	if c == nil {
		c = &Counts{}
		t.counts[jobtype] = c
	}
	return c
}

// endedCount returns the count of jobs that ended with this code.
func (c *Counts) endedCount(code string) *int64 {
	switch job.StateOf(code) {
	case job.Succeeded:
		return &c.OK
	case job.Failed:
		return &c.Failed
	case job.Expired:
		return &c.Expired
	}
	return &c.Abandoned
}

// countColumns are the columns of sq_counts. Open jobs are waiting jobs and deferred jobs; both are
// counted in Waiting.
const countColumns = "open, running, ok, failed, abandoned, expired, deleted"

// columnPointers returns pointers to the values of countColumns, in that order.
func (c *Counts) columnPointers() []any {
	return []any{&c.Waiting, &c.Running, &c.OK, &c.Failed, &c.Abandoned, &c.Expired, &c.Deleted}
}

// writeCounts writes the changes of counts. It comes last in a transaction and writes the types in
// order, so that transactions that write the same rows wait only briefly and cannot deadlock.
func (t *tx) writeCounts() {
	for _, jobtype := range slices.Sorted(maps.Keys(t.counts)) {
		c := t.counts[jobtype]
		if *c == (Counts{}) {
			continue
		}
		t.add("sq_counts", "type, slot", countColumns, append([]any{jobtype, t.store.slot}, c.columnPointers()...)...)
	}
}

// Counts implements Store.
func (s *SQL) Counts(ctx context.Context, client string) (counts map[string]Counts, err error) {
	from, to := "", "~" // sorts after all types of the client
	if client != "" {
		from, to = client+"-", client+"."
	}
	err = s.read(ctx, func(ctx context.Context, q querier, _ time.Time) error {
		counts = make(map[string]Counts)
		return eachRow(ctx, q, "SELECT type, SUM("+strings.ReplaceAll(countColumns, ", ", "), SUM(")+") FROM sq_counts WHERE type >= ? AND type < ? GROUP BY type", []any{from, to}, func(r *sql.Rows) error {
			var jobtype string
			var c Counts
			if err := r.Scan(append([]any{&jobtype}, c.columnPointers()...)...); err != nil {
				return err
			}
			c.Added = c.Waiting + c.Running + c.OK + c.Failed + c.Abandoned + c.Expired + c.Deleted
			counts[jobtype] = c
			return nil
		})
	})
	return counts, err
}

// Divide implements Store.
func (s *SQL) Divide(ctx context.Context, counts map[string]Counts) error {
	return s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		for jobtype, c := range counts {
			if c.Waiting+c.Deferred == 0 {
				continue
			}
			c.Waiting, c.Deferred = c.Waiting+c.Deferred, 0 // undo what an attempt has done before a conflict
			var oldest sqlTime
			err := queryOne(ctx, q, "SELECT COUNT(*), (SELECT MIN(dt) FROM sq_jobs WHERE type = ? AND `lock` = '')"+
				" FROM sq_jobs WHERE type = ? AND `lock` = '' AND dt > ?", []any{jobtype, jobtype, formatTime(now)}, &c.Deferred, &oldest)
			if err != nil {
				return err
			}
			c.Deferred = min(c.Deferred, c.Waiting) // some jobs may have come between the two queries
			c.Waiting -= c.Deferred
			if c.Waiting > 0 && !oldest.time().IsZero() { // all of them may have been taken meanwhile
				c.Oldest = job.Milliseconds(max(0, now.Sub(oldest.time())))
			}
			counts[jobtype] = c
		}
		return nil
	})
}
