package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/store"
)

// manualWait is one job for which a call of RunManual waits.
type manualWait struct {
	id      int64
	results chan<- manualResult // the channel of the call, with room for the results of all its jobs
}

// manualResult says how a job ended, or why it did not run.
type manualResult struct {
	id      int64
	outcome control.JobResult
	reason  string
}

const (
	// manualTimeout limits how long a RunManual may take to accept its rows.
	manualTimeout = 15 * time.Second
	// answerTimeout limits how long a client whose job has ended waits until the job's row is
	// written.
	answerTimeout = 5 * time.Second
	// maxAnswerOutput limits the bytes that outputs take in the answer to one RunManual, which is built in
	// memory several times over, and which a master refuses beyond 128 MiB. Beyond maxAnswerOutput, each
	// output is cut to minCutOutput.
	maxAnswerOutput = 64 << 20
	answerCutMark   = "\n[cut to fit the answer; the row has all of it]"
)

// RunManual implements control.Engine.
func (b *Bridge) RunManual(ctx context.Context, ids []int64) (map[int64]control.JobResult, map[int64]string, error) {
	ids = uniqueIDs(ids)
	results := make(chan manualResult, len(ids))
	if err := b.addManualWaits(ids, results); err != nil {
		return nil, nil, err
	}
	defer b.removeManualWaits(ids, results)

	acceptCtx, cancel := context.WithTimeout(ctx, manualTimeout)
	defer cancel()
	answers, err := b.store.AcceptManual(acceptCtx, ids, b.serves)
	b.metrics.countTransaction("manual", err)
	if err != nil {
		b.onManualAccepted()
		if err == store.ErrFenced {
			select {
			case b.fenced <- struct{}{}:
			default:
			}
		}
		return nil, nil, fmt.Errorf("jobs cannot be accepted: %w", err)
	}
	texts := make(map[int64]string)
	waiting := b.queueManual(answers, texts)
	b.onManualAccepted()

	outcomes, room := make(map[int64]control.JobResult), maxAnswerOutput
	for waiting > 0 {
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case r := <-results:
			waiting--
			if r.reason != "" {
				texts[r.id] = r.reason
			} else {
				outcomes[r.id] = cutToAnswer(r.outcome, &room)
			}
		}
	}
	return outcomes, texts, nil
}

// cutToAnswer cuts the outputs of a job to the room that is left in the answer, and takes what they
// need from it. A control character needs six bytes there.
func cutToAnswer(o control.JobResult, room *int) control.JobResult {
	for _, out := range []*string{&o.Stdout, &o.Stderr} {
		limit := max(*room, minCutOutput)
		length, size := eot.FitString(*out, limit)
		if length < len(*out) {
			length, _ = eot.FitString(*out, limit-len(answerCutMark)-1) // its newline is escaped
			*out, size = (*out)[:length]+answerCutMark, limit
		}
		*room -= size
	}
	return o
}

func uniqueIDs(ids []int64) []int64 {
	seen := make(map[int64]bool, len(ids))
	list := make([]int64, 0, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			list = append(list, id)
		}
	}
	return list
}

func (b *Bridge) addManualWaits(ids []int64, results chan<- manualResult) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return errors.New("the daemon is stopping")
	}
	for _, id := range ids {
		if b.manualWaits[id] != nil {
			return control.JobAwaited(id)
		}
	}
	for _, id := range ids {
		b.manualWaits[id] = &manualWait{id: id, results: results}
	}
	b.manualCalls++
	return nil
}

func (b *Bridge) onManualAccepted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.manualCalls--
}

// removeManualWaits removes the channel on which a call waited for these results. The jobs continue.
func (b *Bridge) removeManualWaits(ids []int64, results chan<- manualResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if a := b.manualWaits[id]; a != nil && a.results == results {
			delete(b.manualWaits, id)
		}
	}
}

func (b *Bridge) serves(target string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.machine.Has(target)
}

// queueManual queues the accepted rows, and returns how many results will follow. It adds to texts
// why others were not accepted.
func (b *Bridge) queueManual(answers []store.ManualResult, texts map[int64]string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rows []store.Row
	for _, a := range answers {
		id := a.Row.ID
		switch {
		case a.WasAccepted:
			rows = append(rows, a.Row)
			b.manualRows[id] = cmp.Or(b.manualWaits[id], &manualWait{id: id}) // the call may have ended
			continue
		case !a.WasFound:
			texts[id] = control.UnknownJobText(id)
		case a.Status != store.Manual:
			texts[id] = control.NotManualText(a.Status)
		default:
			texts[id] = control.UnknownTargetText(a.Row.Target, id)
		}
		delete(b.manualWaits, id)
	}
	b.machine.Accept(b.countAccepted(rows, "hand"))
	b.applyEffects()
	return len(rows)
}

// sendResult sends the result of a job to the RunManual that accepted its row, if that call still waits;
// b.mu is held. A later call may wait for the same id, and must not get this result.
func (b *Bridge) sendResult(wait *manualWait, r manualResult) {
	if wait != nil && b.manualWaits[wait.id] == wait {
		delete(b.manualWaits, wait.id)
		r.id = wait.id
		wait.results <- r
	}
}
