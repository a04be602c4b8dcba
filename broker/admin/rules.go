package admin

import (
	"errors"
	"net/http"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/settings"
	"gloom/wire"
)

func apiRule(g settings.GroupRule) api.Rule {
	r := api.Rule{Pattern: wire.Value([]byte(g.Pattern)), Persisted: g.IsFromFile}
	if g.Concurrency >= 0 {
		r.Concurrency = &g.Concurrency
	}
	if g.Rate > 0 {
		r.Rate = &g.Rate
	}
	if g.Burst > 0 {
		r.Burst = &g.Burst
	}
	return r
}

func noRuleError(pattern []byte) *api.Error {
	return apiError(http.StatusNotFound, "unknown_rule", "there is no rule for groups like %.64q", wire.Value(pattern))
}

// putRule replaces the rule of a pattern.
func (a *API) putRule(w http.ResponseWriter, r *http.Request) error {
	pattern := nameIn(r, "pattern")
	b, err := readBody(r, "concurrency", "rate", "burst")
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return apiError(http.StatusBadRequest, "missing_field", "a rule needs at least one of concurrency, rate and burst")
	}
	var rule broker.Rule
	if rule.Concurrency, err = b.integer("concurrency", 0, broker.MaxConcurrency, -1); err != nil {
		return err
	}
	if rule.Rate, rule.Burst, err = b.rateAndBurst(1); err != nil {
		return err
	}
	created, err := a.srv.Limits().SetRule(string(pattern), rule)
	if err != nil {
		return apiError(http.StatusServiceUnavailable, "overloaded", "%v", err)
	}
	a.log.Info().Str("pattern", wire.Value(pattern)).Int64("concurrency", rule.Concurrency).Float64("rate", rule.Rate).
		Int64("burst", rule.Burst).Str("peer", peerOf(r)).Msg("an operator set a rule for groups")
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	a.snapshot.dropGroups()
	reply(w, status, apiRule(settings.GroupRule{Pattern: string(pattern), Rule: rule}))
	return nil
}

func (a *API) getRule(w http.ResponseWriter, r *http.Request) error {
	pattern := nameIn(r, "pattern")
	rule, ok := a.srv.Limits().Rule(string(pattern))
	if !ok {
		return noRuleError(pattern)
	}
	reply(w, http.StatusOK, apiRule(rule))
	return nil
}

// deleteRule removes an operator's rule and answers with it.
func (a *API) deleteRule(w http.ResponseWriter, r *http.Request) error {
	pattern := nameIn(r, "pattern")
	rule, _ := a.srv.Limits().Rule(string(pattern))
	switch err := a.srv.Limits().DropRule(string(pattern)); {
	case errors.Is(err, settings.ErrNoRule):
		return noRuleError(pattern)
	case err != nil:
		return apiError(http.StatusConflict, "persisted", "%.64q: %v", wire.Value(pattern), err)
	}
	a.log.Info().Str("pattern", wire.Value(pattern)).Str("peer", peerOf(r)).Msg("an operator deleted a rule for groups")
	a.snapshot.dropGroups()
	reply(w, http.StatusOK, apiRule(rule))
	return nil
}
