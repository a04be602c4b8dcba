package admin

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/hub"
	"gloom/broker/wording"
	"gloom/wire"
)

// takeSurvey reads all queues and workers, one piece at a time.
func takeSurvey(h *hub.Hub) *broker.Survey {
	var s broker.Survey
	for more := true; more; {
		h.View(func(core *broker.Broker, now int64) { more = core.Survey(now, &s) })
	}
	return &s
}

// surveys shares a survey among the requests that wait for one, because a survey of many types takes
// megabytes and milliseconds.
type surveys struct {
	waiting atomic.Int64 // requests that have begun take
	mu      sync.Mutex
	last    *broker.Survey // nil while nobody waits
	begunAt time.Time
}

// take returns a survey that has begun after the call.
func (x *surveys) take(h *hub.Hub) *broker.Survey {
	calledAt := time.Now()
	x.waiting.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last == nil || !x.begunAt.After(calledAt) {
		x.begunAt = time.Now()
		x.last = takeSurvey(h)
	}
	s := x.last
	if x.waiting.Add(-1) == 0 {
		x.last = nil
	}
	return s
}

func apiCompleteType(t *broker.TypeInfo, s *broker.Survey) api.Type {
	s.Complete(t)
	x := apiType(t)
	x.Type = wire.Value(t.Name)
	return x
}

// apiType returns a type as the API shows it, without its name.
func apiType(t *broker.TypeInfo) api.Type {
	return api.Type{
		Paused: t.Paused, Fair: t.Fair, Limits: api.Limits(t.Limits),
		Queued: t.Queued, Delayed: t.Delayed, Running: t.Running,
		Workers: t.Workers, Idle: t.IdleWorkers, Submitters: t.Submitters, Bytes: t.Bytes, Dead: t.DeadLetters,
		OldestSeconds: t.OldestAge.Seconds(), Dispatched: t.Dispatched, Requeued: t.Requeued, Releases: t.Releases,
		Overdue: t.Overdue, Ledger: apiLedger(&t.Ledger),
	}
}

func apiLedger(l *broker.Ledger) api.Ledger {
	return api.Ledger{
		Submitted: l.Submitted, Delayed: l.Delayed, Queued: l.Queued, Running: l.Running,
		Answered: l.Answered, Failed: l.Failed, Cancelled: l.Cancelled, Expired: l.Expired,
		Discarded: l.Discarded,
	}
}

// nameIn returns a name in the path, which readNames has checked, in canonical form.
func nameIn(r *http.Request, key string) []byte { return []byte(r.PathValue(key)) }

func parseName(key, v string) ([]byte, error) {
	if err := wire.CheckName(key, v); err != nil {
		return nil, apiError(http.StatusBadRequest, "invalid_value", "%s", err.Reason)
	}
	return wire.Canonical(nil, v), nil
}

func (a *API) getTypes(w http.ResponseWriter, r *http.Request) error {
	if query := r.URL.Query(); query.Has("sort") || query.Has("filter") {
		return a.getSortedTypes(w, r)
	}
	h := a.srv.Hub()
	survey := a.surveys.take(h)
	return answerListing(a, w, r, "next", func(from, limit int) (items []api.Type, next int) {
		h.View(func(core *broker.Broker, _ int64) {
			next = core.Types(from, limit, func(t *broker.TypeInfo, s *broker.TypeStats) {
				x := apiCompleteType(t, survey)
				x.Wait = append([]uint64(nil), s.Wait.Buckets[:]...)
				items = append(items, x)
			})
		})
		return items, next
	})
}

func (a *API) getType(w http.ResponseWriter, r *http.Request) error {
	name := nameIn(r, "type")
	t, ok := a.findType(name)
	if !ok {
		return unknownTypeError(name)
	}
	reply(w, http.StatusOK, t)
	return nil
}

func unknownTypeError(name []byte) error {
	return apiError(http.StatusNotFound, "unknown_type", "there is no job or worker of type %.64q, and there has been none lately", wire.Value(name))
}

// findType returns the current state of a type. Its rates, and sums that would take long to
// compute, are from the last snapshot.
func (a *API) findType(name []byte) (api.Type, bool) {
	var t broker.TypeInfo
	var ok bool
	h := a.srv.Hub()
	var stats broker.TypeStats
	h.View(func(core *broker.Broker, _ int64) { t, stats, ok = core.Type(name) })
	if !ok {
		return api.Type{Type: wire.Value(name)}, false
	}
	var shown *api.Type
	a.withSnapshot(func(snap *snapshot) {
		if row := snap.rows[string(name)]; row != nil {
			c := row.clone()
			shown = &c
		}
	})
	var x api.Type
	if shown == nil {
		x = apiCompleteType(&t, a.surveys.take(h))
	} else {
		x = apiType(&t)
		x.Type, x.Workers, x.Idle, x.Submitters, x.Rates = shown.Type, shown.Workers, shown.Idle, shown.Submitters, shown.Rates
		if x.Queued > 0 {
			x.OldestSeconds = shown.OldestSeconds
		}
	}
	x.Wait, x.Run = stats.Wait.Buckets[:], stats.Run.Buckets[:]
	return x, true
}

func (a *API) pauseType(w http.ResponseWriter, r *http.Request) error { return a.setPaused(w, r, true) }
func (a *API) resumeType(w http.ResponseWriter, r *http.Request) error {
	return a.setPaused(w, r, false)
}

func (a *API) setPaused(w http.ResponseWriter, r *http.Request, paused bool) error {
	if _, err := readBody(r); err != nil {
		return err
	}
	event := a.log.Info().Bool("paused", paused)
	return a.configureType(w, r, event, "paused or resumed a type", func(name []byte) (err error) {
		a.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
			effects, refusal := core.Configure(now, &broker.Settings{Types: []broker.TypeSetting{{Name: name, Paused: &paused}}})
			err = wording.SettingErrorOf(refusal)
			return effects
		})
		return err
	})
}

func (a *API) putLimits(w http.ResponseWriter, r *http.Request) error {
	b, err := readBody(r, "concurrency", "rate", "burst")
	if err != nil {
		return err
	}
	concurrency, err := b.integer("concurrency", 0, broker.MaxConcurrency, 0)
	if err != nil {
		return err
	}
	rate, burst, err := b.rateAndBurst(0)
	if err != nil {
		return err
	}
	l := broker.TypeLimits{Concurrency: int(concurrency), Rate: rate, Burst: int(burst)}
	event := a.log.Info().Int("concurrency", l.Concurrency).Float64("rate", l.Rate).Int("burst", l.Burst)
	return a.configureType(w, r, event, "set limits", func(name []byte) error { return a.srv.Limits().SetTypeLimits(string(name), l) })
}

// putType sets whether the tenants of a type take turns. The type need not be known yet.
func (a *API) putType(w http.ResponseWriter, r *http.Request) error {
	b, err := readBody(r, "fair")
	if err != nil {
		return err
	}
	fair, err := b.boolean("fair")
	if err != nil {
		return err
	}
	return a.configureType(w, r, a.log.Info().Bool("fair", fair), "set fairness", func(name []byte) error { return a.srv.Limits().SetFair(string(name), fair) })
}

// configureType configures a type, logs the change, and replies with the new state of the type.
func (a *API) configureType(w http.ResponseWriter, r *http.Request, event *zerolog.Event, action string, set func(name []byte) error) error {
	name := nameIn(r, "type")
	if err := set(name); err != nil {
		var e *wording.SettingError
		if errors.As(err, &e) {
			return apiError(http.StatusServiceUnavailable, "overloaded", "type %.64q: %s", wire.Value(name), e.Reason)
		}
		return err
	}
	event.Str("type", wire.Value(name)).Str("peer", peerOf(r)).Msg("an operator " + action)
	a.snapshot.dropGroups()
	t, _ := a.findType(name)
	reply(w, http.StatusOK, t)
	return nil
}
