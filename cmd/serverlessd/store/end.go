package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
)

// endedLock is the lock of jobs that have ended. Locks that begin with __ do not expire.
const endedLock = "__done"

// End implements Store.
func (s *SQL) End(ctx context.Context, sysid string, ends []RunEnd) (counted []bool, err error) {
	err = s.transact(ctx, "end", func(t *tx) error {
		counted = make([]bool, len(ends))
		rows, err := t.lockAll(idsOf(ends, func(e *RunEnd) job.ID { return e.ID }))
		if err != nil {
			return err
		}
		var followRows []row
		for i := range ends {
			e := &ends[i]
			h, ok := rows[e.ID]
			switch {
			case ok && e.Action == EndGiveBack && h.fence == e.Fence+1:
				counted[i] = true // an earlier attempt of this call, whose answer was lost, has written it
			case !ok:
			case !h.isRun(e.Run):
				if counted[i], err = t.wasWritten(e, sysid); err != nil {
					return err
				}
			case h.lock == endedLock:
				// An earlier attempt of this call, whose answer was lost, may have written it.
				counted[i] = e.Action == EndArchive && h.code == e.Code && h.exitcode == e.Status
			case h.lock == sysid || h.lock == "":
				counted[i] = true
				t.end(h, e, sysid)
				for _, f := range e.Follow {
					followRows = append(followRows, row{id: f.ID, jobtype: f.Jobtype, dt: t.now, created: t.now, payload: f.Payload})
				}
				delete(rows, e.ID) // a second ending of the same job does not count
			}
		}
		return t.insert(followRows)
	})
	return counted, err
}

// uncount subtracts a row from the counts of its type, and returns the counts.
func (t *tx) uncount(h lockedRow) *Counts {
	c := t.count(h.jobtype)
	switch h.lock {
	case "":
		c.Waiting--
	case endedLock:
		*c.endedCount(h.code)--
	default:
		c.Running--
	}
	return c
}

// countEnded moves a row to the count of the jobs that ended with this code.
func (t *tx) countEnded(h lockedRow, code string) { *t.uncount(h).endedCount(code)++ }

func (t *tx) end(h lockedRow, e *RunEnd, sysid string) {
	c := t.uncount(h)
	switch e.Action {
	case EndArchive:
		t.writeLastRun(sysid, e)
		*c.endedCount(e.Code)++
		t.archive(h, e.Code, e.Status)
		if len(e.Data) > 0 || e.Truncated || e.BadLines > 0 {
			t.put("sq_results", "id", "data, truncated, bad_lines", string(h.id), nonNil(e.Data), e.Truncated, e.BadLines)
		}
	case EndRetry:
		t.writeLastRun(sysid, e)
		c.Waiting++
		t.change(h, "`lock` = '', dt = ?, code = ?, exitcode = ?", formatTime(t.now.Add(e.Delay)), e.Code, e.Status)
	case EndGiveBack:
		c.Waiting++
		t.change(h, "`lock` = '', dt = ?, tries = tries - 1, fence = fence + 1", formatTime(t.now))
		if h.tries > 1 || t.now.Sub(h.firstStart) > maxStep { // otherwise first_dt is as late
			t.noteWait(h, h.tries-1)
		}
	}
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// archive marks a job as ended. The caller changes the counts.
func (t *tx) archive(h lockedRow, code string, status int) {
	var exitcode any
	if status != 0 {
		exitcode = status
	}
	t.change(h, "`lock` = ?, dt = ?, done_dt = ?, code = ?, exitcode = COALESCE(?, exitcode)",
		endedLock, formatTime(dueOfEnded(t.now)), formatTime(t.now), code, exitcode)
}

// change is an update of rows that a transaction has locked.
type change struct {
	set  string
	args []any
	ids  []job.ID
}

// change updates a locked row at the end of the transaction. Rows with the same change are updated
// in one statement.
func (t *tx) change(h lockedRow, set string, args ...any) {
	key := fmt.Sprintf("%s %#v", set, args)
	c := t.changesByText[key]
	if c == nil {
		c = &change{set: set, args: args}
		t.changesByText[key] = c
	}
	c.ids = append(c.ids, h.id)
}

func (t *tx) writeChanges() {
	for _, key := range slices.Sorted(maps.Keys(t.changesByText)) {
		c := t.changesByText[key]
		for text, args := range inLists(c.ids) {
			t.runAtEnd("UPDATE sq_jobs SET "+c.set+" WHERE id"+text, slices.Concat(c.args, args)...)
		}
	}
}

// freeJob removes the lock of a job, which is then due at that time.
func (t *tx) freeJob(h lockedRow, due time.Time, set string, args ...any) {
	c := t.uncount(h)
	c.Waiting++
	t.change(h, "`lock` = '', dt = ?"+set, append([]any{formatTime(due)}, args...)...)
}
