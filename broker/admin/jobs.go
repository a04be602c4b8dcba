package admin

import (
	"fmt"
	"net/http"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/wording"
	"gloom/wire"
)

// apiPeer describes the client of a connection, or the broker with the given name.
func (a *API) apiPeer(p broker.Peer, name string) *api.Peer {
	if p == 0 {
		return nil
	}
	out := &api.Peer{Number: uint64(p), Broker: name}
	h := a.srv.Hub()
	if c := h.FindConn(p); c != nil {
		out.Address, out.Client = c.Remote, c.ClientName()
		out.Seconds = float64(h.Now()-c.OpenedAt) / 1e9
	} else if d := h.ClosedConn(p); d.ClosedAt != 0 {
		out.Address, out.Client, out.Gone = d.Remote, d.ClientName, true
		out.Seconds = float64(d.ClosedAt-d.OpenedAt) / 1e9
	}
	return out
}

func (a *API) apiJob(info *broker.JobInfo) api.Job {
	j := api.Job{
		ID: wire.Value(info.ID), Type: wire.Value(info.Type), State: info.State, Priority: info.Priority,
		Attempts: info.Attempts, Retries: info.Retries, Bytes: info.Bytes, Detached: info.IsDetached,
		Unwanted: info.IsUnwanted, KeepMS: info.KeepTime.Milliseconds(), Releases: info.Releases, Groups: stringsOf(info.Groups), AgeSeconds: info.Age.Seconds(), InSeconds: info.TimeInState.Seconds(),
		Holds: wording.WaitingFor(info), Submitter: a.apiPeer(info.Submitter, ""), Worker: a.apiPeer(info.Worker, info.Broker),
	}
	if info.HeldBy != nil {
		j.HeldBy = &api.HeldBy{Group: wire.Value(info.HeldBy), Rule: wire.Value(info.HeldRule)}
	}
	if info.DueIn > 0 {
		dueSeconds := info.DueIn.Seconds()
		j.DueSeconds = &dueSeconds
	}
	if info.ExpiresIn > 0 {
		expires := info.ExpiresIn.Seconds()
		j.ExpiresSeconds = &expires
	}
	if info.State == "ended" {
		j.Outcome = info.EndKind.String()
		if info.EndKind != broker.EndAnswered {
			j.Reason = wording.Reason(&info.Reason)
			j.Bytes = len(j.Reason)
		}
	}
	return j
}

func (a *API) getJob(w http.ResponseWriter, r *http.Request) error {
	id := nameIn(r, "id")
	withBody, err := boolParam(r, "body")
	if err != nil {
		return err
	}
	var info broker.JobInfo
	var ok, offered bool
	var body, headers []byte
	var runs []broker.RunInfo
	var t timeline
	a.srv.Hub().View(func(core *broker.Broker, now int64) {
		info, ok = core.Explain(now, id)
		if withBody {
			body, headers = core.JobContent(id)
		}
		runs, t = core.Runs(id), timelineAt(now)
		offered = info.State == "queued" && info.HeldBy == nil && core.Demand(info.Type).Jobs > 0
	})
	var end *api.End
	if !ok || info.State == "ended" {
		ended, zero, remembered := a.findEnded(r, id)
		switch {
		case !ok && !remembered:
			return a.forgottenError(id)
		case !ok:
			job := a.apiEnded(zero, &ended)
			job.Runs = a.apiRuns(zero, ended.Runs)
			reply(w, http.StatusOK, job)
			return nil
		case remembered:
			of := apiEnd(zero, &ended)
			end, runs, t = &of, ended.Runs, zero
		}
	}
	j := a.apiJob(&info)
	j.End = end
	if f := a.srv.Fleet(); f != nil && offered {
		j.Holds += "; " + f.WhyNotLent(info.Type)
	}
	if info.State == "queued" {
		var p broker.QueuePosition
		for more := true; more; {
			a.srv.Hub().View(func(core *broker.Broker, _ int64) { more = core.QueuePosition(id, &p) })
		}
		exact := p.Exact()
		j.Ahead, j.AheadExact = &p.Ahead, &exact
	}
	j.Runs = a.apiRuns(t, runs)
	j.Headers = headers
	if body != nil {
		return replyWith(w, j, "body", body)
	}
	reply(w, http.StatusOK, j)
	return nil
}

func unknownJobError(id []byte) error {
	return apiError(http.StatusNotFound, "unknown_id", "no job with the id %.64q is delayed, queued or running", wire.Value(id))
}

func (a *API) deleteJob(w http.ResponseWriter, r *http.Request) error {
	id := nameIn(r, "id")
	running, err := boolParam(r, "running")
	if err != nil {
		return err
	}
	var code broker.Code
	state := "cancelled"
	a.srv.Hub().Do(func(core *broker.Broker, now int64) (effects []broker.Effect) {
		switch info, _ := core.Explain(now, id); info.State {
		case "ended":
			state = "forgotten"
		case "running":
			state = "unwanted"
		}
		effects, code = core.Revoke(now, id, running)
		return effects
	})
	switch code {
	case broker.UnknownID:
		return unknownJobError(id)
	case broker.NotProcessing:
		return apiError(http.StatusConflict, "running", "the job %.64q is running; ?running=true cancels it and drops its result", wire.Value(id))
	}
	a.log.Info().Str("id", wire.Value(id)).Str("peer", peerOf(r)).Str("state", state).Msg("an operator cancelled a job, or forgot its outcome")
	reply(w, http.StatusOK, api.State{ID: wire.Value(id), State: state})
	return nil
}

// patchJob changes a waiting job. It allows the same fields as a change frame.
func (a *API) patchJob(w http.ResponseWriter, r *http.Request) error {
	id := nameIn(r, "id")
	b, err := readBody(r, "priority", "groups", "delay_ms")
	if err != nil {
		return err
	}
	frame := append([]byte(`{"action":"change","id":"`), id...)
	frame = append(frame, '"')
	for key, v := range b {
		frame = fmt.Appendf(frame, `,%q:%s`, key, v)
	}
	var d wire.Decoder
	var req wire.Request
	if e := d.Decode(append(frame, '}'), wire.SubmitPort, false, &req); e != nil {
		return apiError(http.StatusBadRequest, e.Code.String(), "%s", e.Reason)
	}
	delay := time.Duration(-1)
	if req.AfterMS >= 0 {
		delay = time.Duration(req.AfterMS) * time.Millisecond
	}
	change := broker.ChangeRequest{
		ID: id, Priority: req.Priority, SetPriority: req.HasPriority, Groups: req.Groups, SetGroups: req.HasGroups, Delay: delay,
	}
	var code broker.Code
	var reason broker.Reason
	var info broker.JobInfo
	a.srv.Hub().Do(func(core *broker.Broker, now int64) (effects []broker.Effect) {
		effects, code, reason = core.Amend(now, &change)
		info, _ = core.Explain(now, id)
		return effects
	})
	switch code {
	case 0:
	case broker.UnknownID:
		return unknownJobError(id)
	case broker.Overloaded:
		return apiError(http.StatusServiceUnavailable, "overloaded", "%s", wording.Reason(&reason))
	default:
		return apiError(http.StatusConflict, "running", "the job %.64q is running; only waiting jobs can be changed", wire.Value(id))
	}
	a.log.Info().Str("id", wire.Value(id)).Any("changes", b).Str("peer", peerOf(r)).Msg("an operator changed a job")
	reply(w, http.StatusOK, api.State{ID: wire.Value(id), State: info.State})
	return nil
}
