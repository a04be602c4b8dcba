package bridge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gloom/cmd/jobd/store"

	"github.com/rs/zerolog"
)

// errStopped means that a change was not written because the daemon stops. Unless the result is
// spooled, the row is settled later with this incarnation.
var errStopped = errors.New("daemon is stopping")

// changeKind says what a change does to its row.
type changeKind uint8

const (
	changeStart changeKind = iota
	changeFinish
	changeGiveBack // accepted, not begun
	changeRequeue  // a running row must run again
)

// change is one row to be written.
type change struct {
	kind        changeKind
	id          int64
	result      store.Result // the result that changeFinish writes
	uncutResult store.Result // result with its whole outputs, while it is being written
	token       int64        // token of the earlier incarnation that ran the row; 0 is this one

	size           int64 // bytes of its outputs, while they are in memory
	diskSize       int64 // size of outputs that are on disk, and are read back to be written
	spoolToken     int64 // the token under which it is in the spool; 0 if it is not
	outputsDropped bool  // its outputs are only in the spool
	isUnsaved      bool  // the spool had no room for it, which was logged
	isUnreadable   bool  // its file in the spool cannot be read, and is left for an operator
	retryAt        time.Time
	failures       int
	done           chan writeResult
	setAside       chan struct{} // closed when nobody should wait for the result any more, because the database refuses the row
	isSetAside     bool
}

// writeResult is the result of a change.
type writeResult struct {
	lostReason string // why the row no longer belongs to this daemon; "" if it was written
	err        error  // errStopped if the daemon stops, or why the database has refused a start for long
	writtenAt  int64  // when it was written, UNIX seconds: the time_started of a start
}

func (r writeResult) isWritten() bool { return r.lostReason == "" && r.err == nil }

// writer collects changes into large transactions: changes that arrive during one transaction form
// the next. A change stays until it is written or lost, however long the database is away.
type writer struct {
	store        store.Store
	spool        *spool
	metrics      *metrics
	log          zerolog.Logger
	reportHealth func(error) // called after every transaction, with an error while the database is away for at least one change

	mu                    sync.Mutex // guards the fields below
	pendingChanges        []*change
	unwrittenChanges      map[*change]time.Time // changes without a result, pending or in a transaction, and when they came
	bytes                 int64                 // bytes of outputs in memory
	failingChanges        map[*change]bool      // changes for which the database was away at the last try
	awayErr               error                 // the last error of one of failingChanges
	refusedChanges        map[*change]error     // changes that the database has refused for long, and why
	asideCount            int                   // number of changes that are set aside
	changesInTransactions int                   // number of changes in transactions
	isWritingLarge        bool                  // a large change is in a transaction
	lastStart             time.Time             // when the last transaction began
	isClosed              bool
	wake                  chan struct{}
}

const (
	maxTransactionRows  = 256
	maxTransactionBytes = 1 << 20
	// maxTransactions is the number of concurrent transactions: while one waits for the disk, the
	// next is filled. The second begins when it has half as many changes as the first, or after
	// lingerTime, because a transaction with one change costs as much as one with twenty.
	maxTransactions = 2
	lingerTime      = 20 * time.Millisecond
	// minLarge is the size of outputs from which a change counts as large. Large changes are written
	// one at a time, because a write takes several times their size in memory.
	minLarge = 4 << 20

	busyRetryPause = 20 * time.Millisecond
	minRetryPause  = 50 * time.Millisecond
	maxRetryPause  = 2 * time.Second

	// A row that the database has refused minRefusals times, for seven seconds, even with less output, may be
	// refused for days. It is tried again after refusalPause, and set aside. If maxSetAside rows are set aside, or
	// refused for long, the fault is not in a few rows; further rows keep their places, so that their targets come
	// to a halt.
	minRefusals  = 9
	refusalPause = 30 * time.Second
	maxSetAside  = 100

	// spoolDelay is the age at which a result is spooled although no write of it has failed: a write to a
	// server that does not answer takes long to fail, and the daemon may be killed meanwhile.
	spoolDelay = 2 * time.Second
)

func newWriter(s store.Store, sp *spool, m *metrics, log zerolog.Logger, reportHealth func(error)) *writer {
	return &writer{store: s, spool: sp, metrics: m, log: log, reportHealth: reportHealth, wake: make(chan struct{}, maxTransactions), unwrittenChanges: make(map[*change]time.Time), failingChanges: make(map[*change]bool), refusedChanges: make(map[*change]error)}
}

// write queues a change and waits until it is written, lost, or the writer stops.
func (w *writer) write(c *change) writeResult { return <-w.enqueue(c) }

// enqueue adds a change to the changes that wait to be written. The channel c.done gets one
// result.
func (w *writer) enqueue(c *change) <-chan writeResult {
	c.done, c.setAside = make(chan writeResult, 1), make(chan struct{})
	c.size = int64(len(c.result.Stdout) + len(c.result.Stderr))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unwrittenChanges[c] = time.Now()
	w.bytes += c.size
	if w.isClosed {
		w.abandon(c)
		return c.done
	}
	w.pendingChanges = append(w.pendingChanges, c)
	if len(w.failingChanges) > 0 { // the transactions before its own may take long to fail, and the daemon may be killed meanwhile
		w.saveToSpool(c)
	}
	w.limitMemory(c)
	if len(w.pendingChanges) == 1 || w.lingerLeft(time.Now()) <= 0 {
		w.wakeLoop()
	}
	return c.done
}

// lingerLeft returns how long the pending changes may wait for others to join them. w.mu is held.
func (w *writer) lingerLeft(now time.Time) time.Duration {
	if len(w.pendingChanges) >= w.changesInTransactions/2 {
		return 0
	}
	return w.lastStart.Add(lingerTime).Sub(now)
}

// limitMemory limits the memory that waiting outputs take: it spools those of a change or, while the database
// is away, cuts them. While the database answers, each output waits for a moment only, and is written whole.
func (w *writer) limitMemory(c *change) {
	if c.kind != changeFinish || w.bytes <= maxOutputMemory || c.size <= maxCutOutput {
		return
	}
	if w.saveToSpool(c) {
		w.dropOutputs(c)
		return
	}
	if len(w.failingChanges) == 0 {
		return
	}
	w.log.Warn().Int64("id", c.id).Int64("bytes", c.size).Msg("too many results wait for the database; output is cut")
	w.truncateOutputs(c, maxCutOutput/2)
}

// truncateOutputs shortens each output to at most the given number of bytes.
func (w *writer) truncateOutputs(c *change, limit int64) {
	if int64(len(c.result.Stdout)) > limit {
		c.result.MarkStdoutCut()
	}
	for _, out := range []*string{&c.result.Stdout, &c.result.Stderr} {
		if int64(len(*out)) > limit {
			*out = store.Shorten(*out, limit, "\n[cut while the database was away]")
		}
	}
	w.bytes -= c.size
	c.size = int64(len(c.result.Stdout) + len(c.result.Stderr))
	w.bytes += c.size
}

func (w *writer) saveToSpool(c *change) bool {
	if c.spoolToken != 0 || w.spool == nil || c.kind != changeFinish {
		return c.spoolToken != 0
	}
	token := c.token
	if token == 0 {
		token = w.store.Token()
	}
	if err := w.spool.saveResult(token, c.result); err != nil {
		if !c.isUnsaved {
			w.log.Error().Err(err).Int64("id", c.id).Msg("result cannot be spooled; it waits in memory")
		}
		c.isUnsaved = true
		return false
	}
	c.spoolToken = token
	return true
}

// saveUnwritten spools a change that may be in a transaction, unless it has its result already.
func (w *writer) saveUnwritten(c *change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, isUnwritten := w.unwrittenChanges[c]
	return !isUnwritten || w.saveToSpool(c)
}

// spoolLoop spools results that are not written after spoolDelay.
func (w *writer) spoolLoop(ctx context.Context) {
	for w.spool != nil && sleep(ctx, spoolDelay/2, nil) {
		for _, c := range w.lateResults(time.Now()) {
			if !w.saveUnwritten(c) {
				break // the disk may be full; the next pass begins with any of them
			}
		}
	}
}

// lateResults returns the results that came at least spoolDelay ago and are not in the spool.
func (w *writer) lateResults(now time.Time) (late []*change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, cameAt := range w.unwrittenChanges {
		if c.kind == changeFinish && c.spoolToken == 0 && now.Sub(cameAt) >= spoolDelay {
			late = append(late, c)
		}
	}
	return late
}

// saveShortened saves a result for which there was no room, with shorter outputs. How the job ended takes
// little room, and must not be lost: otherwise the job would count as failed or run again.
func (w *writer) saveShortened(c *change) bool {
	if w.spool == nil || c.size <= 2*minCutOutput {
		return false
	}
	w.truncateOutputs(c, minCutOutput)
	return w.saveToSpool(c)
}

// dropOutputs frees the memory of outputs that are in the spool.
func (w *writer) dropOutputs(c *change) {
	w.bytes -= c.size
	c.diskSize, c.size, c.outputsDropped = c.size, 0, true
	c.result.Stdout, c.result.Stderr = "", ""
}

func (w *writer) wakeLoop() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes changes until ctx ends; later changes are not written.
func (w *writer) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range maxTransactions {
		wg.Go(func() { w.writeLoop(ctx) })
	}
	wg.Go(func() { w.spoolLoop(ctx) })
	wg.Wait()
	w.close()
}

func (w *writer) writeLoop(ctx context.Context) {
	failures := 0
	for {
		batch, wait := w.nextBatch(time.Now())
		if len(batch) == 0 {
			if !sleep(ctx, wait, w.wake) {
				return
			}
			continue
		}
		n, isLarge := len(batch), batch[0].isLarge()
		err := w.transact(ctx, batch)
		w.recordCommit(n, isLarge)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		if !sleep(ctx, retryDelay(failures), nil) {
			return
		}
	}
}

// isFailureNews reports whether the log should tell the latest failure: it tells the first, and ever
// fewer of the others, because a trigger may refuse a row for days.
func (c *change) isFailureNews() bool { return c.failures&(c.failures-1) == 0 }

// isLarge reports whether the change must not be written beside another large change.
func (c *change) isLarge() bool { return c.size+c.diskSize >= minLarge }

// recordCommit notes the end of a transaction.
func (w *writer) recordCommit(changes int, wasLarge bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wasLarge {
		w.isWritingLarge = false
	}
	w.changesInTransactions -= changes
	if len(w.pendingChanges) > 0 {
		w.wakeLoop()
	}
}

// logLevelOf returns the level for an error. An outage of the database is logged once elsewhere, so
// its errors must not fill the log.
func logLevelOf(err error) zerolog.Level {
	if store.IsAway(err) {
		return zerolog.DebugLevel
	}
	return zerolog.ErrorLevel
}

// retryDelay returns the pause after a number of failures in a row.
func retryDelay(failures int) time.Duration {
	return min(maxRetryPause, minRetryPause<<min(failures-1, 10))
}

// sleep waits for d, or without limit if d is negative, or until wake. It returns false if ctx has
// ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	var due <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-wake:
	}
	return ctx.Err() == nil
}

// nextBatch returns the changes of the next transaction, all of one incarnation. If none is due, it
// returns how long to wait.
func (w *writer) nextBatch(now time.Time) (batch []*change, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.lingerLeft(now); d > 0 && len(w.pendingChanges) > 0 {
		return nil, d
	}
	wait = -1
	bytes := int64(0)
	ids := make(map[int64]bool)
	left := w.pendingChanges[:0]
	for _, c := range w.pendingChanges {
		due := c.retryAt.Sub(now)
		switch {
		case due > 0:
			if wait < 0 || due < wait {
				wait = due
			}
		case len(batch) == maxTransactionRows, len(batch) > 0 && bytes+c.size+c.diskSize > maxTransactionBytes, len(batch) > 0 && c.token != batch[0].token,
			ids[c.id], w.isWritingLarge && c.isLarge():
		default:
			batch = append(batch, c)
			ids[c.id] = true
			bytes += max(c.size+c.diskSize, 1)
			continue
		}
		left = append(left, c)
	}
	clear(w.pendingChanges[len(left):])
	w.pendingChanges = left
	if len(batch) > 0 {
		w.isWritingLarge = w.isWritingLarge || batch[0].isLarge()
		w.changesInTransactions, w.lastStart = w.changesInTransactions+len(batch), now
		if len(left) > 0 {
			w.wakeLoop()
		}
	}
	return batch, wait
}

// transact writes a batch and sends the results. Changes that could not be written are pending
// again.
func (w *writer) transact(ctx context.Context, batch []*change) error {
	now := time.Now()
	b := store.Batch{Token: batch[0].token, StartedAt: now.Unix()}
	var retry []*change
	batch = slices.DeleteFunc(batch, func(c *change) bool {
		if err := w.restoreOutputs(c); err != nil {
			c.failures++
			c.retryAt = now.Add(retryDelay(c.failures))
			if c.isFailureNews() {
				w.log.Error().Err(err).Int64("id", c.id).Msg("spooled output cannot be read; trying again")
			}
			retry = append(retry, c)
			return true
		}
		return false
	})
	defer func() { w.putBack(retry) }()
	if len(batch) == 0 {
		return nil
	}
	for _, c := range batch {
		switch c.kind {
		case changeStart:
			b.StartRows = append(b.StartRows, c.id)
		case changeFinish:
			b.FinishRows = append(b.FinishRows, c.uncutResult)
		case changeGiveBack:
			b.ReturnRows = append(b.ReturnRows, c.id)
		case changeRequeue:
			b.RequeueRows = append(b.RequeueRows, c.id)
		}
	}
	result, err := w.store.Write(ctx, b)
	w.metrics.observeWrite(len(batch), time.Since(now), err)
	w.recordAway(batch, err)
	if err != nil {
		w.log.WithLevel(logLevelOf(err)).Err(err).Int("rows", len(batch)).Msg("rows cannot be written; trying again")
	}
	hasRemoved := false
	for _, c := range batch {
		c.uncutResult = store.Result{} // discarded outputs stay in the spool
		lossReason, isLost := result.LostRows[c.id]
		switch {
		case err != nil:
			w.saveUnwritten(c)
			retry = append(retry, c)
		case isLost:
			hasRemoved = w.finishChange(c, writeResult{lostReason: lossReason}) || hasRemoved
		case result.FailedRows[c.id] != nil:
			w.recordRefusal(c, result.FailedRows[c.id])
			if w.mayGiveUp(c) {
				w.finishChange(c, writeResult{err: result.FailedRows[c.id]})
				continue
			}
			retry = append(retry, c)
		case slices.Contains(result.BusyRows, c.id):
			c.retryAt = time.Now().Add(busyRetryPause)
			retry = append(retry, c)
		default:
			hasRemoved = w.finishChange(c, writeResult{writtenAt: b.StartedAt}) || hasRemoved
		}
	}
	if hasRemoved {
		w.spool.syncRemovals()
	}
	return err
}

// recordRefusal records that the database has refused a row, and sets the row's end aside after many refusals
// if it is in the spool or there is memory for it.
func (w *writer) recordRefusal(c *change, err error) {
	c.failures++
	c.retryAt = time.Now().Add(retryDelay(c.failures))
	if c.isFailureNews() {
		w.log.Error().Err(err).Int64("id", c.id).Msg("row is refused; trying again")
	}
	if c.failures < minRefusals {
		return
	}
	c.retryAt = time.Now().Add(refusalPause)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusedChanges[c] = err
	if c.kind == changeFinish && !c.isSetAside && w.asideCount < maxSetAside && (c.spoolToken != 0 || w.bytes <= maxOutputMemory) {
		c.isSetAside = true
		w.asideCount++
		close(c.setAside)
	}
}

// mayGiveUp reports whether a refused change is a start that has been refused for long: its job has not begun, so it
// need not keep its place. While many changes are refused, its row may not wait again, either, and the next row in
// its place would fare no better.
func (w *writer) mayGiveUp(c *change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.kind == changeStart && c.failures >= minRefusals && len(w.refusedChanges) <= maxSetAside // it is one of them
}

// forget removes a change that has its result from the writer's records. w.mu is held.
func (w *writer) forget(c *change) {
	w.bytes -= c.size
	delete(w.unwrittenChanges, c)
	delete(w.refusedChanges, c)
	if c.isSetAside {
		w.asideCount--
	}
}

// refusal returns how many rows the database has refused for long, and why it refuses the one with the
// smallest id.
func (w *writer) refusal() (rows int, id int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, refusalErr := range w.refusedChanges {
		if err == nil || c.id < id {
			id, err = c.id, refusalErr
		}
	}
	return len(w.refusedChanges), id, err
}

// recordAway records the outcome of a transaction. It reports an error while the database is away for
// at least one change.
func (w *writer) recordAway(batch []*change, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range batch {
		if err != nil {
			w.failingChanges[c], w.awayErr = true, err
		} else {
			delete(w.failingChanges, c)
		}
	}
	if len(w.failingChanges) > 0 {
		err = w.awayErr
	}
	w.reportHealth(err)
}

// maxReadTries limits the attempts to read a file of the spool. They take about a minute; then the
// file's row ends without it.
const maxReadTries = 40

// restoreOutputs sets c.uncutResult, with outputs from the spool if they were dropped. It returns
// an error if they cannot be read now. If they are lost, the row says so.
func (w *writer) restoreOutputs(c *change) error {
	c.uncutResult = c.result
	if !c.outputsDropped {
		return nil
	}
	f, err := w.spool.loadResult(c.spoolToken, c.id)
	switch {
	case err == nil:
		c.uncutResult = f
	case isReadError(err) && c.failures < maxReadTries:
		return err
	default:
		c.isUnreadable = isReadError(err)
		w.log.Error().Err(err).Int64("id", c.id).Msg("spooled output is gone")
		c.uncutResult.Stderr = "jobd: the output was lost from the spool: " + err.Error()
	}
	return nil
}

// finishChange sends a change's result, and reports whether it has removed the change from the spool.
func (w *writer) finishChange(c *change, v writeResult) (hasRemoved bool) {
	w.mu.Lock()
	w.forget(c) // from here on, nobody else spools it
	w.mu.Unlock()
	if hasRemoved = c.spoolToken != 0 && !c.isUnreadable; hasRemoved {
		w.spool.removeResult(c.spoolToken, c.id)
	}
	c.done <- v
	return hasRemoved
}

func (w *writer) putBack(changes []*change) {
	if len(changes) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		for _, c := range changes {
			w.abandon(c)
		}
		return
	}
	w.pendingChanges = append(w.pendingChanges, changes...) // these changes come after the others, which may succeed
	for _, c := range w.pendingChanges {
		w.limitMemory(c)
	}
	w.wakeLoop()
}

// close abandons pending changes. Results are spooled if possible.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isClosed = true
	for _, c := range w.pendingChanges {
		w.abandon(c)
	}
	w.pendingChanges = nil
}

func (w *writer) abandon(c *change) {
	if c.kind == changeFinish && !w.saveToSpool(c) && !w.saveShortened(c) {
		w.log.Error().Int64("id", c.id).Bool("ok", c.result.OK).Msg("result could not be written before the daemon stopped")
	}
	w.forget(c)
	c.done <- writeResult{err: errStopped}
}

// unwrittenRows returns the rows whose changes have no result yet.
func (w *writer) unwrittenRows() map[int64]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make(map[int64]bool, len(w.unwrittenChanges))
	for c := range w.unwrittenChanges {
		ids[c.id] = true
	}
	return ids
}

// unsafeChanges returns how many changes a stop must wait for. Results that the database refuses may be refused
// for days; those in the spool are left to the next start.
func (w *writer) unsafeChanges() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.unwrittenChanges {
		if !c.isSetAside || c.spoolToken == 0 {
			n++
		}
	}
	return n
}

// backlog returns how many changes have no result yet, and how much memory their
// outputs take.
func (w *writer) backlog() (changes int, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unwrittenChanges), w.bytes
}
