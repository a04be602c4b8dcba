package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gloom/cmd/serverlessd/job"

	"github.com/rs/zerolog"
)

// Errors of Append, and of a Reservation's Sync.
var (
	ErrFull    = errors.New("the journal is full")
	ErrNoSpace = fmt.Errorf("%w: the disk is", ErrFull)
	ErrFailed  = errors.New("the journal could not be written")
	ErrClosed  = errors.New("the journal is closed")
	ErrExpired = errors.New("the reservation is over: others may read what it had")
	// ErrAside is of Stored.
	ErrAside = errors.New("a part is in no store, as it was damaged or no store takes it; a copy is kept in the journal's directory, as *.bad")
)

// Batch is lines of one type, accepted together.
type Batch struct {
	Jobtype string
	Lines   [][]byte      // none empty, without the newline
	Due     time.Time     // zero: at once
	Delay   time.Duration // for so long from now Due was asked for; 0: it was given as a time
}

// Entry is a line that was read.
type Entry struct {
	ID       job.ID
	Jobtype  string
	Payload  []byte // without the newline; the entry's
	Accepted time.Time
	Due      time.Time     // zero: at once
	Delay    time.Duration // of the Batch
	End      int64         // of its record in the segment: what a read point stands before or behind
}

// Range is a piece of a journal: of one segment, whose name is unique in the
// world, and which is never written again once another one is.
type Range struct {
	Segment  string
	From, To int64
}

// Options of a journal. Files, IDs and Log are required.
type Options struct {
	Files Files
	IDs   *job.IDs // of the lines; raised to what the journal has
	Log   zerolog.Logger
	Now   func() time.Time // nil: time.Now

	Max     int64 // bytes that may wait for a store; 0: no limit
	Reserve int64 // bytes of the disk that are left to the stores; 0: none
	Segment int64 // bytes after which the next segment begins; 0: 64 MiB
	NoSync  bool  // appends do not wait for the disk

	// Lanes are the names of those who read, each to a store of its own. Where they
	// are several, Save makes durable which piece went to whom, before it is handed
	// out, and Notes are what it was given last in an earlier life.
	Lanes []string
	Notes []Note
	Save  func([]Note) error
	Gone  func(segment string) // is told of each that is removed; may be nil
}

// Stats are a journal's counters since it was opened, and what it holds.
type Stats struct {
	Bytes int64 // that wait for a store
	Jobs  int64
	Bad   int // *.bad files in the directory

	Syncs        int64
	SyncTime     time.Duration // of all of them
	Failures     int64         // writes and syncs
	Cut, Damaged int64         // bytes: of unfinished records; set aside, or missing
}

// Count is how many jobs of a type wait in the journal, and how many of them
// were added with a delay.
type Count struct{ Jobs, Delayed int64 }

// plus is never below 0: what the disk did not give at first was not counted.
func (c Count) plus(n int, due time.Time) Count {
	c.Jobs = max(0, c.Jobs+int64(n))
	if !due.IsZero() {
		c.Delayed = max(0, c.Delayed+int64(n))
	}
	return c
}

// Journal is an open one.
type Journal struct {
	opt     Options
	reading sync.Mutex // one reservation is read at a time; taken before mu, guards the following
	notes   []Note
	unsaved bool       // Save has not been given them
	old     []*segment // of earlier lives, as long as it is not known what they hold; changed under mu too

	removing sync.Mutex // segments are removed one at a time; guards doomed
	doomed   []*segment

	mu       sync.Mutex // guards the following
	segments []*segment // oldest first
	unknown  int64      // bytes of those that are not among them yet
	waiting  map[string]Count
	aside    map[job.ID]string // the jobtypes of jobs of which a copy is kept: they go to no store
	held     []*Reservation    // not yet synced
	watches  []*Watch
	back     []piece // to be read again, oldest first
	stats    Stats
	queue    []*request
	writing  bool // somebody does
	closed   bool
	work     chan struct{} // there is something in queue
	news     chan struct{} // closed and made anew: there may be something to read
	moved    chan struct{} // the same: something was synced

	// Of who writes.
	current *segment // nil: the next append begins one
	buf     []byte
	ended   chan struct{}
}

// Open reads what the directory has. It never fails over what it finds there: what
// the disk does not give is asked for again by who reserves.
func Open(opt Options) (*Journal, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Segment == 0 {
		opt.Segment = 64 << 20
	}
	j := &Journal{opt: opt, waiting: make(map[string]Count), aside: make(map[job.ID]string), ended: make(chan struct{}),
		work: make(chan struct{}, 1), news: make(chan struct{}), moved: make(chan struct{})}
	if opt.NoSync {
		opt.Log.Warn().Msg("the journal does not wait for the disk: a loss of power loses jobs that were accepted")
	}
	if err := j.load(); err != nil {
		return nil, err
	}
	go j.write()
	return j, nil
}

func (j *Journal) load() error {
	names, err := j.opt.Files.List()
	if err != nil {
		return err
	}
	slices.Sort(names)
	j.countAsides(names)
	for _, name := range names {
		id, ok := strings.CutSuffix(name, suffix)
		if _, err := job.ParseID(id); !ok || err != nil {
			continue
		}
		s := &segment{name: name}
		j.opt.IDs.Raise(s.id())
		j.old = append(j.old, s)
	}
	if err := j.learn(); err != nil {
		j.opt.Log.Error().Err(err).Msg("cannot read yet what an earlier life left in the journal; what is added meanwhile waits behind it")
	}
	return nil
}

// learn finds out what earlier lives left, and to whom it goes; until it has, nothing
// can be reserved. After an error it may be called again.
func (j *Journal) learn() error {
	told := make(map[string]int64) // ends, by what follows
	for _, s := range j.old {
		if err := j.open(s); err != nil {
			return err
		}
		first, f, err := s.first()
		if err != nil {
			return err
		}
		if f == whole && first.prev != "" {
			told[first.prev] = first.prevEnd
		}
	}
	for _, s := range j.old {
		if err := j.loadSegment(s, told); err != nil {
			return err
		}
	}
	return j.assign()
}

func (j *Journal) open(s *segment) error {
	if s.file != nil {
		return nil
	}
	f, err := j.opt.Files.Open(s.name)
	if err != nil {
		return err
	}
	if s.end, err = f.Size(); err != nil {
		return errors.Join(err, f.Close())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s.file = f
	j.unknown += s.end
	return nil
}

// loadSegment finds a segment's end and counts its jobs.
func (j *Journal) loadSegment(s *segment, told map[string]int64) error {
	if s.loaded {
		return nil
	}
	err := s.learn()
	if err != nil {
		return err
	}
	end, ok := told[s.name]
	switch {
	case !ok:
		end, err = s.tail(s.end)
		if err == nil && !j.opt.NoSync {
			// What is read from here on must not be lost half way.
			if err := s.file.Sync(); err != nil {
				j.opt.Log.Warn().Err(err).Str("segment", s.name).Msg("cannot sync what an earlier life wrote")
			}
		}
	case end > s.end:
		j.mu.Lock()
		j.stats.Damaged += end - s.end
		j.mu.Unlock()
		j.opt.Log.Error().Str("segment", s.name).Int64("bytes", end-s.end).Msg("the end of a segment is missing")
		end = s.end
	}
	if err != nil {
		return err
	}
	if end < s.end {
		j.mu.Lock()
		j.stats.Cut += s.end - end
		j.mu.Unlock()
		j.opt.Log.Warn().Str("segment", s.name).Int64("at", end).Int64("bytes", s.end-end).
			Msg("cut off what was not written whole and so never accepted")
		if err := s.file.Truncate(end); err != nil {
			j.opt.Log.Warn().Err(err).Str("segment", s.name).Msg("cannot truncate")
		}
		s.end, s.refused = end, true
	}
	s.jobs, s.marks = make(map[string]Count), nil
	err = s.scan(0, s.end, func(at int64, r record, f form) bool {
		if f == whole {
			s.mark(at, r.first)
			s.jobs[r.jobtype] = s.jobs[r.jobtype].plus(r.count, r.due)
			if r.first != "" && r.count > 0 {
				j.opt.IDs.Raise(r.first.Add(r.count - 1))
			}
		}
		return true
	})
	s.loaded = err == nil
	return err
}

// first is the record that begins the segment.
func (s *segment) first() (record, form, error) {
	buf, err := s.read(0, min(s.end, maxHeader))
	if err != nil {
		return record{}, broken, err
	}
	r, f := parse(buf)
	return r, f, nil
}

func (j *Journal) count(jobtype string, n int, due time.Time) {
	was := j.waiting[jobtype]
	j.recount(jobtype, was, was.plus(n, due))
}

func (j *Journal) recount(jobtype string, was, c Count) {
	j.waiting[jobtype] = c
	if c == (Count{}) {
		delete(j.waiting, jobtype)
	}
	j.stats.Jobs += c.Jobs - was.Jobs
}

// Waiting are the jobs that are in no store yet, by jobtype, and those that were
// in none when these watches began.
func (j *Journal) Waiting(watches ...*Watch) map[string]Count {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := maps.Clone(j.waiting)
	for _, w := range watches {
		for jobtype, n := range w.synced {
			c := all[jobtype]
			all[jobtype] = Count{c.Jobs + n.Jobs, c.Delayed + n.Delayed}
		}
	}
	return all
}

// Watch counts what goes from a lane to its store, until it is closed.
type Watch struct {
	j      *Journal
	lane   string
	synced map[string]Count
}

// Watch begins to count.
func (j *Journal) Watch(lane string) *Watch {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &Watch{j, lane, make(map[string]Count)}
	j.watches = append(j.watches, w)
	return w
}

// Close ends the watch.
func (w *Watch) Close() {
	w.j.mu.Lock()
	defer w.j.mu.Unlock()
	if i := slices.Index(w.j.watches, w); i >= 0 {
		w.j.watches = slices.Delete(w.j.watches, i, i+1)
	}
}

// Stats are the journal's counters.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.stats
	s.Bytes = j.bytes()
	return s
}

func (j *Journal) bytes() (n int64) {
	n = j.unknown
	for _, s := range j.segments {
		n += s.end - s.low
	}
	return n
}

// Age is how long the oldest line that is in no store has been waiting, 0 if
// there is none.
func (j *Journal) Age() time.Duration {
	j.mu.Lock()
	var oldest *segment
	var from, to int64
	for _, s := range j.segments {
		if s.low < s.end {
			oldest, from, to = s, s.low, s.end
			break
		}
	}
	j.mu.Unlock()
	var age time.Duration
	if oldest != nil {
		_ = oldest.scan(from, to, func(_ int64, r record, f form) bool {
			if f == whole && r.count > 0 && !r.date.IsZero() {
				age = max(0, j.opt.Now().Sub(r.date))
				return false
			}
			return true
		})
	}
	return age
}

// Find returns a job that is in no store yet. Its errors are that the disk does not
// give what may have it.
func (j *Journal) Find(id job.ID) (e Entry, found bool, err error) {
	j.mu.Lock()
	var s *segment
	if len(j.old) > 0 {
		err = errors.New("it is not known yet what an earlier life left in the journal")
	}
	for _, each := range j.segments {
		if each.id() < id {
			s = each
		}
	}
	if s == nil {
		j.mu.Unlock()
		return Entry{}, false, err
	}
	from, to := int64(0), s.end
	for _, m := range s.marks {
		if m.id <= id {
			from = m.at
		}
	}
	j.mu.Unlock()
	unread := s.scan(from, to, func(at int64, r record, f form) bool {
		n, ok := id.Since(r.first)
		if f != whole || r.count == 0 || !ok {
			return f != whole || r.first <= id
		}
		if n < r.count {
			for line := range linesOf(r.body) {
				if n--; n < 0 {
					e, found = r.entry(id, line, at), true
					break
				}
			}
			return false
		}
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case found:
		return e, !s.stored(e.End-1, e.End), nil
	case unread != nil && slices.Contains(j.segments, s): // it has not been removed meanwhile
		err = unread
	}
	return e, false, err
}

func (r *record) entry(id job.ID, line []byte, at int64) Entry {
	return Entry{ID: id, Jobtype: r.jobtype, Payload: line[:len(line):len(line)], Accepted: r.date, Due: r.due, Delay: r.delay, End: at + int64(r.size)}
}

// Close ends the appends that wait, and unlocks the directory.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.wake()
	j.mu.Unlock()
	<-j.ended
	j.reading.Lock()
	defer j.reading.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tell(&j.news)
	j.tell(&j.moved)
	return errors.Join(j.closeSegments(), j.opt.Files.Close())
}

func (j *Journal) closeSegments() error {
	var errs []error
	for _, s := range slices.Concat(j.old, j.segments) {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	return errors.Join(errs...)
}

// tell wakes all who wait for a channel.
func (j *Journal) tell(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// Receipt says where a request stands.
type Receipt struct {
	First   []job.ID // of each batch; the others count up from it
	segment *segment
	span
}

// Stored returns when all of a request is in a store, or was set aside: ErrAside.
func (j *Journal) Stored(ctx context.Context, r Receipt) error {
	if r.segment == nil {
		return nil
	}
	err := j.until(ctx, func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return r.segment.stored(r.from, r.to)
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil && slices.ContainsFunc(r.segment.aside, func(s span) bool { return s.from < r.to && r.from < s.to }) {
		return ErrAside
	}
	return err
}

// Left returns when a job is not in the journal, or in a store since. Its errors are
// the context's, ErrClosed and Find's.
func (j *Journal) Left(ctx context.Context, id job.ID) (err error) {
	waited := j.until(ctx, func() bool {
		var found bool
		_, found, err = j.Find(id)
		return !found
	})
	if waited != nil {
		return waited
	}
	return err
}

// until returns when a condition holds that what goes to stores may change.
func (j *Journal) until(ctx context.Context, holds func() bool) error {
	for {
		j.mu.Lock()
		moved, closed := j.moved, j.closed
		j.mu.Unlock()
		switch {
		case holds():
			return nil
		case closed:
			return ErrClosed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}
