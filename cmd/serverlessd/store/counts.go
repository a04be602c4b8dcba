package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
)

// tally is by how much a transaction changes the counts of a type. Those of a
// type stand in several rows, which are added up: daemons do not wait for each
// other over them.
type tally struct {
	open, running, ok, failed, abandoned, expired, deleted int
}

func (t *tx) count(jobtype string) *tally {
	c := t.counts[jobtype]
	if c == nil {
		c = &tally{}
		t.counts[jobtype] = c
	}
	return c
}

func (c *tally) add(d tally) {
	c.open += d.open
	c.running += d.running
	c.ok += d.ok
	c.failed += d.failed
	c.abandoned += d.abandoned
	c.expired += d.expired
	c.deleted += d.deleted
}

// ended is the count of a job that ended so.
func (c *tally) ended(code string) *int {
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

// writeCounts comes last in a transaction, and in the order of the types: who
// writes the same rows waits shortly, and never in a circle.
func (t *tx) writeCounts() {
	for _, jobtype := range slices.Sorted(maps.Keys(t.counts)) {
		c := *t.counts[jobtype]
		if c == (tally{}) {
			continue
		}
		t.later("INSERT INTO sq_counts (type, slot, open, running, ok, failed, abandoned, expired, deleted) VALUES "+marks(9)+
			t.s.upsert("type, slot", nil, countColumns),
			jobtype, t.s.slot, c.open, c.running, c.ok, c.failed, c.abandoned, c.expired, c.deleted)
	}
}

// Counts implements Store.
func (s *SQL) Counts(ctx context.Context, client string) (all map[string]Counts, err error) {
	from, to := "", "~" // behind all names
	if client != "" {
		from, to = client+"-", client+"."
	}
	err = s.look(ctx, func(ctx context.Context, q querier, _ time.Time) error {
		all = make(map[string]Counts)
		return each(ctx, q, "SELECT type, SUM(open), SUM(running), SUM(ok), SUM(failed), SUM(abandoned), SUM(expired), SUM(deleted)"+
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
	return s.look(ctx, func(ctx context.Context, q querier, now time.Time) error {
		for jobtype, c := range all {
			if c.Waiting+c.Deferred == 0 {
				continue
			}
			c.Waiting, c.Deferred = c.Waiting+c.Deferred, 0 // as before a conflict
			var oldest moment
			err := each(ctx, q, "SELECT COUNT(*), (SELECT MIN(dt) FROM sq_jobs WHERE type = ? AND `lock` = '')"+
				" FROM sq_jobs WHERE type = ? AND `lock` = '' AND dt > ?", []any{jobtype, jobtype, at(now)}, func(r *sql.Rows) error {
				return r.Scan(&c.Deferred, &oldest)
			})
			if err != nil {
				return err
			}
			c.Deferred = min(c.Deferred, c.Waiting) // some may have come in between
			if c.Waiting -= c.Deferred; c.Waiting > 0 {
				c.Oldest = max(0, now.Sub(oldest.time()))
			}
			all[jobtype] = c
		}
		return nil
	})
}
