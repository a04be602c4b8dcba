package admin

import (
	"net/http"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/wording"
	"gloom/wire"
)

// deleteType forgets an unused type. With ?jobs it first discards the type's waiting jobs, dead
// letters and outcomes.
func (a *API) deleteType(w http.ResponseWriter, r *http.Request) error {
	name := nameIn(r, "type")
	discard, err := boolParam(r, "jobs")
	if err != nil {
		return err
	}
	h := a.srv.Hub()
	var known bool
	h.View(func(core *broker.Broker, _ int64) { _, known = core.TypeUse(name) })
	if !known {
		return unknownTypeError(name)
	}
	allowLongAnswer(w)
	req := broker.ForgetRequest{Name: name, Discard: discard}
	for more := true; more && r.Context().Err() == nil; {
		a.withBuildLock(func() {
			h.Do(func(core *broker.Broker, now int64) (effects []broker.Effect) {
				effects, more = core.ForgetType(now, &req)
				return effects
			})
		})
	}
	out := api.Forgotten{Type: wire.Value(name), Discarded: req.Waiting, Dead: req.Letters, Outcomes: req.Outcomes}
	why := wording.TypeUse(&req.Use)
	if why == "" || discard {
		a.log.Info().Str("type", out.Type).Bool("forgotten", why == "").Int("discarded", req.Waiting).Int("dead", req.Letters).
			Int("outcomes", req.Outcomes).Str("peer", peerOf(r)).Msg("an operator forgot a type, or discarded what it held")
		a.snapshot.dropGroups()
	}
	switch {
	case why == "":
		reply(w, http.StatusOK, out)
		return nil
	case req.Waiting+req.Letters+req.Outcomes > 0:
		return apiError(http.StatusConflict, "in_use", "type %.64q is in use again: %s; discarded until then: %d waiting jobs, %d dead letters, %d kept outcomes",
			out.Type, why, req.Waiting, req.Letters, req.Outcomes)
	case req.Use.Discardable() && !discard:
		return apiError(http.StatusConflict, "not_empty", "type %.64q is in use: %s; ?jobs=true discards what it holds", out.Type, why)
	}
	return apiError(http.StatusConflict, "in_use", "type %.64q is in use: %s", out.Type, why)
}
