package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gloom/cmd/internal/unique"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// ErrDraining is the error of Add while the daemon is stopping.
var ErrDraining = errors.New("the daemon is stopping and accepts no more jobs")

// Add accepts all batches of lines, or none.
func (e *Engine) Add(ctx context.Context, batches []journal.Batch) (journal.Receipt, error) {
	if e.isLeaving() {
		return journal.Receipt{}, ErrDraining
	}
	r, err := e.journal.Append(ctx, batches)
	switch {
	case errors.Is(err, journal.ErrClosed):
		return r, ErrDraining
	case err != nil:
		return r, err
	}
	n := 0
	for i := range batches {
		n += len(batches[i].Lines)
	}
	e.metrics.addedJobs.Add(float64(n))
	return r, nil
}

// AddUnique adds all jobs with their unique keys, or none. The jobs go to the first store and not
// through the journal, because only the store knows which job holds a key.
func (e *Engine) AddUnique(ctx context.Context, lines []store.KeyedEntry, req unique.Request) ([]store.UniqueResult, error) {
	if e.isLeaving() {
		return nil, ErrDraining
	}
	size := int64(0)
	for i := range lines {
		size += int64(len(lines[i].Payload) + len(lines[i].Key))
	}
	if err := e.journal.CheckSpace(size); err != nil {
		return nil, err
	}
	first, now := e.ids.Next(len(lines)), time.Now()
	for i := range lines {
		lines[i].ID, lines[i].Accepted = first.Add(i), now
	}
	b := e.scheduleStore()
	if err := b.checkReachable(); err != nil {
		return nil, err
	}
	shared, err := b.store.AddUnique(ctx, lines, req, time.Now)
	if err := b.noteRequest(ctx, err); err != nil {
		return nil, err
	}
	for i := range shared {
		if shared[i].Made() {
			e.metrics.addedJobs.Inc()
			e.events.logAdded(lines[i].ID, lines[i].Jobtype)
		}
	}
	b.wakePick()
	return shared, nil
}

// Stored waits until a store has all jobs of a receipt, or ctx is done. It returns
// journal.ErrSetAside if no store will ever take the jobs.
func (e *Engine) Stored(ctx context.Context, r journal.Receipt) error {
	e.ingestNow()
	return e.journal.Stored(ctx, r)
}

// find asks one store after the other for a job. If no store has the job, it returns ErrAway if a
// store could not be asked, and a *journal.AsideError if the job was set aside.
func (e *Engine) find(ctx context.Context, id job.ID, lookUp func(b *backend) error) error {
	missing := cmp.Or(e.journal.CheckAside(id), error(store.ErrUnknown))
	for _, b := range e.backends {
		err := b.noteRequest(ctx, lookUp(b))
		switch {
		case errors.Is(err, store.ErrUnknown):
		case errors.Is(err, store.ErrAway):
			missing = err
		default:
			return err
		}
	}
	return missing
}

// Job returns the record of a job.
func (e *Engine) Job(ctx context.Context, id job.ID) (rec *store.Record, err error) {
	for again := range 2 {
		entry, waits, unread := e.journal.Find(id)
		if err = e.find(ctx, id, func(b *backend) (err error) {
			rec, err = b.store.Job(ctx, id)
			return err
		}); err == nil {
			if rec.State == job.Waiting && rec.Code == "" && !e.handlers.contains(rec.Jobtype) {
				rec.Code = job.CodeNoHandler
			}
			return rec, nil
		}
		if waits {
			return recordOfEntry(&entry), nil
		}
		if unread != nil {
			return nil, errors.Join(store.ErrAway, unread)
		}
		if again > 0 || !errors.Is(err, store.ErrUnknown) {
			break
		}
		// The job may have moved from the journal to the store between the two searches, so the
		// store is asked again.
	}
	return nil, err
}

// recordOfEntry returns the record of a job that only the journal has.
func recordOfEntry(entry *journal.Entry) *store.Record {
	rec := &store.Record{ID: entry.ID, Jobtype: entry.Jobtype, State: job.Waiting, Created: entry.Accepted, Due: entry.Due, Bytes: int64(len(entry.Payload)), Runs: []store.PastRun{}}
	if rec.Due.IsZero() {
		rec.Due = entry.Accepted
	} else if time.Now().Before(rec.Due) {
		rec.State = job.Deferred
	}
	return rec
}

// Result returns a job's data. If the data is longer than limit, Result returns nil, and the record
// has the size.
func (e *Engine) Result(ctx context.Context, id job.ID, limit int) (rec *store.Record, data []byte, err error) {
	err = e.find(ctx, id, func(b *backend) (err error) {
		rec, data, err = b.store.Result(ctx, id, limit)
		return err
	})
	return rec, data, err
}

// Delete removes a waiting job.
func (e *Engine) Delete(ctx context.Context, id job.ID) error {
	return e.changeStored(ctx, id, store.Store.Delete)
}

// Hasten makes a waiting job due now.
func (e *Engine) Hasten(ctx context.Context, id job.ID) error {
	return e.changeStored(ctx, id, store.Store.Hasten)
}

// Retry makes an ended job run again.
func (e *Engine) Retry(ctx context.Context, id job.ID) error {
	if _, waits, _ := e.journal.Find(id); waits {
		return store.ErrNotDone
	}
	return e.change(ctx, id, store.Store.Retry)
}

// storedWait limits the time that a change waits until a store has the job.
const storedWait = 10 * time.Second

// changeStored changes a job as soon as a store has it.
func (e *Engine) changeStored(ctx context.Context, id job.ID, fn func(store.Store, context.Context, job.ID) error) error {
	e.ingestNow()
	wait, cancel := context.WithTimeout(ctx, storedWait)
	defer cancel()
	if err := e.journal.AwaitStored(wait, id); err != nil {
		return errors.Join(store.ErrAway, err)
	}
	return e.change(ctx, id, fn)
}

func (e *Engine) change(ctx context.Context, id job.ID, fn func(store.Store, context.Context, job.ID) error) error {
	return e.find(ctx, id, func(b *backend) error {
		err := fn(b.store, ctx, id)
		if err == nil {
			b.wakePick()
		}
		return err
	})
}

// Payload returns the payload with which a job was added. If a store has the job and the payload is
// longer than limit, Payload returns nil, and the record has the size.
func (e *Engine) Payload(ctx context.Context, id job.ID, limit int) (rec *store.Record, data []byte, err error) {
	for range 2 { // the job may move from the journal to the store between the two searches
		if entry, waits, _ := e.journal.Find(id); waits {
			return recordOfEntry(&entry), entry.Payload, nil
		}
		err = e.find(ctx, id, func(b *backend) (err error) {
			rec, data, err = b.store.Payload(ctx, id, limit)
			return err
		})
		if !errors.Is(err, store.ErrUnknown) {
			break
		}
	}
	return rec, data, err
}

// Jobs lists jobs of one client or of all, newest first. It also returns the id from which the next
// call continues, or "" if there are no more jobs.
func (e *Engine) Jobs(ctx context.Context, q store.Query) (records []store.Record, next job.ID, err error) {
	for _, b := range e.backends {
		page, after, err := b.store.Jobs(ctx, q)
		if err := b.noteRequest(ctx, err); err != nil {
			return nil, "", err
		}
		records, next = append(records, page...), max(next, after)
	}
	slices.SortFunc(records, func(a, b store.Record) int { return cmp.Compare(b.ID, a.ID) })
	// A store may not have returned all its jobs that are older than next.
	if end := slices.IndexFunc(records, func(r store.Record) bool { return r.ID < next }); end >= 0 {
		records = records[:end]
	}
	if len(records) > q.Limit {
		records = records[:q.Limit]
		next = records[q.Limit-1].ID
	}
	return records, next, nil
}

// RetryAll makes up to q.Limit jobs run again, and reports whether there are more.
func (e *Engine) RetryAll(ctx context.Context, q store.Query) (affected int, more bool, err error) {
	for _, b := range e.backends {
		q := q
		q.Limit -= affected
		if q.Limit <= 0 {
			return affected, true, nil
		}
		n, rest, err := b.store.RetryAll(ctx, q)
		affected, more = affected+n, more || rest
		if err := b.noteRequest(ctx, err); err != nil {
			return affected, true, err
		}
		b.wakePick()
	}
	return affected, more, nil
}

// State counts the jobs by jobtype, of one client unless client is "". A job that moves from the
// journal to a store meanwhile is counted once.
func (e *Engine) State(ctx context.Context, client string) (map[string]store.Counts, error) {
	return e.count(ctx, client, true)
}

// count counts the jobs by jobtype, of one client unless client is "". A count that need not be
// exact delays no other call. It may count a job twice, or not at all, if the job moves from the
// journal to a store meanwhile.
func (e *Engine) count(ctx context.Context, client string, exact bool) (map[string]store.Counts, error) {
	types := make(map[string]store.Counts)
	add := func(jobtype string, c store.Counts) {
		if owner, _, _ := job.SplitJobtype(jobtype); client == "" || owner == client {
			sum := types[jobtype]
			sum.Add(&c)
			types[jobtype] = sum
		}
	}
	var watches []*journal.Watch
	for _, b := range e.backends {
		counts, watch, err := b.counts(ctx, client, exact)
		if err != nil {
			return nil, err
		}
		if exact {
			defer watch.Close()
			watches = append(watches, watch)
		}
		if err := b.noteRequest(ctx, b.store.Divide(ctx, counts)); err != nil {
			return nil, err
		}
		for jobtype, c := range counts {
			add(jobtype, c)
		}
	}
	for jobtype, w := range e.journal.Waiting(watches...) {
		add(jobtype, store.Counts{Added: w.Jobs, Deferred: w.Delayed, Waiting: w.Jobs - w.Delayed})
	}
	for jobtype, n := range e.journal.SetAsideJobs() {
		add(jobtype, store.Counts{Added: n, SetAside: n})
	}
	return types, nil
}

// counts returns the counts of a store and, if they must be exact, a watch of the jobs that move
// there from the journal afterwards.
func (b *backend) counts(ctx context.Context, client string, exact bool) (counts map[string]store.Counts, watch *journal.Watch, err error) {
	if err := b.checkReachable(); err != nil {
		return nil, nil, err
	}
	if exact {
		if b.transit.Acquire(ctx, 1) != nil {
			return nil, nil, errors.Join(store.ErrAway, context.Cause(ctx))
		}
		defer b.transit.Release(1)
		if err := b.checkReachable(); err != nil { // the counts before this one may have waited in vain
			return nil, nil, err
		}
		ctx = store.OwnCalls(ctx) // ingest waits for transit, so this call must not wait for other requests
	}
	counts, err = b.store.Counts(ctx, client)
	if err := b.noteRequest(ctx, err); err != nil {
		return nil, nil, err
	}
	if exact {
		watch = b.engine.journal.Watch(b.lane)
	}
	return counts, watch, nil
}
