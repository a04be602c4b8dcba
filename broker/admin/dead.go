package admin

import (
	"bytes"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/wording"
	"gloom/wire"
)

func apiDeadJob(l *broker.DeadLetter, now int64) api.DeadJob {
	return api.DeadJob{
		No: l.Number, ID: wire.Value(l.ID), Type: wire.Value(l.Type), Reason: wording.Reason(&l.Reason), Priority: l.Priority,
		Attempts: l.Attempts, Bytes: len(l.Body), FailedSeconds: float64(now-l.FailedAt) / 1e9,
	}
}

func (a *API) findDeadJobs(typ []byte, from, limit int, filter *broker.LetterFilter) (letters []*broker.DeadLetter, next int) {
	a.srv.Hub().View(func(core *broker.Broker, now int64) { letters, next = core.DeadLetters(now, typ, from, limit, filter) })
	return letters, next
}

// deadJobKeys are the keys of a failed-job filter.
var deadJobKeys = []string{"id", "reason", "older"}

func deadJobFilter(query url.Values) (*broker.LetterFilter, error) {
	older, err := intParam(query, "older", wire.MaxDurationMS)
	filter := &broker.LetterFilter{ID: query.Get("id"), MinTimeSinceFailure: time.Duration(older) * time.Millisecond}
	if part := query.Get("reason"); part != "" {
		filter.Reason = func(r *broker.Reason) bool { return strings.Contains(wording.Reason(r), part) }
	}
	return filter, err
}

// getDead lists the matching failed jobs of a type, latest first, without bodies.
func (a *API) getDead(w http.ResponseWriter, r *http.Request) error {
	name := nameIn(r, "type")
	filter, err := deadJobFilter(r.URL.Query())
	if err != nil {
		return err
	}
	return answerListing(a, w, r, "next", func(from, limit int) (items []api.DeadJob, next int) {
		found, next := a.findDeadJobs(name, from, limit, filter)
		now := a.srv.Hub().Now()
		for _, l := range found {
			items = append(items, apiDeadJob(l, now))
		}
		return items, next
	})
}

// maxDeadJobs bounds the failed jobs of one id in an answer.
const maxDeadJobs = 100

// findDead lists the failed jobs with an id in all types, the latest of each type first.
func (a *API) findDead(w http.ResponseWriter, r *http.Request) error {
	id, err := parseName("id", r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	var types [][]byte
	h := a.srv.Hub()
	for from := 0; from >= 0 && r.Context().Err() == nil; {
		h.View(func(core *broker.Broker, _ int64) {
			from = core.Types(from, math.MaxInt, func(t *broker.TypeInfo, _ *broker.TypeStats) {
				if t.DeadLetters > 0 {
					types = append(types, t.Name)
				}
			})
		})
	}
	out := api.List[api.DeadJob]{Items: []api.DeadJob{}}
	for _, typ := range types {
		for from := 0; from >= 0 && len(out.Items) < maxDeadJobs && r.Context().Err() == nil; {
			var found []*broker.DeadLetter
			a.withBuildLock(func() {
				found, from = a.findDeadJobs(typ, from, itemsPerLook, &broker.LetterFilter{ID: wire.Value(id)})
			})
			for _, l := range found {
				if bytes.Equal(l.ID, id) && len(out.Items) < maxDeadJobs {
					out.Items = append(out.Items, apiDeadJob(l, h.Now()))
				}
			}
		}
	}
	reply(w, http.StatusOK, out)
	return nil
}

// requestedDeadJob returns the failed job with the given number or, without a number, the oldest one
// with the id.
func (a *API) requestedDeadJob(r *http.Request) (letter *broker.DeadLetter, err error) {
	name := nameIn(r, "type")
	id := nameIn(r, "id")
	number, err := intParam(r.URL.Query(), "no", math.MaxInt-1)
	if err != nil {
		return nil, err
	}
	from, limit := 0, math.MaxInt
	if number > 0 {
		from, limit = int(number)+1, 1
	}
	for more := true; more && r.Context().Err() == nil; more = number == 0 && from >= 0 {
		var found []*broker.DeadLetter
		found, from = a.findDeadJobs(name, from, limit, nil)
		for _, l := range found {
			if bytes.Equal(l.ID, id) && (number == 0 || l.Number == int(number)) {
				letter = l
			}
		}
	}
	if letter == nil {
		return nil, noDeadJobError(id)
	}
	return letter, nil
}

func noDeadJobError(id []byte) error {
	return apiError(http.StatusNotFound, "unknown_id", "no failed job %.64q is kept", wire.Value(id))
}

// getDeadJob shows the failed job that a retry would resubmit, with its body.
func (a *API) getDeadJob(w http.ResponseWriter, r *http.Request) error {
	l, err := a.requestedDeadJob(r)
	if err != nil {
		return err
	}
	return replyWith(w, apiDeadJob(l, a.srv.Hub().Now()), "body", l.Body)
}

func (a *API) retryDead(w http.ResponseWriter, r *http.Request) error {
	if _, err := readBody(r); err != nil {
		return err
	}
	l, err := a.requestedDeadJob(r)
	if err != nil {
		return err
	}
	var code broker.Code
	var reason broker.Reason
	a.srv.Hub().Do(func(core *broker.Broker, now int64) (effects []broker.Effect) {
		effects, code, reason = core.ResubmitLetter(now, l.Type, l.ID, l.Number)
		return effects
	})
	switch code {
	case 0:
	case broker.UnknownID:
		return noDeadJobError(l.ID)
	default:
		return apiError(http.StatusConflict, "refused", "%s", wording.Reason(&reason))
	}
	id := wire.Value(l.ID)
	a.log.Info().Str("type", wire.Value(l.Type)).Str("id", id).Int("no", l.Number).Str("peer", peerOf(r)).Msg("an operator retried a failed job")
	reply(w, http.StatusOK, api.State{ID: id, State: "queued"})
	return nil
}

// discardDead drops the failed job that a retry would resubmit.
func (a *API) discardDead(w http.ResponseWriter, r *http.Request) error {
	l, err := a.requestedDeadJob(r)
	if err != nil {
		return err
	}
	var found bool
	a.srv.Hub().Do(func(core *broker.Broker, now int64) (effects []broker.Effect) {
		effects, found = core.DropLetter(now, l.Type, l.ID, l.Number)
		return effects
	})
	if !found {
		return noDeadJobError(l.ID)
	}
	id := wire.Value(l.ID)
	a.log.Info().Str("type", wire.Value(l.Type)).Str("id", id).Int("no", l.Number).Str("peer", peerOf(r)).Msg("an operator discarded a failed job")
	reply(w, http.StatusOK, api.State{ID: id, State: "discarded"})
	return nil
}

func (a *API) retryAllDead(w http.ResponseWriter, r *http.Request) error {
	return a.changeDeadJobs(w, r, "retried failed jobs", true)
}

func (a *API) discardAllDead(w http.ResponseWriter, r *http.Request) error {
	return a.changeDeadJobs(w, r, "discarded failed jobs", false)
}

// changeDeadJobs retries or discards the matching failed jobs of a type.
func (a *API) changeDeadJobs(w http.ResponseWriter, r *http.Request, logText string, resubmit bool) error {
	name := nameIn(r, "type")
	query, limit, err := readSelection(r, deadJobKeys...)
	if err != nil {
		return err
	}
	filter, err := deadJobFilter(query)
	if err != nil {
		return err
	}
	allowLongAnswer(w)
	return a.handleMany(w, r, logText, query, func() (count int) {
		for from := 0; from >= 0 && r.Context().Err() == nil; {
			var found []*broker.DeadLetter
			found, from = a.findDeadJobs(name, from, math.MaxInt, filter)
			count += len(found)
		}
		return count
	}, func(out *api.Many) {
		walk := broker.LetterWalk{LetterFilter: *filter, Limit: limit}
		for more := true; more && r.Context().Err() == nil; {
			a.withBuildLock(func() {
				a.srv.Hub().Do(func(core *broker.Broker, now int64) (effects []broker.Effect) {
					effects, more = core.WalkLetters(now, name, &walk, resubmit)
					return effects
				})
			})
		}
		out.Done, out.Refused, out.Reason = walk.Handled, walk.Refused, wording.Reason(&walk.Reason)
	})
}
