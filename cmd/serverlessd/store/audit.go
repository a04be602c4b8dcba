package store

import (
	"context"
	"database/sql"
	"maps"
	"time"
)

const (
	auditTypes = 16     // number of types that a sweep compares
	auditJobs  = 10_000 // if a type has more waiting jobs, they are not compared
)

// auditState is the progress of the audits. lastType is the last type whose counts have been
// compared; they are compared by name.
type auditState struct {
	lastType                   string
	lastJobtype                string // the last type of a job for which addCounts has searched for counts
	miscounted, lastMiscounted int64  // differences between counts and jobs: in this round through all types, and in the last one
	// miscountedTypes are the types whose counts were wrong when they were last compared, for example
	// because a backup was restored table by table. Their jobs must run all the same.
	miscountedTypes map[string]bool
}

// audit compares the counts of the next few types with the jobs in the store. It compares them in
// one statement, so that the counts and the jobs are of the same moment.
func (s *SQL) audit(ctx context.Context, _ SweepOptions, swept *SweepResult) error {
	s.mu.Lock()
	before := s.audited
	s.mu.Unlock()
	var round auditState
	var compared []string
	err := s.read(ctx, func(ctx context.Context, q querier, _ time.Time) error {
		swept.Miscounted, swept.Imbalance, round, compared = nil, 0, before, nil
		const countJobsOfType = "(SELECT COUNT(*) FROM sq_jobs j WHERE j.type = c.type AND j.`lock` "
		return eachRow(ctx, q, "SELECT c.type, c.open - CASE WHEN c.open > ? THEN c.open ELSE "+countJobsOfType+"= '') END,"+
			" c.running - "+countJobsOfType+"> '' AND j.`lock` < ?) - "+countJobsOfType+"> ?)"+
			" FROM (SELECT type, SUM(open) AS open, SUM(running) AS running FROM sq_counts WHERE type > ? GROUP BY type ORDER BY type LIMIT ?) c",
			[]any{auditJobs, endedLock, endedLock, round.lastType, auditTypes}, func(r *sql.Rows) error {
				var jobtype string
				var open, running int64
				err := r.Scan(&jobtype, &open, &running)
				compared = append(compared, jobtype)
				if open != 0 || running != 0 {
					swept.Miscounted = append(swept.Miscounted, jobtype)
				}
				swept.Imbalance += max(open, -open) + max(running, -running)
				round.lastType = max(round.lastType, jobtype)
				return err
			})
	})
	if err != nil {
		swept.Miscounted, swept.Imbalance = nil, 0
		return err
	}
	round.miscounted += swept.Imbalance
	if len(compared) < auditTypes {
		round = auditState{lastMiscounted: round.miscounted, lastJobtype: round.lastJobtype}
	}
	swept.Imbalance = max(round.miscounted, round.lastMiscounted)
	round.miscountedTypes = maps.Clone(before.miscountedTypes)
	for _, jobtype := range compared {
		delete(round.miscountedTypes, jobtype)
	}
	for _, jobtype := range swept.Miscounted {
		if round.miscountedTypes == nil {
			round.miscountedTypes = make(map[string]bool)
		}
		round.miscountedTypes[jobtype] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audited = round
	return nil
}

// addCounts adds a row of counts to the next few types that have jobs but no counts. Such types
// exist after the restore of a backup in which sq_counts came last. The audit then sees that these
// counts are wrong.
func (s *SQL) addCounts(ctx context.Context, _ SweepOptions, _ *SweepResult) error {
	var lastType string
	var uncounted []string
	err := s.read(ctx, func(ctx context.Context, q querier, _ time.Time) error {
		s.mu.Lock()
		lastType = s.audited.lastJobtype
		s.mu.Unlock()
		uncounted = nil
		for range auditTypes {
			var next sql.NullString
			var counted bool
			err := queryOne(ctx, q, "SELECT j.type, EXISTS(SELECT 1 FROM sq_counts c WHERE c.type = j.type) FROM (SELECT MIN(type) AS type FROM sq_jobs WHERE type > ?) j",
				[]any{lastType}, &next, &counted)
			if err != nil {
				return err
			}
			if lastType = next.String; lastType == "" {
				return nil
			}
			if !counted && lastType != sysidType {
				uncounted = append(uncounted, lastType)
			}
		}
		return nil
	})
	if err == nil && len(uncounted) > 0 {
		err = s.transact(ctx, "add counts", func(t *tx) error {
			for _, jobtype := range uncounted {
				t.add("sq_counts", "type, slot", countColumns, append([]any{jobtype, t.store.slot}, new(Counts).columnPointers()...)...)
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audited.lastJobtype = lastType
	return nil
}
