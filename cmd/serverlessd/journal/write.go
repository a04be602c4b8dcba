package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"gloom/cmd/internal/failpoint"
	"gloom/cmd/serverlessd/job"
)

// maxGroup limits the bytes of requests that are written and synced together.
const maxGroup = 8 << 20

// saltSize is the length of a salt, in characters of base 32.
const saltSize = 12

// appendRequest is a call of Append that waits to be written, and its result. Only the goroutine
// that holds commitTurn changes it.
type appendRequest struct {
	batches []Batch
	size    int64 // approximate
	receipt Receipt
	err     error
	settled bool
	done    chan struct{} // closed when the request is settled
}

// Append accepts lines, all of them or none, and returns when they are on the disk. Its errors are
// ErrFull, ErrFailed and ErrClosed, wrapped, and the error of the context. Only if the error is the
// context's may the lines have been accepted nevertheless; then they must never change. Otherwise
// they must not change before Append returns. The context is checked only while the append waits
// for others.
//
// Waiting appends are committed together, by the first append that gets commitTurn.
func (j *Journal) Append(ctx context.Context, batches []Batch) (Receipt, error) {
	defer exitOnPanic()
	r := &appendRequest{batches: batches, done: make(chan struct{})}
	for _, b := range batches {
		r.size += maxHeader / 16
		for _, line := range b.Lines {
			r.size += int64(len(line)) + 1
		}
	}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return Receipt{}, ErrClosed
	}
	j.queue = append(j.queue, r)
	j.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		j.withdraw(r)
		return Receipt{}, ctx.Err()
	case j.commitTurn <- struct{}{}:
		for !r.settled {
			j.commitNext()
		}
		<-j.commitTurn
	}
	return r.receipt, r.err
}

// exitOnPanic ends the process when an append panics. An HTTP server would recover the panic of a
// request, and the other appends would wait for commitTurn forever.
func exitOnPanic() {
	if e := recover(); e != nil {
		message := fmt.Sprintf("the journal panicked: %v\n%s", e, debug.Stack())
		go panic(message) // nobody recovers it
		select {}
	}
}

// withdraw removes a cancelled request from the queue, unless a commit has taken it. Otherwise,
// clients that try again would fill the memory while the disk hangs.
func (j *Journal) withdraw(r *appendRequest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queue = slices.DeleteFunc(j.queue, func(other *appendRequest) bool { return other == r })
}

// commitNext commits the next group. If there is no room for the whole group, each request is
// committed alone, so that no request is refused because of another. The caller holds commitTurn.
func (j *Journal) commitNext() {
	if j.lastShared {
		runtime.Gosched() // appends that are about to begin can join
	}
	group := j.nextGroup()
	j.lastShared = len(group) > 1
	err := j.commit(group)
	if len(group) > 1 && errors.Is(err, ErrFull) {
		for i := range group {
			one := group[i : i+1]
			j.settle(one, j.commit(one))
		}
		return
	}
	j.settle(group, err)
}

// settle tells the appends of a group how their commit ended. The caller holds commitTurn.
func (j *Journal) settle(group []*appendRequest, err error) {
	j.mu.Lock()
	if !errors.As(err, new(*largeError)) {
		j.commitErr, j.commitErrAt = err, time.Now()
	}
	j.mu.Unlock()
	for _, r := range group {
		if r.err = err; err != nil {
			r.receipt = Receipt{}
		}
		r.settled = true
		close(r.done)
	}
}

// smallRequest is the size, in bytes, of the largest request that counts as ordinary; others are
// large.
const smallRequest = 64 << 10

// largeError is the refusal of a request for which there is no room, while there is room for
// ordinary requests. This refusal does not make the journal count as full, because a single client
// can send such requests at any time.
type largeError struct{ error }

func (e *largeError) Unwrap() error { return e.error }

// For commitErrTTL, the outcome of the last append says whether the journal refuses lines.
const commitErrTTL = 5 * time.Second

// LastRefusal returns why the last lines were refused, or nil if they were accepted. A large
// request that was refused while an ordinary one had room does not count. If the last lines came
// more than five seconds ago, or there were no lines yet, it returns an error only if the disk has
// no room for an ordinary request.
func (j *Journal) LastRefusal() error {
	j.mu.Lock()
	refusal, recent := j.commitErr, time.Since(j.commitErrAt) <= commitErrTTL
	var removable int64 // how many bytes makeRoom can free
	if len(j.earlierSegments) == 0 && j.bytes() == 0 {
		for _, s := range j.segments {
			removable += s.readableTo
		}
	}
	j.mu.Unlock()
	if recent {
		return refusal
	}
	return j.checkSpace(smallRequest - removable)
}

// nextGroup takes the next requests from the queue.
func (j *Journal) nextGroup() (group []*appendRequest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(j.queue) && (n == 0 || size+j.queue[n].size <= maxGroup) {
		size += j.queue[n].size
		n++
	}
	group = slices.Clone(j.queue[:n])
	j.queue = slices.Delete(j.queue, 0, n)
	return group
}

// commit makes a group's lines durable. After an error none of the lines is accepted. If the
// disk is full, and room can be made, commit tries once more.
func (j *Journal) commit(group []*appendRequest) error {
	err := j.commitOnce(group)
	if errors.Is(err, ErrNoSpace) && j.makeRoom() {
		err = j.commitOnce(group)
	}
	return err
}

func (j *Journal) commitOnce(group []*appendRequest) error {
	var size int64
	for _, r := range group {
		size += r.size
	}
	if err := j.ensureRoom(size); err != nil {
		if size > smallRequest && j.ensureRoom(smallRequest) == nil {
			return &largeError{err}
		}
		return err
	}
	s := j.current
	var marks []mark
	j.buf = j.buf[:0]
	now := j.opt.Now()
	for _, r := range group {
		r.receipt = Receipt{segment: s, span: span{from: s.readableTo + int64(len(j.buf))}}
		for i := range r.batches {
			r.receipt.First = append(r.receipt.First, j.opt.IDs.Next(len(r.batches[i].Lines)))
		}
		marks = append(marks, mark{r.receipt.from, r.firstID()})
		j.encode(r, now)
		r.receipt.to = s.readableTo + int64(len(j.buf))
	}
	failpoint.Reach("journal: before write")
	if _, err := s.file.WriteAt(j.buf, s.readableTo); err != nil {
		j.noteFailure(err, "write")
		err = classify(err)
		if s.file.Truncate(s.readableTo) != nil || j.sync(s) != nil {
			j.endSegment()
		}
		return err
	}
	failpoint.Reach("journal: written")
	start := time.Now()
	if err := j.sync(s); err != nil {
		j.noteFailure(err, "sync")
		// The kernel may have dropped the data that it could not write, and would then report
		// success at the next sync. So this file is never written again.
		_ = s.file.Truncate(s.readableTo)
		j.endSegment()
		return classify(err)
	}
	elapsed := time.Since(start)
	failpoint.Reach("journal: synced")

	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range marks {
		s.addMark(m.offset, m.id)
	}
	s.readableTo += int64(len(j.buf))
	j.stats.Syncs++
	j.stats.SyncTime += job.Milliseconds(elapsed)
	for _, r := range group {
		for _, b := range r.batches {
			j.count(b.Jobtype, len(b.Lines), b.Due)
		}
	}
	j.broadcast(&j.readable)
	if cap(j.buf) > 1<<20 {
		j.buf = nil
	}
	return nil
}

// sync makes everything durable that was written to a segment.
func (j *Journal) sync(s *segment) error {
	if j.opt.NoSync {
		return nil
	}
	return s.file.Sync()
}

// endSegment ends the current segment after the last accepted line. The next segment is begun at
// once, because it records the end of this one: refused lines are then invalid, even if the disk
// has kept them.
func (j *Journal) endSegment() {
	j.mu.Lock()
	j.current.endRefused = true
	j.mu.Unlock()
	j.current = nil
	_ = j.beginSegmentWithRoom() // if this fails, the next append tries again
}

// firstID returns the id of the first line, or "" if there is none.
func (r *appendRequest) firstID() job.ID {
	for i, b := range r.batches {
		if len(b.Lines) > 0 {
			return r.receipt.First[i]
		}
	}
	return ""
}

// encode appends a request to the buffer, as one or more records of limited size.
func (j *Journal) encode(r *appendRequest, date time.Time) {
	extraRecords := 0
	for _, b := range r.batches {
		for at := 0; at < len(b.Lines); at += countRecordLines(b.Lines[at:]) {
			extraRecords++
		}
	}
	var body []byte
	for i, b := range r.batches {
		for at := 0; at < len(b.Lines); {
			n := countRecordLines(b.Lines[at:])
			body = body[:0]
			for _, line := range b.Lines[at : at+n] {
				body = append(append(body, line...), '\n')
			}
			extraRecords--
			rec := record{date: date, jobtype: b.Jobtype, firstID: r.receipt.First[i].Add(at), count: n,
				due: b.Due, delay: b.Delay, extra: extraRecords, salt: j.current.salt, body: body}
			j.buf = rec.appendTo(j.buf)
			at += n
		}
	}
}

// countRecordLines returns how many of these lines the next record has: at least one line.
func countRecordLines(lines [][]byte) (n int) {
	for bytes := 0; n < len(lines) && n < maxLines; n++ {
		bytes += len(lines[n]) + 1
		if bytes > maxBytes && n > 0 {
			break
		}
	}
	return n
}

// ensureRoom makes sure that there is room for size more bytes and a segment to which they can be
// written.
func (j *Journal) ensureRoom(size int64) error {
	j.mu.Lock()
	waiting := j.bytes()
	j.mu.Unlock()
	if j.opt.MaxBytes > 0 && waiting+size > j.opt.MaxBytes {
		return fmt.Errorf("%w: %d bytes wait for a store; at most %d may", ErrFull, waiting, j.opt.MaxBytes)
	}
	if err := j.CheckSpace(size); err != nil && (!j.makeRoom() || j.CheckSpace(size) != nil) {
		return err
	}
	if j.current != nil && (j.current.readableTo+size <= j.opt.SegmentSize || j.current.readableTo <= maxHeader) {
		return nil
	}
	return j.beginSegmentWithRoom()
}

// reserveShare limits the space that is reserved for the stores to 1/reserveShare of the disk.
const reserveShare = 16

// CheckSpace returns ErrNoSpace, wrapped, if the disk has no room for size bytes besides the space
// that is reserved for a store on the same disk. The store needs this space to accept the waiting
// jobs, because only then can the journal free any.
func (j *Journal) CheckSpace(size int64) error {
	if j.opt.ReserveBytes == 0 {
		return nil // the write fails if there is no room
	}
	return j.checkSpace(size)
}

// checkSpace returns ErrNoSpace, wrapped, if the disk has no room for size bytes besides the
// reserve.
func (j *Journal) checkSpace(size int64) error {
	total, free, err := j.opt.Files.Space()
	if left := min(j.opt.ReserveBytes, total/reserveShare); err == nil && free-size < left {
		return fmt.Errorf("%w: %d bytes are free, of which %d are reserved for the store (--disk-reserve)", ErrNoSpace, free, left)
	}
	return nil
}

// beginSegmentWithRoom begins a new segment, and makes room for it if the disk is full.
func (j *Journal) beginSegmentWithRoom() error {
	err := j.beginSegment()
	if errors.Is(err, ErrFull) && j.makeRoom() {
		err = j.beginSegment()
	}
	return err
}

// FreeDisk makes room if the disk has none for an ordinary append: it removes the segments if all
// their lines are in stores. Otherwise, the last segment would keep its space until the next append.
func (j *Journal) FreeDisk() {
	if j.checkSpace(smallRequest) == nil {
		return
	}
	select {
	case j.commitTurn <- struct{}{}:
		j.makeRoom()
		<-j.commitTurn
	default: // an append makes room itself, and a closed journal needs none
	}
}

// makeRoom removes all segments if all their lines are in stores. It also removes the last segment,
// which is otherwise kept until the next segment begins.
func (j *Journal) makeRoom() bool {
	j.mu.Lock()
	oldSegments := j.segments
	if len(j.earlierSegments) > 0 || slices.ContainsFunc(oldSegments, func(s *segment) bool { return s.storedTo < s.readableTo }) {
		oldSegments = nil
	}
	if len(oldSegments) > 0 {
		j.segments = nil
		j.current = nil
	}
	j.mu.Unlock()
	j.remove(oldSegments)
	return len(oldSegments) > 0
}

func (j *Journal) beginSegment() error {
	j.current = nil // from now on, this is where the previous segment ends
	s := &segment{name: string(j.opt.IDs.Next(1)) + segmentSuffix, salt: rand.Text()[:saltSize]}
	rec := record{date: j.opt.Now(), firstID: s.id(), salt: s.salt}
	j.mu.Lock()
	if n := len(j.segments); n > 0 {
		rec.prev, rec.prevEnd = j.segments[n-1].name, j.segments[n-1].readableTo
	}
	j.mu.Unlock()
	failpoint.Reach("journal: before a segment")
	f, err := j.opt.Files.Create(s.name)
	if err != nil {
		j.noteFailure(err, "create")
		return classify(err)
	}
	buf := rec.appendTo(nil)
	_, err = f.WriteAt(buf, 0)
	if err == nil {
		err = j.sync(&segment{file: f})
	}
	if err == nil && !j.opt.NoSync {
		err = j.opt.Files.Sync()
	}
	if err != nil {
		j.noteFailure(err, "begin")
		f.Close()
		_ = j.opt.Files.Remove(s.name)
		return classify(err)
	}
	s.file, s.readableTo = f, int64(len(buf))
	j.mu.Lock()
	j.segments = append(j.segments, s)
	oldSegments := j.sweep()
	j.mu.Unlock()
	j.remove(oldSegments)
	j.current = s
	return nil
}

func (j *Journal) noteFailure(err error, action string) {
	j.opt.Log.Error().Err(err).Msg("journal: cannot " + action)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.Failures++
}

// classify distinguishes a full disk from a broken disk.
func classify(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("%w: %w", ErrFailed, err)
}
