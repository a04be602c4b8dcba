package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/failpoint"
	"gloom/cmd/internal/launch"
	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/store"
)

// These bound the pause before a row is submitted again because the broker did not accept it, or
// lost it before a slot had it.
const (
	minResubmitPause = 20 * time.Millisecond
	maxResubmitPause = 2 * time.Second
)

// submitRow takes a row through the broker.
func (b *Bridge) submitRow(r *row) {
	if b.guard == nil {
		b.submitRemote(r)
		return
	}
	for failures := 0; ; failures++ {
		if failures > 0 && !b.waitFor(r, min(maxResubmitPause, minResubmitPause<<min(failures-1, 10))) {
			return
		}
		p, err := b.submit(r, strconv.AppendInt(nil, r.ID, 10))
		if err == nil {
			select {
			case <-r.writtenCh:
				return
			case <-b.ctx.Done():
				return
			case <-p.Done():
				_, err = p.Result(b.ctx)
			}
		}
		b.submitter.NoteRefusal(b.cfg.TypeOf(r.Target), err, true)
		// If no slot has begun the row, it has not run. Otherwise that slot ends it.
		if b.hasBegun(r) {
			b.waitFor(r, -1)
			return
		}
		// A row that was given back may come again before its earlier job has left the broker.
		early := failures == 0 && errors.Is(err, gloom.ErrIDExists)
		if err != nil && !early && !errors.Is(err, gloom.ErrLost) {
			b.log.Warn().Err(err).Int64("id", r.ID).Msg("the broker did not hand a row to this daemon's slots; submitting it again")
		}
	}
}

// waitFor waits for d, or without limit if d is negative, and reports whether the row is still to
// be submitted.
func (b *Bridge) waitFor(r *row, d time.Duration) bool {
	if !sleep(b.ctx, d, r.writtenCh) {
		return false
	}
	select {
	case <-r.writtenCh:
		return false
	default:
		return true
	}
}

// submit submits a row once the broker is connected.
func (b *Bridge) submit(r *row, body []byte) (*gloom.Pending, error) {
	job := b.jobOf(r)
	job.Body = body
	p, err := b.submitter.Current().Submit(b.submitCtx, job)
	if err == nil {
		b.mu.Lock()
		r.pending = p
		b.mu.Unlock()
	}
	return p, err
}

// jobOf returns the job of a row, without its body.
func (b *Bridge) jobOf(r *row) gloom.Job {
	return gloom.Job{
		ID: b.idPrefix + strconv.FormatInt(r.ID, 10), Type: b.cfg.TypeOf(r.Target), Priority: r.Priority, Retries: gloom.NoRetries,
	}
}

func (b *Bridge) hasBegun(r *row) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.isTaken || r.isGivenBack
}

// takeRow returns a row to its first caller. It returns nil to all others, and if the row was given
// back.
func (b *Bridge) takeRow(id int64) *row {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rowsInBroker[id]
	if r == nil || r.isTaken || r.isGivenBack {
		return nil
	}
	r.isTaken = true
	return r
}

// runInSlot is the handler of the launcher's workers.
func (b *Bridge) runInSlot(_ context.Context, job *gloom.Job) (any, error) {
	id, err := strconv.ParseInt(string(job.Body), 10, 64)
	if err != nil {
		return nil, gloom.Fatal(fmt.Errorf("the body is not a row's id: %.40s", job.Body))
	}
	r := b.takeRow(id)
	if r == nil {
		return nil, gloom.Fatal(fmt.Errorf("row %d does not wait for a slot of this daemon", id))
	}
	defer close(r.writtenCh)
	failpoint.Reach("slot: begun")
	result := b.writer.write(&change{kind: changeStart, id: id})
	if !result.isWritten() {
		b.endLostRow(r, result)
		return "gone", nil
	}
	r.startedAt = result.writtenAt
	failpoint.Reach("slot: running")
	start := time.Now()
	final, rerunReason := b.runProcess(r)
	b.metrics.runTime.Observe(time.Since(start).Seconds())
	failpoint.Reach("slot: ended")
	if rerunReason != nil {
		result := b.writer.write(&change{kind: changeRequeue, id: id})
		if launch.IsTemporary(rerunReason) { // the slot pauses, and other daemons may take the row meanwhile
			sleep(b.ctx, launchPause, nil)
		}
		b.leaveBroker(r, "requeued", manualResult{reason: fmt.Sprintf("job %d may be run again: %v", id, rerunReason)})
		b.recordLost(r, result)
		b.withMachine(func() { b.machine.Poll([]string{r.Target}) })
		return "requeued", nil
	}
	return b.finish(r, final), nil
}

// endLostRow ends the handling of a row that no longer belongs to this daemon, or whose start the database
// refuses. In the second case the row waits again.
func (b *Bridge) endLostRow(r *row, v writeResult) {
	b.recordLost(r, v)
	text := fmt.Sprintf("job %d was not run: %s", r.ID, v.lostReason)
	outcome := "lost"
	if v.err != nil {
		text = fmt.Sprintf("job %d was not run: %v", r.ID, v.err)
	}
	if v.err != nil && v.err != errStopped {
		outcome, r.isSetAside = "returned", true // if others make it wait meanwhile, it runs only after the requeue
		b.log.Error().Err(v.err).Int64("id", r.ID).Msg("row's start is refused; it waits again")
		requeueDone := b.writer.enqueue(&change{kind: changeRequeue, id: r.ID}) // an earlier try may have been committed
		defer func() {
			go func() { // ends with the writer
				<-requeueDone
				b.withMachine(func() {
					b.machine.Done(r.ID)
					b.machine.Poll([]string{r.Target})
				})
			}()
		}()
	}
	b.leaveBroker(r, outcome, manualResult{reason: text})
}

func (b *Bridge) recordLost(r *row, v writeResult) {
	if v.lostReason != "" {
		b.metrics.lostRows.WithLabelValues().Inc()
		b.log.Warn().Int64("id", r.ID).Str("why", v.lostReason).Msg("row no longer belongs to this daemon")
	}
}

// launchPause is the pause of a slot after a process could not be started for a temporary reason on
// this host.
const launchPause = time.Second

var errRevoked = errors.New("it was stopped because the database is away")

// runProcess runs a row's process. If rerunReason is not nil, the row must run again, and
// rerunReason says why: the process was not started, or it was killed because other daemons may
// soon run the row.
func (b *Bridge) runProcess(r *row) (final store.Result, rerunReason error) {
	lapses := b.guard.Lapses()
	if !b.mayLaunch() {
		return final, errRevoked
	}
	b.mu.Lock()
	r.isLaunching = b.lastSignal == 0
	b.mu.Unlock()
	if !r.isLaunching {
		return final, errStopped
	}
	stdout, stderr := &launch.Capture{Limit: b.cfg.MaxOutputBuffer}, &launch.Capture{Limit: b.cfg.MaxOutputBuffer}
	process, err := launch.Start(launch.Command{
		Args: commandArgs(b.cfg.Launcher, r.ID), Dir: b.cfg.LauncherCwd, Env: append(os.Environ(), b.cfg.LauncherEnv...),
		Stdout: stdout, Stderr: stderr, Guard: b.guard,
	})
	b.mu.Lock()
	r.process, r.isLaunching = process, false
	if process != nil && b.lastSignal != 0 {
		process.SignalGroup(b.lastSignal)
	}
	b.mu.Unlock()
	if launch.IsTemporary(err) {
		b.recordLaunch(err)
		return final, err
	}
	if err != nil {
		b.log.Error().Err(err).Int64("id", r.ID).Msg("command cannot be launched")
		return store.Result{ID: r.ID, Code: -1, Stderr: err.Error(), At: time.Now().Unix()}, nil
	}
	b.recordLaunch(nil)
	b.log.Debug().Int64("id", r.ID).Int("pid", process.Pid()).Msg("launched")
	failpoint.Reach("slot: launched")
	if !b.mayLaunch() { // the process may have started too late to be killed with the others
		b.killAll(syscall.SIGKILL)
	}
	ended := process.Result()
	b.mu.Lock()
	revoked := r.isRevoked
	b.mu.Unlock()
	// The guard may also have killed the process while this daemon was stopped.
	revoked = revoked || b.guard.LapsedSince(lapses)
	if revoked && ended.Signal != 0 && b.cfg.Orphans == requeueOrphans {
		return final, errRevoked
	}
	final = store.Result{ID: r.ID, Code: ended.Code, OK: ended.Code == 0 && ended.Signal == 0, At: time.Now().Unix()}
	if ended.Signal != 0 {
		final.Code, final.Signal = -1, launch.SignalName(ended.Signal)
	}
	var truncated bool
	final.Stdout, truncated = stdout.TakeText()
	final.Stderr, _ = stderr.TakeText()
	if truncated {
		final.MarkStdoutCut()
	}
	if ended.Err != nil {
		final.Stderr += "\nexit status is unknown: " + ended.Err.Error()
	}
	if revoked && ended.Signal != 0 {
		// This result may replace the reason written by the daemon that settled the row.
		final.Stderr = strings.TrimPrefix(final.Stderr+"\n"+revokedReason(b.cfg.Name), "\n")
	}
	return final, nil
}

// Other daemons may take this daemon for dead, and this daemon then kills its processes.
// revokedReason returns the line that is added to the stderr of such a process.
func revokedReason(name string) string {
	return fmt.Sprintf("jobd '%s' killed this process because jobd lost its lease, for example while it was suspended or cut off from the database", name)
}

// recordLaunch notes whether this host could start a process.
func (b *Bridge) recordLaunch(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && b.recentLaunchErr() == nil {
		b.log.Error().Err(err).Msg("this host cannot start processes for now; their rows will run again")
	}
	b.lastLaunchErr, b.lastLaunchErrAt = err, time.Now()
}

// recentLaunchErr returns the error with which processes could not be started lately; b.mu is held.
func (b *Bridge) recentLaunchErr() error {
	if time.Since(b.lastLaunchErrAt) > 3*launchPause { // the rows may have gone to other daemons
		return nil
	}
	return b.lastLaunchErr
}

// idPlaceholder is replaced by the row's id wherever it occurs in the command.
const idPlaceholder = "{id}"

// commandArgs returns the command line for one row: command split at spaces, with placeholders
// replaced. There is no shell, so quotes and other characters are literal.
func commandArgs(command string, id int64) []string {
	arg := strings.ReplaceAll(command, idPlaceholder, strconv.FormatInt(id, 10))
	return strings.FieldsFunc(arg, func(r rune) bool { return r == ' ' })
}

// finish writes a row's end and returns the job's result. A client that waits for the job gets its answer
// when the row is written, or after answerTimeout if that takes longer. While a write waits for the
// database, only the writer may hold the outputs: it limits the memory that they take. If the database
// refuses the row, the writer goes on, and the row's place is free for another row.
func (b *Bridge) finish(r *row, f store.Result) (result string) {
	f.Started = r.startedAt
	end := &change{kind: changeFinish, id: r.ID, result: f}
	writeDone := b.writer.enqueue(end)
	answer := manualResult{outcome: jobResultOf(f)}
	result = answer.outcome.Result
	if r.wait == nil {
		answer.outcome = control.JobResult{}
	}
	var answerLate <-chan time.Time
	if r.wait != nil {
		timer := time.NewTimer(answerTimeout)
		defer timer.Stop()
		answerLate = timer.C
	}
	setAside := end.setAside
	if r.mayStillRun { // its place is free when that run has ended
		setAside = nil
	}
	for {
		select {
		case v := <-writeDone:
			failpoint.Reach("slot: finished")
			b.recordLost(r, v)
			b.leaveBroker(r, result, answer)
			return result
		case <-answerLate:
			if b.cfg.Orphans == requeueOrphans && b.store.HasClaimsTable() { // the row runs again if the lease is lost now
				answer = manualResult{reason: fmt.Sprintf("job %d has ended (%s), but that cannot be written yet: it may be run again", r.ID, result)}
			}
			b.mu.Lock()
			b.sendResult(r.wait, answer)
			b.mu.Unlock()
			answer = manualResult{}
		case <-setAside:
			r.isSetAside = true
			b.leaveBroker(r, result, answer)
			go func() { // ends with the writer
				b.recordLost(r, <-writeDone)
				b.withMachine(func() { b.machine.Done(r.ID) })
			}()
			return result
		}
	}
}

func jobResultOf(f store.Result) control.JobResult {
	o := control.JobResult{Result: "fail", Stdout: f.Stdout, Stderr: f.Stderr}
	if f.OK {
		o.Result = "ok"
	}
	if f.Code >= 0 {
		o.Code = &f.Code
	}
	if f.Signal != "" {
		o.Signal = &f.Signal
	}
	return o
}
