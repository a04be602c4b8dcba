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
	n := nameIn(r, "type")
	discard, err := boolParam(r, "jobs")
	if err != nil {
		return err
	}
	h := a.srv.Hub()
	var known bool
	h.View(func(b *broker.Broker, _ int64) { _, known = b.TypeUse(n) })
	if !known {
		return unknownTypeError(n)
	}
	allowLongAnswer(w)
	f := broker.ForgetRequest{Name: n, Discard: discard}
	for more := true; more && r.Context().Err() == nil; {
		a.withBuildLock(func() {
			h.Do(func(b *broker.Broker, now int64) (effects []broker.Effect) {
				effects, more = b.ForgetType(now, &f)
				return effects
			})
		})
	}
	out := api.Forgotten{Type: wire.Value(n), Discarded: f.Waiting, Dead: f.Letters, Outcomes: f.Outcomes}
	why := wording.TypeUse(&f.Use)
	if why == "" || discard {
		a.log.Info().Str("type", out.Type).Bool("forgotten", why == "").Int("discarded", f.Waiting).Int("dead", f.Letters).
			Int("outcomes", f.Outcomes).Str("peer", peerOf(r)).Msg("an operator forgot a type, or discarded what it held")
		a.snapshot.dropGroups()
	}
	switch {
	case why == "":
		reply(w, http.StatusOK, out)
		return nil
	case f.Waiting+f.Letters+f.Outcomes > 0:
		return apiError(http.StatusConflict, "in_use", "type %.64q is in use again: %s; discarded until then: %d waiting jobs, %d dead letters, %d kept outcomes",
			out.Type, why, f.Waiting, f.Letters, f.Outcomes)
	case f.Use.Discardable() && !discard:
		return apiError(http.StatusConflict, "not_empty", "type %.64q is in use: %s; ?jobs=true discards what it holds", out.Type, why)
	}
	return apiError(http.StatusConflict, "in_use", "type %.64q is in use: %s", out.Type, why)
}
