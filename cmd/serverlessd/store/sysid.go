package store

import (
	"context"
	"time"

	"gloom/cmd/serverlessd/job"
)

// sysidType is the type of the rows that reserve sysids. It has no hyphen, so it is not the jobtype
// of any client.
const sysidType = "queue.sysid"

// Reserve implements Store.
func (s *SQL) Reserve(ctx context.Context, sysid string, ttl time.Duration) error {
	return s.transact(ctx, "reserve", func(t *tx) error {
		now := formatTime(t.now)
		_, err := t.exec("INSERT INTO sq_jobs (id, type, dt, `lock`, create_dt, first_dt) VALUES "+placeholders(6),
			sysid, sysidType, formatTime(t.now.Add(ttl)), sysid, now, now)
		if err != nil && s.kind(err) == kindDuplicate {
			return ErrTaken
		}
		return err
	})
}

// Renew implements Store.
func (s *SQL) Renew(ctx context.Context, sysid string, ttl time.Duration, runs []Run) (lost []Run, err error) {
	err = s.transact(ctx, "renew", func(t *tx) error {
		lost = nil
		until := formatTime(t.now.Add(ttl))
		n, err := t.exec("UPDATE sq_jobs SET dt = ? WHERE id = ? AND `lock` = ?", until, sysid, sysid)
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrUnknown
		}
		rows, err := t.lockAll(idsOf(runs, func(r *Run) job.ID { return r.ID }))
		if err != nil {
			return err
		}
		for _, r := range runs {
			h, ok := rows[r.ID]
			if !ok || !h.isRun(r) || h.lock != sysid && (h.lock != "" || h.code != job.CodeLockExpired) {
				lost = append(lost, r)
				continue
			}
			t.uncount(h).Running++
			t.change(h, "`lock` = ?, dt = ?", sysid, until)
		}
		return nil
	})
	return lost, err
}

// Leave implements Store.
func (s *SQL) Leave(ctx context.Context, sysid string) error {
	return s.transact(ctx, "leave", func(t *tx) error {
		if _, err := t.exec("UPDATE sq_jobs SET dt = ? WHERE `lock` = ? AND id <> ?", formatTime(longPast), sysid, sysid); err != nil {
			return err
		}
		_, err := t.exec("DELETE FROM sq_jobs WHERE id = ? AND type = ?", sysid, sysidType)
		return err
	})
}
