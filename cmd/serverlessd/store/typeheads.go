package store

import (
	"context"
	"database/sql"
	"time"
)

// maxHeadAge is the time for which a head is used while the count of the type stays the same. The
// time is limited, because the count also stays the same if other daemons add as many jobs as they
// take.
const maxHeadAge = time.Second

// typeHead says when the oldest open job of a type is due. Open jobs are those that wait or are
// deferred.
type typeHead struct {
	oldest  time.Time
	open    int64     // number of open jobs of the type
	askedAt time.Time // when it was read from the store
}

// typeHeads caches heads, because reading a thousand of them would make a pick too slow.
type typeHeads struct {
	byType  map[string]typeHead
	changes int64            // number of calls of dropHeads
	changed map[string]int64 // for each type, the value of changes when its head was last dropped
}

// dropHeads drops the heads of types whose jobs a transaction has changed.
func (s *SQL) dropHeads(counts map[string]*Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads.changes++
	for jobtype := range counts {
		delete(s.heads.byType, jobtype)
		s.heads.changed[jobtype] = s.heads.changes
	}
}

// eachOpenType calls visit for each type that has open jobs, with the dt of the oldest one and
// their number. It reads at most one job of each type.
func (s *SQL) eachOpenType(ctx context.Context, q querier, visit func(jobtype string, oldest time.Time, open int64)) error {
	s.mu.Lock()
	changes := s.heads.changes
	s.mu.Unlock()
	open := make(map[string]int64)
	err := eachRow(ctx, q, "SELECT type, SUM(open) FROM sq_counts WHERE open <> 0 GROUP BY type HAVING SUM(open) > 0", nil, func(r *sql.Rows) error {
		var jobtype string
		var n int64
		err := r.Scan(&jobtype, &n)
		open[jobtype] = n
		return err
	})
	if err != nil {
		return err
	}
	var queries, hits []string
	var known []typeHead
	now := time.Now()
	s.mu.Lock()
	for jobtype := range s.audited.miscountedTypes {
		open[jobtype] = max(open[jobtype], 1) // it may have open jobs
	}
	for jobtype := range s.heads.changed {
		if open[jobtype] == 0 && s.heads.changed[jobtype] <= changes {
			delete(s.heads.changed, jobtype)
			delete(s.heads.byType, jobtype)
		}
	}
	for jobtype, n := range open {
		if h, ok := s.heads.byType[jobtype]; ok && h.open == n && now.Sub(h.askedAt) < maxHeadAge {
			hits, known = append(hits, jobtype), append(known, h)
		} else {
			queries = append(queries, jobtype)
		}
	}
	s.mu.Unlock()
	for i, h := range known {
		visit(hits[i], h.oldest, h.open)
	}
	for text, args := range inLists(queries) {
		err := eachRow(ctx, q, "SELECT t.type, (SELECT j.dt FROM sq_jobs j WHERE j.type = t.type AND j.`lock` = '' ORDER BY j.dt LIMIT 1)"+
			" FROM (SELECT DISTINCT type FROM sq_counts WHERE type"+text+") t", args, func(r *sql.Rows) error {
			var jobtype string
			var oldest sqlTime
			if err := r.Scan(&jobtype, &oldest); err != nil || oldest.time().IsZero() {
				return err
			}
			visit(jobtype, oldest.time(), open[jobtype])
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.heads.changed[jobtype] <= changes {
				s.heads.byType[jobtype] = typeHead{oldest: oldest.time(), open: open[jobtype], askedAt: now}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
