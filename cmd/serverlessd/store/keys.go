package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gloom/cmd/internal/unique"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
)

// KeyedEntry is a new job with its unique key. At most one job of a type holds a key.
type KeyedEntry struct {
	journal.Entry
	Key string
}

// UniqueResult says what AddUnique has done with a line.
type UniqueResult struct {
	ID      job.ID // the job that has the key now
	Outcome string // unique.AnswerKept, AnswerReplaced or AnswerExtended; "": no job had the key
}

// Made reports whether the line became a job.
func (s UniqueResult) Made() bool { return s.Outcome == "" || s.Outcome == unique.AnswerReplaced }

// errRaced means that another transaction has just taken a key. The transaction is repeated, and
// then finds the job that has the key.
var errRaced = errors.New("another transaction has taken the key")

// key is a row of sq_keys, which says with which key a job was added. Of the jobs with the same
// type and key, only one has the column "holds" set. A job keeps its row when another job takes the
// key, so that a later retry can find out whether the key is free.
type key struct {
	id        job.ID
	period    unique.Period
	expiresAt time.Time // of a window
	exists    bool      // whether the job exists
	job       lockedRow
}

// holds reports whether the job of a row holds its key at the time now.
func (k *key) holds(now time.Time) bool {
	switch {
	case k == nil:
		return false
	case k.period == unique.PeriodWindow:
		return now.Before(k.expiresAt)
	case k.period == unique.PeriodWaiting:
		return k.exists && k.job.lock == ""
	}
	return k.exists && k.job.lock != endedLock
}

// holders returns, by name, the keys of a type for which the column holds is set. It locks their
// rows and their jobs.
func (t *tx) holders(jobtype string, names []string) (map[string]*key, error) {
	found := make(map[string]*key)
	var ids []job.ID
	for text, args := range inLists(names) {
		for i, name := range args {
			args[i] = []byte(name.(string)) // keys are compared byte by byte
		}
		err := t.eachRow("SELECT name, id, during, until FROM sq_keys WHERE type = ? AND holds = 1 AND name"+text+t.store.forUpdate(),
			append([]any{jobtype}, args...), func(r *sql.Rows) error {
				var name []byte
				var until sqlTime
				k := &key{}
				err := r.Scan(&name, (*string)(&k.id), &k.period, &until)
				k.expiresAt = until.time()
				found[string(name)] = k
				ids = append(ids, k.id)
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	jobs, err := t.lockAll(ids)
	for _, k := range found {
		k.job, k.exists = jobs[k.id]
	}
	return found, err
}

// deleteKeys takes the keys away from these jobs.
func (t *tx) deleteKeys(ids []job.ID) error {
	for text, args := range inLists(ids) {
		if _, err := t.exec("UPDATE sq_keys SET holds = NULL WHERE id"+text, args...); err != nil {
			return err
		}
	}
	return nil
}

// AddUnique implements Store.
func (s *SQL) AddUnique(ctx context.Context, lines []KeyedEntry, req unique.Request, host func() time.Time) (shared []UniqueResult, err error) {
	err = s.transact(ctx, "share", func(t *tx) error {
		names := make(map[string][]string)
		for _, l := range lines {
			names[l.Jobtype] = append(names[l.Jobtype], l.Key)
		}
		c := uniqueAdd{tx: t, request: req, lead: s.clockAhead(host(), t.now), holders: make(map[string]map[string]*key)}
		for jobtype, list := range names {
			if c.holders[jobtype], err = t.holders(jobtype, list); err != nil {
				return err
			}
		}
		shared = make([]UniqueResult, len(lines))
		for i, l := range lines {
			shared[i] = c.addLine(l)
		}
		return c.write()
	})
	if err != nil && !isStoreError(err) && !errors.Is(err, ErrAway) {
		err = &RefusedError{Err: err} // the request is too large
	}
	return shared, err
}

// uniqueAdd is the state of one call of AddUnique.
type uniqueAdd struct {
	*tx
	request unique.Request
	lead    time.Duration              // how far the store's clock is ahead of the host's
	holders map[string]map[string]*key // rows that hold their keys, by jobtype and key

	rows     []row
	keys     []any    // arguments of the new rows of sq_keys
	freeKeys []job.ID // jobs that must give up their keys
	replaced []lockedRow
}

// addLine decides what is done with a line.
func (c *uniqueAdd) addLine(l KeyedEntry) UniqueResult {
	k := c.holders[l.Jobtype][l.Key]
	r := translate(l.Entry, c.lead, c.now)
	outcome := ""
	if k.holds(c.now) {
		waits := k.exists && k.job.lock == ""
		switch {
		case waits && c.request.Mode == unique.ModeReplace:
			outcome = unique.AnswerReplaced
			c.replaced = append(c.replaced, k.job)
			if k.job.dt.Before(r.dt) && !r.dt.After(c.now) {
				r.dt = k.job.dt // it gets the place of the job that it replaces
			}
		case waits && c.request.Mode == unique.ModeExtend:
			c.extend(k, r.dt)
			return UniqueResult{ID: k.id, Outcome: unique.AnswerExtended}
		default:
			return UniqueResult{ID: k.id, Outcome: unique.AnswerKept}
		}
	} else if k != nil {
		c.freeKeys = append(c.freeKeys, k.id)
	}
	c.rows = append(c.rows, r)
	var until any
	if c.request.Period == unique.PeriodWindow {
		until = formatTime(c.now.Add(c.request.Window))
	}
	c.keys = append(c.keys, string(l.ID), l.Jobtype, []byte(l.Key), 1, uint8(c.request.Period), until)
	// For a later line of the same request with the same key, this job is the holder, and is kept.
	c.holders[l.Jobtype][l.Key] = &key{id: l.ID, exists: true, job: lockedRow{lock: string(l.ID)}}
	return UniqueResult{ID: l.ID, Outcome: outcome}
}

// write applies the decisions of addLine to the store.
func (c *uniqueAdd) write() error {
	if err := c.deleteKeys(c.freeKeys); err != nil {
		return err
	}
	for _, h := range c.replaced {
		c.uncount(h).Deleted++
	}
	if err := c.remove(c.replaced, ""); err != nil {
		return err
	}
	err := c.insertAll("INSERT INTO sq_keys (id, type, name, holds, during, until)", 6, c.keys)
	switch {
	case err != nil && c.store.kind(err) == kindDuplicate:
		return errRaced
	case err != nil:
		return err
	}
	return c.insert(c.rows)
}

// extend delays the job that holds a key until due, but no longer than request.Max after its
// submission. The job never becomes due earlier than it was.
func (c *uniqueAdd) extend(k *key, due time.Time) {
	if limit := k.job.created.Add(c.request.Max); c.request.Max > 0 && due.After(limit) {
		due = limit
	}
	if due.After(k.job.dt) {
		k.job.dt = due
		c.count(k.job.jobtype) // another job may now be the oldest of its type
		c.change(k.job, "dt = ?", formatTime(due))
		c.noteWait(k.job, k.job.tries)
	}
}

// takeKeyAgain gives a job that is to run again its key back. It returns ErrHeld, wrapped, if another
// job holds the key.
func (t *tx) takeKeyAgain(h lockedRow) error {
	var name string
	var until sqlTime
	lost := false
	err := t.eachRow("SELECT name, until FROM sq_keys WHERE id = ? AND holds IS NULL"+t.store.forUpdate(), []any{string(h.id)}, func(r *sql.Rows) error {
		lost = true
		var b []byte
		err := r.Scan(&b, &until)
		name = string(b)
		return err
	})
	if err != nil || !lost || !until.time().IsZero() && !t.now.Before(until.time()) {
		return err
	}
	holders, err := t.holders(h.jobtype, []string{name})
	if err != nil {
		return err
	}
	if k := holders[name]; k.holds(t.now) {
		return fmt.Errorf("%w: job %s holds %q", ErrHeld, k.id, name)
	} else if k != nil {
		if err := t.deleteKeys([]job.ID{k.id}); err != nil {
			return err
		}
	}
	if _, err = t.exec("UPDATE sq_keys SET holds = 1 WHERE id = ?", string(h.id)); err != nil && t.store.kind(err) == kindDuplicate {
		return errRaced
	}
	return err
}

// expireKeys removes keys whose window is over.
func (s *SQL) expireKeys(ctx context.Context, want SweepOptions, swept *SweepResult) error {
	return s.sweepStep(ctx, "lapse", swept, func(t *tx) error {
		ageTime, err := t.ageTime(want.TTL, settleTime)
		if err != nil || ageTime.IsZero() {
			return err
		}
		var ids []job.ID
		err = t.eachRow("SELECT id FROM sq_keys WHERE until <= ? ORDER BY until LIMIT ?"+s.skipLocked(), []any{formatTime(ageTime), want.Limit}, func(r *sql.Rows) error {
			var id job.ID
			err := r.Scan((*string)(&id))
			ids = append(ids, id)
			return err
		})
		if swept.More = swept.More || len(ids) == want.Limit; err != nil {
			return err
		}
		for text, args := range inLists(ids) {
			t.runAtEnd("DELETE FROM sq_keys WHERE id"+text, args...)
		}
		return nil
	})
}
