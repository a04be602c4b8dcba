package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

// maxData is the maximum number of bytes that a MEDIUMBLOB holds.
const maxData = 16<<20 - 1

// queuedEnding is the end of a run that is to be written to the store.
type queuedEnding struct {
	store.RunEnd
	run  *run
	wall time.Duration
}

// loggedReason is the number of bytes of a failed run's data that the log shows.
const loggedReason = 500

// endingOf decides what happens to a job whose run has ended.
func (e *Engine) endingOf(r *run, outcome *job.Outcome) *queuedEnding {
	code, status := job.CodeOf(outcome.Status)
	if status != outcome.Status && len(outcome.Data) == 0 {
		outcome.Data = fmt.Appendf(nil, "status %d counts as 500", outcome.Status)
	}
	if outcome.Retry {
		code = job.CodeRetry
	}
	end := &queuedEnding{run: r, wall: outcome.Wall, RunEnd: store.RunEnd{
		Run: r.Run, Code: code, Status: status, BadLines: outcome.BadLines,
	}}
	if outcome.Code != "" {
		end.Code = outcome.Code
		e.log.Info().Stringer("id", r.ID).Str("type", r.Jobtype).Int("try", r.Tries).Str("code", outcome.Code).
			Bytes("reason", outcome.Data[:min(len(outcome.Data), loggedReason)]).Msg("a run failed")
	}
	if code != job.CodeOK || r.Tries > 1 {
		end.Last = &store.LastRun{
			At: time.Now(), Took: outcome.Wall, Code: end.Code, Status: status,
			Data: bytes.Clone(outcome.Data[:min(len(outcome.Data), store.MaxLastData)]), Stderr: outcome.Stderr,
		}
	}
	options := &r.batch.handler.Options
	if code == job.CodeRetry || code == job.CodeError {
		if r.age() < e.cfg.RetryFor {
			end.Action, end.Delay = store.EndRetry, backoff(e.cfg.RetryDelay, e.cfg.RetryMax, r.Tries, rand.Float64())
			if outcome.RetryAfter > 0 {
				end.Delay = outcome.RetryAfter
			}
			end.Delay = min(end.Delay, e.cfg.RetryFor)
			return end
		}
		end.Code = job.CodeAbandoned
		e.archive(end, outcome.Data, options.NextFailed)
		return end
	}
	for _, line := range outcome.Lines {
		e.follow(end, line.Type, line.Payload)
	}
	next := options.Next
	if code == job.CodeFailed {
		next = options.NextFailed
	}
	e.archive(end, outcome.Data, next)
	return end
}

// archive ends a job: it keeps the run's data and, if there is a next type, passes the data to a
// job of that type.
func (e *Engine) archive(end *queuedEnding, data []byte, next string) {
	end.Action = store.EndArchive
	end.Data = data
	if limit := min(e.cfg.MaxResult, maxData); len(data) > limit {
		end.Data, end.Truncated = data[:limit], true
	}
	if next == "" {
		return
	}
	payload := bytes.TrimSuffix(data, []byte("\n"))
	if bytes.IndexByte(payload, '\n') >= 0 {
		payload, _ = json.Marshal(string(payload)) // no error: a string can always be encoded
	}
	if len(payload) > e.cfg.MaxLineBytes {
		end.BadLines++
		return
	}
	e.follow(end, next, payload)
}

func (e *Engine) follow(end *queuedEnding, typ string, payload []byte) {
	end.Follow = append(end.Follow, store.FollowJob{
		ID: e.ids.Next(1), Jobtype: job.Jobtype(end.run.batch.client, typ), Payload: payload,
	})
}

// endingOfUnreported returns the ending of a run whose end the handler did not report: the run was
// not begun, or this daemon has cut it short.
func (e *Engine) endingOfUnreported(r *run, begun bool, cause error) *queuedEnding {
	end := &queuedEnding{run: r, RunEnd: store.RunEnd{Run: r.Run, Action: store.EndGiveBack}}
	if begun && errors.Is(cause, errLocksLost) {
		end.Action, end.Code = store.EndRetry, job.CodeLockExpired
		end.Last = &store.LastRun{At: time.Now(), Took: time.Since(r.takenAt), Code: end.Code}
		if r.age() >= e.cfg.RetryFor {
			e.archive(end, nil, r.batch.handler.Options.NextFailed)
		}
	}
	return end
}
