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

// maxRequeues is how often a row is requeued because its end is unknown. A row whose job kills its
// workers must not run again for ever.
const maxRequeues = 3

// submitRemote is how rows run without a launcher: it writes that a row runs, if the fetch has
// not, and submits it to the workers of its type.
func (b *Bridge) submitRemote(r *row) {
	defer close(r.done)
	if r.at == 0 && !b.writeStart(r) {
		return
	}
	failpoint.Point("remote: running")
	start := time.Now()
	f, known := b.askWorkers(r)
	b.m.runTime.Observe(time.Since(start).Seconds())
	failpoint.Point("remote: ended")
	if known {
		b.finish(r, f)
		return
	}
	v := b.writer.write(&change{kind: requeue, id: r.ID})
	b.noteLost(r, v)
	b.leaveBroker(r, "requeued", result{err: fmt.Sprintf("job %d was given up: it is not known how it ended, and it may be run again", r.ID)})
	b.update(func() { b.machine.Poll([]string{r.Target}) })
}

// writeStart writes that an accepted row runs. It returns false if the row was given back or is lost.
func (b *Bridge) writeStart(r *row) bool {
	if b.startRow(r.ID) == nil {
		return false
	}
	v := b.writer.write(&change{kind: start, id: r.ID})
	if !v.written() {
		b.endLost(r, v)
		return false
	}
	r.at = v.at
	return true
}

// askWorkers submits a row and returns how it ended; known is false if the row is to run again.
func (b *Bridge) askWorkers(r *row) (f store.Final, known bool) {
	for fails := 0; ; fails++ {
		if fails > 0 && !b.waitFor(r, min(maxResubmit, minResubmit<<min(fails-1, 10))) {
			return f, false
		}
		p, err := b.submit(r, r.Fields)
		var res gloom.Result
		if err == nil {
			failpoint.Point("remote: submitted")
			res, err = p.Result(b.life)
		}
		b.jobs.NoteResult(b.typeOf(r.Target), err, true)
		result, reason := runResultOf(err)
		r.astray = result == unknown && errors.Is(err, gloom.ErrLost)
		if errors.Is(err, gloom.ErrCancelled) && b.stopped() {
			result, reason = unknown, "the daemon stopped before the answer"
		}
		switch result {
		case answered:
			return remoteFinal(r.ID, true, answerText(res.Body), ""), true
		case failed:
			return remoteFinal(r.ID, false, "", reason), true
		case unknown:
			return b.unknownEnd(r, reason)
		case unrun:
			if b.stopped() {
				return f, false
			}
			if fails > 0 && fails%20 == 0 {
				b.log.Warn().Err(err).Int64("id", r.ID).Msg("the broker does not take a row; submitting it again")
			}
		}
	}
}

// runResult is what a broker's answer means for a row.
type runResult uint8

const (
	answered runResult = iota
	failed             // a retry would fail, too
	unrun              // the row has certainly not run
	unknown            // the row may have run
)

func runResultOf(err error) (runResult, string) {
	if err == nil {
		return answered, ""
	}
	var lost *gloom.LostError
	var refused *gloom.RefusedError
	var jobErr *gloom.JobError
	switch {
	case errors.As(err, &lost):
		if lost.Sent {
			return unknown, "the broker was lost while it had the job"
		}
		return unrun, ""
	case errors.As(err, &jobErr):
		switch {
		case jobErr.Code == gloom.ErrDraining:
			return unknown, "the broker stopped while it had the job"
		case jobErr.Lost:
			return unknown, "the worker was lost while it ran the job"
		}
		return failed, jobErr.Reason
	case errors.As(err, &refused):
		if link.NeverRuns(err) {
			return failed, fmt.Sprintf("the broker refuses the job: %s: %s", refused.Code, refused.Reason)
		}
		return unrun, "" // an earlier copy still runs, or the broker has no room
	}
	return unrun, ""
}

// leavePlace is for a row that was given up while a worker may still run it. It frees the row's place
// when the broker no longer has that run, or when the bridge ends.
func (b *Bridge) leavePlace(r *row) {
	b.jobs.AwaitRun(b.life, b.jobOf(r), func() {
		b.log.Warn().Int64("id", r.ID).Str("target", r.Target).Msg("a row that was given up still runs at a worker; it keeps its place until the run ends")
	})
	b.update(func() { b.machine.Done(r.ID) })
}

// unknownEnd decides whether a row that may have run counts as failed or runs again.
func (b *Bridge) unknownEnd(r *row, reason string) (f store.Final, known bool) {
	if b.cfg.Orphans == requeueOrphans {
		b.mu.Lock()
		b.requeued[r.ID]++
		n := b.requeued[r.ID]
		if n > maxRequeues {
			delete(b.requeued, r.ID)
		}
		b.mu.Unlock()
		if n <= maxRequeues {
			b.log.Warn().Int64("id", r.ID).Str("why", reason).Msg("a row will run again")
			return f, false
		}
		reason = fmt.Sprintf("%s; it was run again %d times", reason, maxRequeues)
	}
	return remoteFinal(r.ID, false, "", reason), true
}

func remoteFinal(id int64, ok bool, stdout, stderr string) store.Final {
	return store.Final{ID: id, OK: ok, Code: -1, Stdout: stdout, Stderr: stderr, At: time.Now().Unix()}
}

// answerText returns the text of a JSON string, or the JSON of any other value.
func answerText(body []byte) string {
	var s string
	if len(body) > 0 && body[0] == '"' && json.Unmarshal(body, &s) == nil {
		return s
	}
	return string(body)
}
