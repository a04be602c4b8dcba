package admin

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/wire"
)

func (a *API) peer(p broker.Peer) *api.Peer {
	if p == 0 {
		return nil
	}
	out := &api.Peer{Number: uint64(p)}
	h := a.srv.Hub()
	if c := h.Find(p); c != nil {
		out.Address, out.Client = c.Remote, c.Client()
		out.Seconds = float64(h.Now()-c.Opened) / 1e9
	}
	return out
}

func (a *API) getJob(w http.ResponseWriter, r *http.Request) error {
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	var x broker.JobInfo
	var ok bool
	a.srv.Hub().View(func(b *broker.Broker, now int64) { x, ok = b.Explain(now, id) })
	if !ok {
		return unknownJob(id)
	}
	j := api.Job{
		ID: wire.Value(x.ID), Type: wire.Value(x.Type), State: x.State, Priority: x.Priority,
		Attempts: x.Attempts, Retries: x.Retries, Bytes: x.Bytes, Detached: x.Detached,
		Unwanted: x.Unwanted, KeepMS: x.Keep.Milliseconds(), Releases: x.Releases, Groups: []string{}, AgeSeconds: x.Age.Seconds(), InSeconds: x.In.Seconds(),
		Holds: x.Holds, Submitter: a.peer(x.Submitter), Worker: a.peer(x.Worker),
	}
	for _, g := range x.Groups {
		j.Groups = append(j.Groups, wire.Value(g))
	}
	if x.HeldBy != nil {
		j.HeldBy = &api.HeldBy{Group: wire.Value(x.HeldBy), Rule: wire.Value(x.HeldRule)}
	}
	if x.Due > 0 {
		due := x.Due.Seconds()
		j.DueSeconds = &due
	}
	if x.State == "queued" {
		var p broker.Place
		for more := true; more; {
			a.srv.Hub().View(func(b *broker.Broker, _ int64) { more = b.Place(id, &p) })
		}
		exact := p.Exact()
		j.Ahead, j.AheadExact = &p.Ahead, &exact
	}
	reply(w, http.StatusOK, j)
	return nil
}

func unknownJob(id []byte) error {
	return fail(http.StatusNotFound, "unknown_id", "no job with the id %.64q is delayed, queued or running", wire.Value(id))
}

func (a *API) deleteJob(w http.ResponseWriter, r *http.Request) error {
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	var code broker.Code
	state := "cancelled"
	a.srv.Hub().Do(func(b *broker.Broker, now int64) (fx []broker.Effect) {
		if x, _ := b.Explain(now, id); x.State == "ended" {
			state = "forgotten"
		}
		fx, code = b.Revoke(now, id, false)
		return fx
	})
	switch code {
	case broker.UnknownID:
		return unknownJob(id)
	case broker.NotProcessing:
		return fail(http.StatusConflict, "running", "the job %.64q is running; only its submitter can cancel it now", wire.Value(id))
	}
	a.log.Info().Str("id", wire.Value(id)).Str("peer", r.RemoteAddr).Str("state", state).Msg("an operator cancelled a job, or forgot its outcome")
	reply(w, http.StatusOK, api.State{ID: wire.Value(id), State: state})
	return nil
}

// patchJob changes a job that waits. What it may say is what a change frame may.
func (a *API) patchJob(w http.ResponseWriter, r *http.Request) error {
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	b, err := read(r, "priority", "groups", "delay_ms")
	if err != nil {
		return err
	}
	frame := append([]byte(`{"action":"change","id":"`), id...)
	frame = append(frame, '"')
	for key, v := range b {
		frame = fmt.Appendf(frame, `,%q:%s`, key, v)
	}
	var d wire.Decoder
	var q wire.Request
	if e := d.Decode(append(frame, '}'), wire.SubmitPort, false, &q); e != nil {
		return fail(http.StatusBadRequest, e.Code.String(), "%s", e.Reason)
	}
	delay := time.Duration(-1)
	if q.AfterMS >= 0 {
		delay = time.Duration(q.AfterMS) * time.Millisecond
	}
	c := broker.Changing{
		ID: id, Priority: q.Priority, SetPriority: q.SetPriority, Groups: q.Groups, SetGroups: q.SetGroups, Delay: delay,
	}
	var code broker.Code
	var reason string
	var x broker.JobInfo
	a.srv.Hub().Do(func(b *broker.Broker, now int64) (fx []broker.Effect) {
		fx, code, reason = b.Amend(now, &c)
		x, _ = b.Explain(now, id)
		return fx
	})
	switch code {
	case 0:
	case broker.UnknownID:
		return unknownJob(id)
	case broker.Overloaded:
		return fail(http.StatusServiceUnavailable, "overloaded", "%s", reason)
	default:
		return fail(http.StatusConflict, "running", "the job %.64q is running; only jobs that wait can be changed", wire.Value(id))
	}
	a.log.Info().Str("id", wire.Value(id)).Str("peer", r.RemoteAddr).Msg("an operator changed a job")
	reply(w, http.StatusOK, api.State{ID: wire.Value(id), State: x.State})
	return nil
}

// longReason is how much is shown of a reason, in bytes.
const longReason = 64 << 10

func deadJob(l *broker.DeadLetter, now int64) api.DeadJob {
	reason := l.Reason
	if len(reason) > longReason {
		reason = strings.ToValidUTF8(reason[:longReason], "") + "…"
	}
	return api.DeadJob{
		ID: wire.Value(l.ID), Type: wire.Value(l.Type), Reason: reason, Priority: l.Priority,
		Attempts: l.Attempts, Bytes: len(l.Body), FailedSeconds: float64(now-l.Failed) / 1e9,
	}
}

func (a *API) letters(typ []byte, from, limit int) (found []*broker.DeadLetter, next int) {
	a.srv.Hub().View(func(b *broker.Broker, now int64) { found, next = b.DeadLetters(now, typ, from, limit, nil) })
	return found, next
}

// getDead lists the failed jobs of a type, latest first, without bodies.
func (a *API) getDead(w http.ResponseWriter, r *http.Request) error {
	n, err := name(r, "type")
	if err != nil {
		return err
	}
	return listing(a, w, r, func(from, limit int) (items []api.DeadJob, next int) {
		found, next := a.letters(n, from, limit)
		now := a.srv.Hub().Now()
		for _, l := range found {
			items = append(items, deadJob(l, now))
		}
		return items, next
	})
}

// getDeadJob shows the failed job that a retry of this id would hand in, body
// included: the oldest one, if there are several.
func (a *API) getDeadJob(w http.ResponseWriter, r *http.Request) error {
	n, err := name(r, "type")
	if err != nil {
		return err
	}
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	var letter *broker.DeadLetter
	for from := 0; from >= 0; {
		var found []*broker.DeadLetter
		found, from = a.letters(n, from, math.MaxInt)
		for _, l := range found {
			if bytes.Equal(l.ID, id) {
				letter = l
			}
		}
	}
	if letter == nil {
		return fail(http.StatusNotFound, "unknown_id", "no failed job %.64q is kept", wire.Value(id))
	}
	return replyWith(w, deadJob(letter, a.srv.Hub().Now()), "body", letter.Body)
}

func (a *API) retryDead(w http.ResponseWriter, r *http.Request) error {
	n, err := name(r, "type")
	if err != nil {
		return err
	}
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	if _, err := read(r); err != nil {
		return err
	}
	var code broker.Code
	var reason string
	a.srv.Hub().Do(func(b *broker.Broker, now int64) (fx []broker.Effect) {
		fx, code, reason = b.Revive(now, n, id)
		return fx
	})
	switch code {
	case 0:
	case broker.UnknownID:
		return fail(http.StatusNotFound, "unknown_id", "%s: %.64q", reason, wire.Value(id))
	default:
		return fail(http.StatusConflict, "refused", "%s", reason)
	}
	a.log.Info().Str("id", wire.Value(id)).Str("peer", r.RemoteAddr).Msg("an operator handed a failed job in again")
	reply(w, http.StatusOK, api.State{ID: wire.Value(id), State: "queued"})
	return nil
}
