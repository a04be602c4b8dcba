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

// Append and a Reservation's Sync return these errors.
var (
	ErrFull    = errors.New("the journal is full")
	ErrNoSpace = fmt.Errorf("%w: its disk is full", ErrFull)
	ErrFailed  = errors.New("the journal could not be written")
	ErrClosed  = errors.New("the journal is closed")
	ErrExpired = errors.New("the reservation is over: others may read its lines")
	// ErrSetAside is returned by Stored.
	ErrSetAside = errors.New("some lines are in no store, because they were damaged or no store accepts them; *.bad files in the journal's directory have copies")
)

// Batch holds lines of one type that are accepted together.
type Batch struct {
	Jobtype string
	Lines   [][]byte      // each without its newline; none is empty
	Due     time.Time     // zero: at once
	Delay   time.Duration // time from the add to Due; 0 if the client gave Due as a time
}

// Entry is a line that was read.
type Entry struct {
	ID       job.ID
	Jobtype  string
	Payload  []byte // the line without its newline; the entry owns it
	Accepted time.Time
	Due      time.Time     // zero: at once
	Delay    time.Duration // as in Batch
	End      int64         // where its record ends in the segment; a read point is never inside a record
}

// Range is a piece of a segment. The segment's name is globally unique, and nothing is written to a
// segment once the next one has begun.
type Range struct {
	Segment  string
	From, To int64
}

// Options holds the options of a journal. Files, IDs and Log are required.
type Options struct {
	Files Files
	IDs   *job.IDSource // makes the ids of lines; Open raises it above the ids in the journal
	Log   zerolog.Logger
	Now   func() time.Time // nil: time.Now

	MaxBytes     int64 // bytes that may wait for a store; 0: no limit
	ReserveBytes int64 // bytes of the disk that appends leave free for the stores; 0: none
	SegmentSize  int64 // size in bytes at which the next segment is begun; 0: 64 MiB
	NoSync       bool  // appends do not wait for the disk

	// Lanes holds the names of the lanes. Each lane has a store of its own. If there are several
	// lanes, SaveNotes is called before a piece is handed out, and makes durable which lane the piece
	// goes to. Notes is the argument of an earlier process's last call of SaveNotes.
	Lanes     []string
	Notes     []LaneNote
	SaveNotes func([]LaneNote) error
	OnRemove  func(segment string) // is called with the name of each segment that is removed; may be nil
}

// Stats says what a journal holds, and has counters since it was opened.
type Stats struct {
	Bytes      int64            `json:"bytes"` // number of bytes that wait for a store
	Jobs       int64            `json:"jobs"`
	Age        job.Milliseconds `json:"age_ms"`      // how long the oldest line that is in no store has been waiting; 0 if there is none
	AsideFiles int              `json:"aside_files"` // *.bad files in the directory

	Syncs        int64            `json:"syncs"`
	SyncTime     job.Milliseconds `json:"sync_ms"`       // of all syncs
	Failures     int64            `json:"failures"`      // writes and syncs
	DamagedBytes int64            `json:"damaged_bytes"` // number of bytes that were set aside as damaged or are missing
	CutBytes     int64            `json:"-"`             // bytes of unfinished records that were cut off
}

// Count counts the jobs of a type that wait in the journal, and how many of these jobs were added
// with a delay.
type Count struct{ Jobs, Delayed int64 }

// add returns the count after n more jobs. The result is never below 0, because jobs that the disk
// did not return at first were not counted.
func (c Count) add(n int, due time.Time) Count {
	c.Jobs = max(0, c.Jobs+int64(n))
	if !due.IsZero() {
		c.Delayed = max(0, c.Delayed+int64(n))
	}
	return c
}

// Journal is an open journal.
type Journal struct {
	opt             Options
	readMu          sync.Mutex // serializes reads of reservations, and guards the fields below; locked before mu
	notes           []LaneNote
	notesChanged    bool       // notes has changed since the last call of SaveNotes
	earlierSegments []*segment // segments of earlier processes whose content is not known yet; a change also needs mu

	removeMu sync.Mutex // serializes the removal of segments; guards toRemove
	toRemove []*segment

	asideMu sync.Mutex // guards the *.bad files: a file that is being written is neither read nor removed; locked before mu

	mu           sync.Mutex // guards the following
	segments     []*segment // oldest first
	earlierBytes int64      // bytes of the segments in earlierSegments
	waiting      map[string]Count
	asideJobs    map[job.ID]*AsideError // the jobs that were set aside
	reservations []*Reservation         // not yet synced
	watches      []*Watch
	rereads      []lanePiece // pieces that must be read again, oldest first
	stats        Stats
	queue        []*appendRequest
	closed       bool
	readable     chan struct{} // closed and replaced when there may be something to read
	synced       chan struct{} // closed and replaced when something was synced

	commitErr   error     // the error of the last commit; also guarded by mu
	commitErrAt time.Time // when that commit ended

	commitTurn chan struct{} // holds a value while an append or Close commits; guards the fields below
	// current is the segment that is written; nil: the next append begins one.
	current    *segment
	lastShared bool // the last commit was of several appends
	buf        []byte
}

// Open opens a journal. It does not fail because of the directory's content: parts that the disk
// does not return are read again at the next reservation.
func Open(opt Options) (*Journal, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.SegmentSize == 0 {
		opt.SegmentSize = 64 << 20
	}
	j := &Journal{opt: opt, waiting: make(map[string]Count), asideJobs: make(map[job.ID]*AsideError),
		commitTurn: make(chan struct{}, 1), readable: make(chan struct{}), synced: make(chan struct{})}
	if opt.NoSync {
		opt.Log.Warn().Msg("the journal does not wait for the disk: a loss of power may lose accepted jobs")
	}
	if err := j.load(); err != nil {
		return nil, err
	}
	return j, nil
}

func (j *Journal) load() error {
	names, err := j.opt.Files.List()
	if err != nil {
		return err
	}
	slices.Sort(names)
	j.countAsideJobs(names)
	for _, name := range names {
		if strings.HasSuffix(name, badSuffix) || name == "lost+found/" { // a file system of its own has this directory
			continue
		}
		id, ok := strings.CutSuffix(name, segmentSuffix)
		if _, err := job.ParseID(id); err != nil || !ok {
			j.opt.Log.Error().Str("file", name).Msg("a file is not read, because it does not have the name of a segment; its jobs are not run")
			continue
		}
		s := &segment{name: name}
		j.opt.IDs.RaiseAbove(s.id())
		j.earlierSegments = append(j.earlierSegments, s)
	}
	if err := j.readEarlier(); err != nil {
		j.opt.Log.Error().Err(err).Msg("cannot read yet what an earlier process left in the journal; new jobs wait behind it")
	}
	return nil
}

// readEarlier reads what earlier processes have left, and decides to which lane each piece goes.
// Before it has succeeded, nothing can be reserved. After an error it may be called again.
func (j *Journal) readEarlier() error {
	ends := make(map[string]int64)       // by segment: its end, as the following segment records it
	wroteAs := make(map[*segment]string) // the names that the segments had when they were written
	for _, s := range j.earlierSegments {
		if err := j.open(s); err != nil {
			return err
		}
		first, state, err := s.firstRecord()
		if err != nil {
			return err
		}
		if state == recordWhole && first.prev != "" {
			ends[first.prev] = first.prevEnd
		}
		if wroteAs[s] = s.name; state == recordWhole && first.jobtype == "" && first.firstID != "" {
			wroteAs[s] = string(first.firstID) + segmentSuffix
		}
	}
	for _, s := range j.earlierSegments {
		end, ok := ends[wroteAs[s]]
		if err := j.loadSegment(s, end, ok); err != nil {
			return err
		}
	}
	return j.assignLanes()
}

func (j *Journal) open(s *segment) error {
	if s.file != nil {
		return nil
	}
	f, err := j.opt.Files.Open(s.name)
	if err != nil {
		return err
	}
	if s.readableTo, err = f.Size(); err != nil {
		return errors.Join(err, f.Close())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s.file = f
	j.earlierBytes += s.readableTo
	return nil
}

// loadSegment finds the end of a segment, unless it is recorded, and counts the segment's jobs.
func (j *Journal) loadSegment(s *segment, end int64, recorded bool) error {
	if s.loaded {
		return nil
	}
	err := s.readSalt()
	if err != nil {
		return err
	}
	switch {
	case !recorded:
		end, err = s.findEnd(s.readableTo)
		if err == nil && !j.opt.NoSync {
			// All bytes that are read from here on must be durable.
			if err := s.file.Sync(); err != nil {
				j.opt.Log.Warn().Err(err).Str("segment", s.name).Msg("cannot sync the writes of an earlier process")
			}
		}
	case end > s.readableTo:
		j.mu.Lock()
		j.stats.DamagedBytes += end - s.readableTo
		j.mu.Unlock()
		j.opt.Log.Error().Str("segment", s.name).Int64("bytes", end-s.readableTo).Msg("the end of a segment is missing")
		end = s.readableTo
	}
	if err != nil {
		return err
	}
	if end < s.readableTo {
		j.mu.Lock()
		j.stats.CutBytes += s.readableTo - end
		j.mu.Unlock()
		j.opt.Log.Warn().Str("segment", s.name).Int64("at", end).Int64("bytes", s.readableTo-end).
			Msg("cut off records that were not completely written, and so never accepted")
		if err := s.file.Truncate(end); err != nil {
			j.opt.Log.Warn().Err(err).Str("segment", s.name).Msg("cannot truncate")
		}
		s.readableTo, s.endRefused = end, true
	}
	s.jobs, s.marks = make(map[string]Count), nil
	err = s.scan(0, s.readableTo, func(at int64, r record, state recordState) bool {
		if state == recordWhole {
			s.addMark(at, r.firstID)
			s.jobs[r.jobtype] = s.jobs[r.jobtype].add(r.count, r.due)
			if r.firstID != "" && r.count > 0 {
				j.opt.IDs.RaiseAbove(r.firstID.Add(r.count - 1))
			}
		}
		return true
	})
	s.loaded = err == nil
	return err
}

// firstRecord reads the record at the beginning of a segment.
func (s *segment) firstRecord() (record, recordState, error) {
	buf, err := s.read(0, min(s.readableTo, maxHeader))
	if err != nil {
		return record{}, recordBroken, err
	}
	r, state := parse(buf)
	return r, state, nil
}

func (j *Journal) count(jobtype string, n int, due time.Time) {
	oldCount := j.waiting[jobtype]
	j.setCount(jobtype, oldCount, oldCount.add(n, due))
}

func (j *Journal) setCount(jobtype string, oldCount, c Count) {
	j.waiting[jobtype] = c
	if c == (Count{}) {
		delete(j.waiting, jobtype)
	}
	j.stats.Jobs += c.Jobs - oldCount.Jobs
}

// Waiting returns, for each jobtype, the number of jobs that are in no store yet or have reached a
// store since the watches began.
func (j *Journal) Waiting(watches ...*Watch) map[string]Count {
	j.mu.Lock()
	defer j.mu.Unlock()
	counts := maps.Clone(j.waiting)
	for _, w := range watches {
		for jobtype, n := range w.synced {
			c := counts[jobtype]
			counts[jobtype] = Count{c.Jobs + n.Jobs, c.Delayed + n.Delayed}
		}
	}
	return counts
}

// Watch counts the jobs that move from a lane to its store until the Watch is closed.
type Watch struct {
	journal *Journal
	lane    string
	synced  map[string]Count
}

// Watch starts a watch of a lane.
func (j *Journal) Watch(lane string) *Watch {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &Watch{j, lane, make(map[string]Count)}
	j.watches = append(j.watches, w)
	return w
}

// Close ends the watch.
func (w *Watch) Close() {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	w.journal.watches = slices.DeleteFunc(w.journal.watches, func(other *Watch) bool { return other == w })
}

// Stats returns the journal's counters.
func (j *Journal) Stats() Stats {
	age := j.age()
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.stats
	s.Bytes, s.Age = j.bytes(), job.Milliseconds(age)
	return s
}

func (j *Journal) bytes() (n int64) {
	n = j.earlierBytes
	for _, s := range j.segments {
		n += s.readableTo - s.storedTo
	}
	return n
}

func (j *Journal) age() time.Duration {
	j.mu.Lock()
	var oldest *segment
	var from, to int64
	for _, s := range j.segments {
		if s.storedTo < s.readableTo {
			oldest, from, to = s, s.storedTo, s.readableTo
			break
		}
	}
	j.mu.Unlock()
	var age time.Duration
	if oldest != nil {
		_ = oldest.scan(from, to, func(_ int64, r record, state recordState) bool {
			if state == recordWhole && r.count > 0 && !r.date.IsZero() {
				age = max(0, j.opt.Now().Sub(r.date))
				return false
			}
			return true
		})
	}
	return age
}

// Find returns a job that is in no store yet. It returns an error if the job may be in a piece that
// the disk does not return.
func (j *Journal) Find(id job.ID) (entry Entry, found bool, err error) {
	j.mu.Lock()
	var s *segment
	if len(j.earlierSegments) > 0 {
		err = errors.New("the part of the journal from an earlier process has not been read yet")
	}
	for _, candidate := range j.segments {
		if candidate.id() < id {
			s = candidate
		}
	}
	if s == nil {
		j.mu.Unlock()
		return Entry{}, false, err
	}
	from, to := int64(0), s.readableTo
	for _, m := range s.marks {
		if m.id <= id {
			from = m.offset
		}
	}
	j.mu.Unlock()
	unread := s.scan(from, to, func(at int64, r record, state recordState) bool {
		n, ok := id.OffsetFrom(r.firstID)
		if state != recordWhole || r.count == 0 || !ok {
			return state != recordWhole || r.firstID <= id
		}
		if n < r.count {
			for line := range linesOf(r.body) {
				if n--; n < 0 {
					entry, found = r.entry(id, line, at), true
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
		return entry, !s.isStored(entry.End-1, entry.End), nil
	case unread != nil && slices.Contains(j.segments, s): // the segment was not removed meanwhile
		err = unread
	}
	return entry, false, err
}

func (r *record) entry(id job.ID, line []byte, at int64) Entry {
	return Entry{ID: id, Jobtype: r.jobtype, Payload: line[:len(line):len(line)], Accepted: r.date, Due: r.due, Delay: r.delay, End: at + int64(r.size)}
}

// Close makes waiting appends return an error, and unlocks the directory.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.mu.Unlock()
	j.commitTurn <- struct{}{} // nothing is committed from here on
	j.mu.Lock()
	queue := j.queue
	j.queue = nil
	j.mu.Unlock()
	j.settle(queue, ErrClosed)
	j.readMu.Lock()
	defer j.readMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broadcast(&j.readable)
	j.broadcast(&j.synced)
	var errs []error
	for _, s := range slices.Concat(j.earlierSegments, j.segments) {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	return errors.Join(append(errs, j.opt.Files.Close())...)
}

// broadcast wakes all goroutines that wait for a channel, by replacing the channel and closing the
// old one.
func (j *Journal) broadcast(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// Receipt says where in the journal a request is.
type Receipt struct {
	First   []job.ID // the first id of each batch; First.Add returns the others
	segment *segment
	span
}

// Stored waits until all lines of a request are in a store or were set aside. It returns ErrSetAside
// if some were set aside.
func (j *Journal) Stored(ctx context.Context, r Receipt) error {
	if r.segment == nil {
		return nil
	}
	err := j.waitUntil(ctx, func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return r.segment.isStored(r.from, r.to)
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil && slices.ContainsFunc(r.segment.setAsideSpans, func(s span) bool { return s.from < r.to && r.from < s.to }) {
		return ErrSetAside
	}
	return err
}

// AwaitStored waits until a job has left the journal and reached a store. Its errors are those of
// the context and of Find, and ErrClosed.
func (j *Journal) AwaitStored(ctx context.Context, id job.ID) (err error) {
	waitErr := j.waitUntil(ctx, func() bool {
		var found bool
		_, found, err = j.Find(id)
		return !found
	})
	if waitErr != nil {
		return waitErr
	}
	return err
}

// waitUntil waits for a condition that may change when jobs go to stores.
func (j *Journal) waitUntil(ctx context.Context, cond func() bool) error {
	for {
		j.mu.Lock()
		moved, closed := j.synced, j.closed
		j.mu.Unlock()
		switch {
		case cond():
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
