package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/wording"
	"gloom/wire"
)

// endedKeys are the keys that only an ended-job filter may have.
var endedKeys = []string{"outcome", "since"}

// timeline converts times of the hub's clock to wall-clock times.
type timeline struct{ zero time.Time }

func timelineAt(now int64) timeline { return timeline{time.Now().Add(-time.Duration(now))} }

func (t timeline) formatAt(clock int64) string {
	return t.zero.Add(time.Duration(clock)).UTC().Format("2006-01-02T15:04:05.000Z")
}

func (a *API) apiRuns(t timeline, runs []broker.RunInfo) (out []api.Run) {
	for i := range runs {
		run := &runs[i]
		out = append(out, api.Run{
			N: run.Run, Worker: a.apiPeer(run.Worker, run.Broker), StartedAt: t.formatAt(run.StartedAt), RanMS: (run.EndedAt - run.StartedAt) / 1e6,
			Outcome: run.EndKind.String(), Error: wording.Reason(&run.Reason), BrokerLost: run.BrokerLost,
		})
	}
	return out
}

func apiEnd(t timeline, ended *broker.EndedInfo) api.End {
	e := api.End{
		SubmittedAt: t.formatAt(ended.SubmittedAt), EndedAt: t.formatAt(ended.EndedAt), WaitedMS: (ended.EndedAt - ended.SubmittedAt) / 1e6,
		Size: ended.Size, AnswerSize: ended.AnswerSize,
	}
	if ended.StartedAt >= 0 {
		started := t.formatAt(ended.StartedAt)
		e.StartedAt, e.WaitedMS, e.RanMS = &started, (ended.StartedAt-ended.SubmittedAt)/1e6, (ended.EndedAt-ended.StartedAt)/1e6
	}
	return e
}

func (a *API) apiEnded(t timeline, ended *broker.EndedInfo) api.Ended {
	return api.Ended{
		ID: wire.Value(ended.ID), Type: wire.Value(ended.Type), State: "ended", Groups: stringsOf(ended.Groups), Submitter: a.apiPeer(ended.Submitter, ""),
		Outcome: ended.EndKind.String(), Reason: wording.Reason(&ended.Reason), Attempts: ended.Attempts, End: apiEnd(t, ended),
	}
}

// endedFilter turns a request's filter into an ended-job filter.
func endedFilter(filter *broker.JobFilter, query url.Values) (*broker.EndedFilter, error) {
	out := &broker.EndedFilter{Type: filter.Type, Group: filter.Group, IDPart: filter.ID, Submitter: filter.Submitter, Worker: filter.Worker, EndKind: query.Get("outcome")}
	if out.EndKind != "" && !slices.Contains(broker.JobEnds, out.EndKind) {
		return nil, apiError(http.StatusBadRequest, "invalid_value", "outcome must be one of %s, got %.64q", strings.Join(broker.JobEnds, ", "), out.EndKind)
	}
	if query.Get("older") != "" {
		return nil, apiError(http.StatusBadRequest, "invalid_value", "older is not for ended jobs; since bounds how long ago they ended")
	}
	since := query.Get("since")
	if since == "" {
		return out, nil
	}
	if d, err := time.ParseDuration(since); err == nil && d > 0 {
		out.MaxTimeSinceEnd = d
	} else if at, err := time.Parse(time.RFC3339Nano, since); err == nil {
		out.MaxTimeSinceEnd = max(1, time.Since(at))
	} else if ms, err := strconv.ParseInt(since, 10, 64); err == nil && ms > 0 && ms <= wire.MaxDurationMS {
		out.MaxTimeSinceEnd = time.Duration(ms) * time.Millisecond
	} else {
		return nil, apiError(http.StatusBadRequest, "invalid_value", "since must be an RFC 3339 time, a duration such as 3h, or milliseconds, got %.64q", since)
	}
	return out, nil
}

// listEnded lists the jobs that have ended, the latest end first.
func (a *API) listEnded(w http.ResponseWriter, r *http.Request, filter *broker.EndedFilter) error {
	first := true
	return answerListing(a, w, r, "cursor", func(from, limit int) (items []api.Ended, next int) {
		var found []broker.EndedInfo
		var t timeline
		a.srv.Hub().View(func(core *broker.Broker, now int64) {
			after := int64(from)
			if first { // the first position is the client's cursor
				after, first = core.ValidPosition(after), false
			}
			found, after = core.Ended(now, after, limit, filter)
			t, next = timelineAt(now), int(after)
		})
		for i := range found {
			items = append(items, a.apiEnded(t, &found[i]))
		}
		return items, next
	})
}

// findEnded returns the latest ended job with an id in the history.
func (a *API) findEnded(r *http.Request, id []byte) (ended broker.EndedInfo, t timeline, ok bool) {
	for from := int64(0); from >= 0 && !ok && r.Context().Err() == nil; {
		var found []broker.EndedInfo
		a.withBuildLock(func() {
			a.srv.Hub().View(func(core *broker.Broker, now int64) {
				found, from = core.Ended(now, from, 1, &broker.EndedFilter{ID: id})
				t = timelineAt(now)
			})
		})
		if ok = len(found) > 0; ok {
			ended = found[0]
		}
	}
	return ended, t, ok
}

// forgottenError returns the error that no job has this id. The error says how far back the history
// reaches.
func (a *API) forgottenError(id []byte) error {
	var span time.Duration
	var complete bool
	a.srv.Hub().View(func(core *broker.Broker, now int64) { span, complete = core.HistorySpan(now) })
	reach := fmt.Sprintf("the history reaches back %v (--history %.4gMiB)", span.Round(time.Second), float64(a.srv.Options().History)/(1<<20))
	switch {
	case a.srv.Options().History == 0:
		reach = "the history is off (--history 0)"
	case complete:
		reach = fmt.Sprintf("the history reaches back to the start of the broker, %v ago", time.Since(a.srv.Started()).Round(time.Second))
	}
	return apiError(http.StatusNotFound, "unknown_job", "no job with the id %.64q is waiting, running or in the history; %s", wire.Value(id), reach)
}
