package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gloom/cmd/serverlessd/job"
)

// maxRead limits the bytes of the lines in a reservation, unless it has only one record.
const maxRead = 4 << 20

// Reservation is a piece that a lane has reserved at the front of the journal.
type Reservation struct {
	Range
	journal  *Journal
	segment  *segment
	reader   string // the lane that has reserved it
	lane     string // the lane to which it belongs; "": any lane may read it
	entries  []Entry
	setAside []Entry // jobs that were set aside
	deadline time.Time
}

// Read returns the reserved entries without those that were set aside.
func (r *Reservation) Read() []Entry { return r.entries }

// Reserve reserves records at the front of a lane: with at most n lines in all, or one larger
// record. It waits until there is a record. If the reservation is not synced before the timeout,
// its records return to the front.
func (j *Journal) Reserve(ctx context.Context, lane string, n int, timeout time.Duration) (*Reservation, error) {
	for {
		r, readable, err := j.reserve(lane, n, timeout)
		if r != nil || err != nil {
			return r, err
		}
		expiry, stop := j.expiry()
		select {
		case <-ctx.Done():
		case <-readable:
		case <-expiry:
		}
		stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// reserve returns a reservation. If there is nothing to reserve, it returns a channel that is
// closed when there may be something.
func (j *Journal) reserve(lane string, n int, timeout time.Duration) (*Reservation, chan struct{}, error) {
	j.readMu.Lock()
	defer j.readMu.Unlock()
	for {
		j.mu.Lock()
		if j.closed {
			j.mu.Unlock()
			return nil, nil, ErrClosed
		}
		if len(j.earlierSegments) > 0 {
			j.mu.Unlock()
			if err := j.readEarlier(); err != nil {
				return nil, nil, err
			}
			j.mu.Lock()
		}
		j.expire()
		r, to := j.nextPiece(lane)
		readable := j.readable
		j.mu.Unlock()
		if r == nil {
			return nil, readable, nil
		}
		own := r.lane != ""
		if err := j.read(r, to, n); err != nil {
			return nil, nil, err
		}
		if !own && r.hasJobs() {
			err := j.saveNotes()
			if len(j.opt.Lanes) > 1 {
				err = j.noteReservation(lane, r)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		j.mu.Lock()
		j.reserveTo(r, to)
		if r.hasJobs() {
			r.reader, r.deadline = lane, time.Now().Add(timeout)
			j.reservations = append(j.reservations, r)
			j.mu.Unlock()
			return r, nil, nil
		}
		oldSegments := j.finish(r.segment, r.From, r.To) // the whole piece is damaged, and was set aside
		j.mu.Unlock()
		j.remove(oldSegments)
	}
}

// nextPiece returns where a lane's next reservation begins, and where it must end.
func (j *Journal) nextPiece(lane string) (r *Reservation, to int64) {
	for _, b := range j.rereads {
		if b.lane == lane || b.lane == "" {
			return &Reservation{journal: j, segment: j.segment(b.Segment), lane: b.lane, Range: Range{b.Segment, b.From, b.From}}, b.To
		}
	}
	for _, s := range j.segments {
		if s.reservedTo < s.readableTo {
			return &Reservation{journal: j, segment: s, Range: Range{s.name, s.reservedTo, s.reservedTo}}, s.readableTo
		}
	}
	return nil, 0
}

func (j *Journal) segment(name string) *segment {
	for _, s := range j.segments {
		if s.name == name {
			return s
		}
	}
	return nil
}

// reserveTo makes the next reservation begin where r ends. No other reservation has been taken since r
// began, because only one is read at a time.
func (j *Journal) reserveTo(r *Reservation, to int64) {
	for i := range j.rereads {
		if b := &j.rereads[i]; b.Segment == r.Segment && b.From == r.From && b.To == to {
			if b.From = r.To; r.To == to {
				j.rereads = slices.Delete(j.rereads, i, i+1)
			}
			return
		}
	}
	r.segment.reservedTo = r.To
}

// read reads entries into a reservation.
func (j *Journal) read(r *Reservation, to int64, n int) error {
	var bytes int
	var failed error
	j.mu.Lock()
	asides := len(j.asideJobs) > 0
	j.mu.Unlock()
	err := r.segment.scan(r.From, to, func(at int64, rec record, state recordState) bool {
		if state != recordWhole {
			if failed = j.setAside(r.segment, at, int64(rec.size)); failed != nil {
				return false
			}
			r.To = at + int64(rec.size)
			return true
		}
		if r.hasJobs() && (len(r.entries)+rec.count > n || bytes+len(rec.body) > maxRead) {
			return false
		}
		bytes += len(rec.body)
		id := rec.firstID
		if id == "" && rec.count > 0 {
			id = j.opt.IDs.Next(rec.count)
		}
		i := 0
		for line := range linesOf(rec.body) {
			e := rec.entry(id.Add(i), line, at)
			if i++; asides && j.isAside(e.ID) {
				r.setAside = append(r.setAside, e)
			} else {
				r.entries = append(r.entries, e)
			}
		}
		r.To = at + int64(rec.size)
		return true
	})
	if r.hasJobs() {
		return nil
	}
	return errors.Join(failed, err)
}

// hasJobs reports whether a reservation has jobs. Jobs that were set aside count, because the store
// must still record the piece.
func (r *Reservation) hasJobs() bool { return len(r.entries)+len(r.setAside) > 0 }

// isAside reports whether a job was set aside before. If the rest of its piece was not stored at
// that time, the whole piece is read again, by this process or the next.
func (j *Journal) isAside(id job.ID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.asideJobs[id]
	return ok
}

// setAside copies a damaged piece of a segment to a file.
func (j *Journal) setAside(s *segment, at, size int64) error {
	name := fmt.Sprintf("%s-%d%s", s.id(), at, badSuffix)
	j.asideMu.Lock()
	defer j.asideMu.Unlock()
	fresh, err := j.writeFile(name, size, func(to File) error { return s.copyTo(to, at, size) })
	if fresh {
		j.opt.Log.Error().Str("segment", s.name).Int64("at", at).Int64("bytes", size).Str("copy", name).
			Msg("part of the journal is damaged; its jobs are not run")
		j.mu.Lock()
		defer j.mu.Unlock()
		s.setAside(span{at, at + size})
	}
	return err
}

// SetAside removes jobs that no store accepts from a reservation, and copies them to a file in the
// journal's format.
func (r *Reservation) SetAside(ids []job.ID, cause error) error {
	var records []byte
	keptEntries := make([]Entry, 0, len(r.entries))
	var aside []Entry
	for _, e := range r.entries {
		if !slices.Contains(ids, e.ID) {
			keptEntries = append(keptEntries, e)
			continue
		}
		aside = append(aside, e)
		rec := record{date: e.Accepted, jobtype: e.Jobtype, firstID: e.ID, count: 1, due: e.Due, delay: e.Delay, body: append(slices.Clip(e.Payload), '\n')}
		records = rec.appendTo(records)
	}
	if len(aside) == 0 {
		return nil
	}
	name := string(aside[0].ID) + badSuffix
	r.journal.asideMu.Lock()
	defer r.journal.asideMu.Unlock()
	_, err := r.journal.writeFile(name, int64(len(records)), func(to File) error {
		_, err := to.WriteAt(records, 0)
		return err
	})
	if err != nil {
		return err
	}
	r.journal.mu.Lock()
	r.journal.noteAside(name, aside, cause)
	r.journal.mu.Unlock()
	r.journal.opt.Log.Error().Err(cause).Str("id", string(aside[0].ID)).Int("jobs", len(aside)).Str("copy", name).
		Msg("the store does not accept these jobs; they are not run")
	r.entries, r.setAside = keptEntries, append(r.setAside, aside...)
	return nil
}

// writeFile writes a file of lines that are not run, and counts it. fresh is false if the same file
// was written before. The caller holds asideMu.
func (j *Journal) writeFile(name string, size int64, write func(to File) error) (fresh bool, err error) {
	f, err := j.opt.Files.Create(name)
	if fresh = true; errors.Is(err, os.ErrExist) {
		if n, err := j.fileSize(name); err == nil && n == size {
			return false, nil
		}
		fresh = false // an earlier write of it was cut short
		if err = j.opt.Files.Remove(name); err == nil {
			f, err = j.opt.Files.Create(name)
		}
	}
	if err == nil {
		err = errors.Join(write(f), f.Sync(), f.Close(), j.opt.Files.Sync())
	}
	if err != nil {
		_ = j.opt.Files.Remove(name)
		return false, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.DamagedBytes += size
	if fresh {
		j.stats.AsideFiles++
	}
	return true, nil
}

func (j *Journal) fileSize(name string) (int64, error) {
	f, err := j.opt.Files.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Size()
}

func (s *segment) copyTo(to File, at, size int64) error {
	for done := int64(0); done < size; {
		buf, err := s.read(at+done, min(readAhead, size-done))
		if err != nil {
			return err
		}
		if _, err := to.WriteAt(buf, done); err != nil {
			return err
		}
		done += int64(len(buf))
	}
	return nil
}

// Sync records that the reserved piece is in a store. It returns ErrExpired if the reservation has
// expired: then the piece will be read again.
func (r *Reservation) Sync() error {
	j := r.journal
	j.mu.Lock()
	j.expire()
	if !j.dropReservation(r) {
		j.mu.Unlock()
		return ErrExpired
	}
	for _, e := range r.setAside {
		r.segment.setAside(span{e.End - 1, e.End}) // the job's record
		j.count(e.Jobtype, -1, e.Due)
	}
	for _, e := range r.entries {
		j.count(e.Jobtype, -1, e.Due)
		for _, w := range j.watches {
			if w.lane == r.reader {
				w.synced[e.Jobtype] = w.synced[e.Jobtype].add(1, e.Due)
			}
		}
	}
	oldSegments := j.finish(r.segment, r.From, r.To)
	j.mu.Unlock()
	j.remove(oldSegments)
	return nil
}

// Cancel returns the reserved piece to the front.
func (r *Reservation) Cancel() {
	j := r.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropReservation(r) {
		j.putBack(r)
	}
}

func (j *Journal) dropReservation(r *Reservation) bool {
	i := slices.Index(j.reservations, r)
	if i < 0 {
		return false
	}
	j.reservations = slices.Delete(j.reservations, i, i+1)
	return true
}

func (j *Journal) putBack(r *Reservation) {
	j.rereads = append(j.rereads, lanePiece{r.Range, r.lane})
	slices.SortFunc(j.rereads, func(a, b lanePiece) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.From, b.From))
	})
	j.broadcast(&j.readable)
}

// expire returns pieces to the front that were not synced in time.
func (j *Journal) expire() {
	now := time.Now()
	for _, r := range slices.Clone(j.reservations) {
		if !now.Before(r.deadline) {
			j.dropReservation(r)
			j.putBack(r)
		}
	}
}

// expiry returns a channel that receives a value when the next reservation expires, and the Stop
// method of its timer.
func (j *Journal) expiry() (<-chan time.Time, func() bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.reservations) == 0 {
		return nil, func() bool { return true }
	}
	first := j.reservations[0].deadline
	for _, r := range j.reservations {
		if r.deadline.Before(first) {
			first = r.deadline
		}
	}
	t := time.NewTimer(time.Until(first))
	return t.C, t.Stop
}

// finish records that a piece is in a store, and returns the segments that are no longer needed.
func (j *Journal) finish(s *segment, from, to int64) []*segment {
	s.finish(from, to)
	j.broadcast(&j.synced)
	return j.sweep()
}

// sweep removes the segments whose lines are all in stores from the list, and returns them. It
// keeps the last segment, and each segment that records the end of a kept one.
func (j *Journal) sweep() (removed []*segment) {
	kept := make([]*segment, 0, len(j.segments))
	for i, s := range j.segments {
		needed := len(kept) > 0 && kept[len(kept)-1] == j.segments[i-1] && j.segments[i-1].endRefused
		if s.storedTo < s.readableTo || needed || i == len(j.segments)-1 {
			kept = append(kept, s)
		} else {
			removed = append(removed, s)
		}
	}
	j.segments = kept
	return removed
}

// remove durably deletes segments one by one, the oldest first: as long as a segment exists, the
// next one, which records its end, must exist, too.
func (j *Journal) remove(segments []*segment) {
	if len(segments) == 0 {
		return
	}
	j.removeMu.Lock()
	defer j.removeMu.Unlock()
	j.toRemove = append(j.toRemove, segments...)
	for len(j.toRemove) > 0 {
		s := j.toRemove[0]
		s.file.Close()
		err := j.opt.Files.Remove(s.name)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			err = j.opt.Files.Sync()
		}
		if err != nil {
			j.opt.Log.Warn().Err(err).Msg("cannot remove a segment that is in a store")
			return
		}
		if j.toRemove = j.toRemove[1:]; j.opt.OnRemove != nil {
			j.opt.OnRemove(s.name)
		}
	}
}
