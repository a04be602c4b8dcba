package bridge

import (
	"errors"
	"fmt"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/failpoint"
	"gloom/cmd/internal/link"
	"gloom/cmd/jobd/store"

	"github.com/goccy/go-json"
)

// maxRequeues limits how often a row is requeued because the end of its job is unknown. A row whose
// job kills its workers must not run again forever.
const maxRequeues = 3

// submitRemote runs a row without a launcher: it writes that the row is running, unless the fetch
// has done so, and submits the row to the workers of its type.
func (b *Bridge) submitRemote(r *row) {
	defer close(r.writtenCh)
	if r.startedAt == 0 && !b.writeStart(r) {
		return
	}
	failpoint.Reach("remote: running")
	start := time.Now()
	f, known := b.askWorkers(r)
	b.metrics.runTime.Observe(time.Since(start).Seconds())
	failpoint.Reach("remote: ended")
	if known {
		b.finish(r, f)
		return
	}
	v := b.writer.write(&change{kind: changeRequeue, id: r.ID})
	b.recordLost(r, v)
	b.leaveBroker(r, "requeued", manualResult{reason: fmt.Sprintf("job %d was given up: it is not known how it ended, and it may be run again", r.ID)})
	b.withMachine(func() { b.machine.Poll([]string{r.Target}) })
}

// writeStart writes that an accepted row runs. It returns false if the row was given back or is lost.
func (b *Bridge) writeStart(r *row) bool {
	if b.takeRow(r.ID) == nil {
		return false
	}
	v := b.writer.write(&change{kind: changeStart, id: r.ID})
	if !v.isWritten() {
		b.endLostRow(r, v)
		return false
	}
	r.startedAt = v.writtenAt
	return true
}

// askWorkers submits a row and returns how it ended; known is false if the row must run again.
func (b *Bridge) askWorkers(r *row) (final store.Result, known bool) {
	for failures := 0; ; failures++ {
		if failures > 0 && !b.waitFor(r, min(maxResubmitPause, minResubmitPause<<min(failures-1, 10))) {
			return final, false
		}
		p, err := b.submit(r, r.Fields)
		var res gloom.Result
		if err == nil {
			failpoint.Reach("remote: submitted")
			res, err = p.Result(b.ctx)
		}
		b.submitter.NoteRefusal(b.cfg.TypeOf(r.Target), err, true)
		result, reason := runResultOf(err)
		r.mayStillRun = result == runUnknown && errors.Is(err, gloom.ErrLost)
		if errors.Is(err, gloom.ErrCancelled) && b.isStopping() {
			result, reason = runUnknown, "the daemon stopped before the answer"
		}
		switch result {
		case runAnswered:
			return remoteResult(r.ID, true, answerText(res.Body), ""), true
		case runFailed:
			return remoteResult(r.ID, false, "", reason), true
		case runUnknown:
			return b.resultOfUnknownEnd(r, reason)
		case runNotBegun:
			if b.isStopping() {
				return final, false
			}
			if failures > 0 && failures%20 == 0 {
				b.log.Warn().Err(err).Int64("id", r.ID).Msg("the broker does not take a row; submitting it again")
			}
		}
	}
}

// runResult says what a broker's answer means for a row.
type runResult uint8

const (
	runAnswered runResult = iota
	runFailed             // a retry would fail, too
	runNotBegun           // the row has certainly not run
	runUnknown            // the row may have run
)

func runResultOf(err error) (runResult, string) {
	if err == nil {
		return runAnswered, ""
	}
	var lost *gloom.LostError
	var refused *gloom.RefusedError
	var jobErr *gloom.JobError
	switch {
	case errors.As(err, &lost):
		if lost.Sent {
			return runUnknown, "the broker was lost while it had the job"
		}
		return runNotBegun, ""
	case errors.As(err, &jobErr):
		switch {
		case jobErr.Code == gloom.ErrDraining:
			return runUnknown, "the broker stopped while it had the job"
		case jobErr.Lost:
			return runUnknown, "the worker was lost while it ran the job"
		}
		return runFailed, jobErr.Reason
	case errors.As(err, &refused):
		if link.IsFinalRefusal(err) {
			return runFailed, fmt.Sprintf("the broker refuses the job: %s: %s", refused.Code, refused.Reason)
		}
		return runNotBegun, "" // an earlier copy still runs, or the broker has no room
	}
	return runNotBegun, ""
}

// awaitStrayRun waits for the run of a row that was given up although a worker may still run it. It
// frees the row's place when the broker no longer has that run, or when the bridge ends.
func (b *Bridge) awaitStrayRun(r *row) {
	b.submitter.AwaitRun(b.ctx, b.jobOf(r), func() {
		b.log.Warn().Int64("id", r.ID).Str("target", r.Target).Msg("a row that was given up still runs at a worker; it keeps its place until the run ends")
	})
	b.withMachine(func() { b.machine.Done(r.ID) })
}

// resultOfUnknownEnd decides whether a row that may have run counts as failed or runs again.
func (b *Bridge) resultOfUnknownEnd(r *row, reason string) (final store.Result, known bool) {
	if b.cfg.Orphans == requeueOrphans {
		b.mu.Lock()
		b.requeueCounts[r.ID]++
		n := b.requeueCounts[r.ID]
		if n > maxRequeues {
			delete(b.requeueCounts, r.ID)
		}
		b.mu.Unlock()
		if n <= maxRequeues {
			b.log.Warn().Int64("id", r.ID).Str("why", reason).Msg("a row will run again")
			return final, false
		}
		reason = fmt.Sprintf("%s; it was run again %d times", reason, maxRequeues)
	}
	return remoteResult(r.ID, false, "", reason), true
}

func remoteResult(id int64, ok bool, stdout, stderr string) store.Result {
	return store.Result{ID: id, OK: ok, Code: -1, Stdout: stdout, Stderr: stderr, At: time.Now().Unix()}
}

// answerText returns the text of a JSON string, or the JSON of any other value.
func answerText(body []byte) string {
	var s string
	if len(body) > 0 && body[0] == '"' && json.Unmarshal(body, &s) == nil {
		return s
	}
	return string(body)
}
