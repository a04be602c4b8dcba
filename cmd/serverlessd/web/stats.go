package web

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	"gloom/broker/admin/moments"
	"gloom/broker/guard"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

const (
	// maxSnapshotAge is the time for which a snapshot is used.
	maxSnapshotAge = 2 * time.Second
	// maxTypes is the maximum number of types in a snapshot.
	maxTypes = 1000
)

// status answers with the daemon's name, version and limits, and with what the token allows.
func (s *Web) status(r *request) error {
	scopes := []string{}
	for i, name := range ScopeNames {
		if r.grant.Has(1 << i) {
			scopes = append(scopes, name)
		}
	}
	return answer(r.w, http.StatusOK, map[string]any{
		"name": "serverlessd", "version": s.opt.Version, "uptime": time.Since(s.startedAt).Seconds(), "scopes": scopes, "langs": s.opt.Languages,
		"limits": map[string]any{
			"max_body": s.opt.MaxBody, "max_line": s.opt.MaxLineBytes, "max_lines": s.opt.MaxLines, "journal_max": s.opt.JournalMax,
			"concurrency": s.opt.Concurrency, "contexts": s.opt.MaxProcesses, "max_connections": s.door.MaxConns(),
		},
	})
}

// snapshotKey is the key of a cached answer of stats.
type snapshotKey struct {
	types      int
	nameFilter string
	grant      *guard.Grant // a token may not cover all types
}

// snapshotCache keeps the latest snapshot.
type snapshotCache struct {
	mu      sync.Mutex // guards the fields below; also held while a snapshot is taken
	takenAt time.Time
	snapshot
	endHistory endHistory
}

// snapshot is a snapshot of the daemon, with the handlers and the findings at that time.
type snapshot struct {
	engine   *engine.Snapshot
	handlers map[string]*job.Handler
	findings finding.List
}

// renew takes a snapshot of the daemon if the last one is too old. The caller holds s.snapshots.mu.
func (s *Web) renew(cache *snapshotCache) {
	if now := time.Now(); now.Sub(cache.takenAt) >= maxSnapshotAge {
		cache.takenAt = now
		cache.engine, cache.handlers = s.queue.Snapshot(), s.queue.Handlers()
		cache.findings = cache.endHistory.find(cache.engine, cache.handlers, s.queue.Health(), &s.opt, now)
	}
}

// moment returns the current values for the plots.
func (s *Web) moment() (m moments.Moment, h moments.Histograms, known bool) {
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	s.renew(&s.snapshots)
	snapshot := s.snapshots.engine
	sum := store.Total(snapshot.Types)
	m.Submitted, m.Queued, m.Running = uint64(snapshot.Added), uint64(sum.Waiting), uint64(sum.Running)
	for code, n := range snapshot.Ended {
		switch code {
		case "ok", "failed", "abandoned":
			m.Ended += uint64(n)
		}
		if code != "ok" && code != "retry" {
			m.Failed += uint64(n)
		}
	}
	return m, snapshot.Times, snapshot.Types != nil
}

// lastMinutes answers with the values of the last minutes, for the plots.
func (s *Web) lastMinutes(r *request) error {
	return answer(r.w, http.StatusOK, api.List[moments.Moment]{Items: s.history.Recent()})
}

// visibleTo returns a function that reports whether a token may see a finding.
func visibleTo(grant *guard.Grant) func(*api.Finding) bool {
	return func(f *api.Finding) bool { return f.Kind != "type" || grant.Covers(f.Subject) }
}

// maxFound is the maximum number of findings in an answer of findings, and maxFolded the maximum in
// an answer of stats.
const maxFound, maxFolded = 1000, 20

// findings answers a request for the findings.
func (s *Web) findings(r *request) error {
	limit, err := r.number("limit", maxFound, 1, maxFound)
	if err != nil {
		return err
	}
	s.snapshots.mu.Lock()
	s.renew(&s.snapshots)
	found := s.snapshots.findings
	s.snapshots.mu.Unlock()
	return answer(r.w, http.StatusOK, found.Select(finding.Query{Subject: r.query.Get("subject"), Cause: r.query.Get("cause"), Visible: visibleTo(r.grant)}, limit))
}

// snapshotView is a snapshot as it is shown in an answer.
type snapshotView struct {
	*engine.Snapshot
	Ledger *store.Counts `json:"ledger"` // summed over all types; null: not known
	// CountedMS is how long ago the jobs of the ledger and of the types were counted.
	CountedMS  int64          `json:"counted_ms"`
	Types      []typeView     `json:"types"`
	AllTypes   int            `json:"all_types"` // number of types whose names contain the requested part
	Findings   []api.Finding  `json:"findings"`  // similar findings are folded into one
	Severities api.Severities `json:"severities"`
}

type typeView struct {
	Type string  `json:"type"` // client-type
	Lang *string `json:"lang"` // language of its handler; null: the type has none; "": not known yet
	store.Counts
}

// stats answers with a snapshot of the daemon and its busiest types.
func (s *Web) stats(r *request) error {
	types, err := r.number("types", 20, 0, maxTypes)
	if err != nil {
		return err
	}
	key := snapshotKey{types: types, nameFilter: r.query.Get("part"), grant: r.grant}
	if limit := job.MaxClient + 1 + job.MaxType; len(key.nameFilter) > limit {
		return invalid("part", "part has %d bytes, at most %d are allowed", len(key.nameFilter), limit)
	}
	s.snapshots.mu.Lock()
	s.renew(&s.snapshots)
	snapshot := s.snapshots.snapshot
	s.snapshots.mu.Unlock()
	text, err := s.replyCache.Get(snapshot.engine, key, func() ([]byte, error) { return json.Marshal(snapshot.show(key)) })
	if err != nil {
		return err
	}
	r.w.Header().Set("Content-Type", "application/json")
	r.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = r.w.Write(text)
	return nil
}

// show returns the part of the snapshot that the answer to a request with this key contains.
func (s *snapshot) show(key snapshotKey) *snapshotView {
	snapshot, found := s.engine, s.findings.Select(finding.Query{Visible: visibleTo(key.grant), Fold: true}, maxFolded)
	out := &snapshotView{Snapshot: snapshot, Types: []typeView{}, Findings: found.Items, Severities: found.Counts}
	if snapshot.Types != nil {
		sum := store.Total(snapshot.Types)
		out.Ledger, out.CountedMS = &sum, time.Since(snapshot.Counted).Milliseconds()
	}
	out.addTypes(key, snapshot, s.handlers)
	return out
}

// addTypes adds the types that the token covers and whose names contain the part. A type is listed
// if it has a handler or jobs; the types that need an operator most come first.
func (out *snapshotView) addTypes(key snapshotKey, snapshot *engine.Snapshot, handlers map[string]*job.Handler) {
	types := make(map[string]store.Counts)
	maps.Copy(types, snapshot.Types)
	for jobtype := range handlers {
		if _, ok := types[jobtype]; !ok {
			types[jobtype] = store.Counts{}
		}
	}
	for jobtype, c := range types {
		h := handlers[jobtype]
		if !strings.Contains(jobtype, key.nameFilter) || !key.grant.Covers(jobtype) {
			continue
		}
		t := typeView{Type: jobtype, Counts: c}
		switch {
		case h != nil:
			t.Lang = &h.Lang
		case snapshot.HandlersUnread:
			t.Lang = new(string)
		}
		out.Types = append(out.Types, t)
	}
	slices.SortFunc(out.Types, func(a, b typeView) int {
		deficit := func(t *typeView) int64 {
			if t.Lang == nil {
				return t.Waiting
			}
			return 0
		}
		return cmp.Or(cmp.Compare(deficit(&b), deficit(&a)), cmp.Compare(b.Waiting+b.Running, a.Waiting+a.Running), cmp.Compare(b.Added, a.Added), strings.Compare(a.Type, b.Type))
	})
	out.AllTypes = len(out.Types)
	out.Types = out.Types[:min(len(out.Types), key.types)]
}
