package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
)

// countChange is the change that a transaction makes to a type's counts. The counts of a type are
// the sums of several rows, so that daemons do not wait for each other's rows.
type countChange struct {
	open, running, ok, failed, abandoned, expired, deleted int
}

func (t *tx) count(jobtype string) *countChange {
	c := t.counts[jobtype]
	if c == nil {
		c = &countChange{}
		t.counts[jobtype] = c
	}
	return c
}

func (c *countChange) add(d countChange) {
	c.open += d.open
	c.running += d.running
	c.ok += d.ok
	c.failed += d.failed
	c.abandoned += d.abandoned
	c.expired += d.expired
	c.deleted += d.deleted
}

// ended returns the count of jobs that ended with this code.
func (c *countChange) ended(code string) *int {
	switch job.Ended(code) {
	case job.Succeeded:
		return &c.ok
	case job.Fault:
		return &c.failed
	case job.Expired:
		return &c.expired
	}
	return &c.abandoned
}

var countColumns = []string{"open", "running", "ok", "failed", "abandoned", "expired", "deleted"}

// writeCounts writes the changes of counts. It comes last in a transaction and writes the types in
// order, so that transactions that write the same rows wait only briefly and cannot deadlock.
func (t *tx) writeCounts() {
	for _, jobtype := range slices.Sorted(maps.Keys(t.counts)) {
		c := *t.counts[jobtype]
		if c == (countChange{}) {
			continue
		}
		t.atEnd("INSERT INTO sq_counts (type, slot, open, running, ok, failed, abandoned, expired, deleted) VALUES "+marks(9)+
			t.s.upsert("type, slot", nil, countColumns),
			jobtype, t.s.slot, c.open, c.running, c.ok, c.failed, c.abandoned, c.expired, c.deleted)
	}
}

// Counts implements Store.
func (s *SQL) Counts(ctx context.Context, client string) (all map[string]Counts, err error) {
	from, to := "", "~" // sorts after all names of the client
	if client != "" {
		from, to = client+"-", client+"."
	}
	err = s.read(ctx, func(ctx context.Context, q querier, _ time.Time) error {
		all = make(map[string]Counts)
		return eachRow(ctx, q, "SELECT type, SUM(open), SUM(running), SUM(ok), SUM(failed), SUM(abandoned), SUM(expired), SUM(deleted)"+
			" FROM sq_counts WHERE type >= ? AND type < ? GROUP BY type", []any{from, to}, func(r *sql.Rows) error {
			var jobtype string
			var c Counts
			if err := r.Scan(&jobtype, &c.Waiting, &c.Running, &c.OK, &c.Failed, &c.Abandoned, &c.Expired, &c.Deleted); err != nil {
				return err
			}
			c.Added = c.Waiting + c.Running + c.OK + c.Failed + c.Abandoned + c.Expired + c.Deleted
			all[jobtype] = c
			return nil
		})
	})
	return all, err
}

// Divide implements Store.
func (s *SQL) Divide(ctx context.Context, all map[string]Counts) error {
	return s.read(ctx, func(ctx context.Context, q querier, now time.Time) error {
		for jobtype, c := range all {
			if c.Waiting+c.Deferred == 0 {
				continue
			}
			c.Waiting, c.Deferred = c.Waiting+c.Deferred, 0 // undo what an attempt has done before a conflict
			var oldest moment
			err := eachRow(ctx, q, "SELECT COUNT(*), (SELECT MIN(dt) FROM sq_jobs WHERE type = ? AND `lock` = '')"+
				" FROM sq_jobs WHERE type = ? AND `lock` = '' AND dt > ?", []any{jobtype, jobtype, at(now)}, func(r *sql.Rows) error {
				return r.Scan(&c.Deferred, &oldest)
			})
			if err != nil {
				return err
			}
			c.Deferred = min(c.Deferred, c.Waiting) // some jobs may have come between the two queries
			if c.Waiting -= c.Deferred; c.Waiting > 0 {
				c.Oldest = max(0, now.Sub(oldest.time()))
			}
			all[jobtype] = c
		}
		return nil
	})
}
