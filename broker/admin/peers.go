package admin

import (
	_ "embed"
	"net/http"
	"slices"
	"strings"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/guard"
	"gloom/broker/server"
	"gloom/wire"
)

// typeParam returns the type in the query, or nil if all types are meant.
func typeParam(r *http.Request) ([]byte, error) {
	v := r.URL.Query().Get("type")
	if v == "" {
		return nil, nil
	}
	return parseName("type", v)
}

func stringsOf(names [][]byte) []string {
	out := []string{}
	for _, name := range names {
		out = append(out, wire.Value(name))
	}
	return out
}

// unreadBytes returns how many of the bytes sent to a peer it has not read.
func (a *API) unreadBytes(p broker.Peer) int {
	if c := a.srv.Hub().FindConn(p); c != nil {
		return c.UnreadBytes()
	}
	return 0
}

func (a *API) getWorkers(w http.ResponseWriter, r *http.Request) error {
	typ, err := typeParam(r)
	if err != nil {
		return err
	}
	return answerListing(a, w, r, "next", func(from, limit int) (items []api.Worker, next int) {
		var found []broker.WorkerInfo
		a.srv.Hub().View(func(core *broker.Broker, now int64) { found, next = core.Workers(now, typ, from, limit) })
		for i := range found {
			info := &found[i]
			worker := api.Worker{
				Peer: *a.apiPeer(info.Peer, ""), Types: info.Types, Prefetch: info.Room, Out: info.JobsOut, Overdue: info.Overdue, Left: info.HasLeft, Silent: info.IsSilent,
				IdleSeconds: info.IdleTime.Seconds(), Jobs: stringsOf(info.Jobs), Serves: stringsOf(info.Serves), UnreadBytes: a.unreadBytes(info.Peer),
			}
			if info.Type != nil {
				worker.Type = wire.Value(info.Type)
			}
			items = append(items, worker)
		}
		return items, next
	})
}

func (a *API) getSubmitters(w http.ResponseWriter, r *http.Request) error {
	typ, err := typeParam(r)
	if err != nil {
		return err
	}
	return answerListing(a, w, r, "next", func(from, limit int) (items []api.Submitter, next int) {
		var found []broker.SubmitterInfo
		a.srv.Hub().View(func(core *broker.Broker, _ int64) { found, next = core.Submitters(typ, from, limit) })
		for _, info := range found {
			items = append(items, api.Submitter{
				Peer: *a.apiPeer(info.Peer, ""), Jobs: info.Jobs, Bytes: info.Bytes, Types: info.Types, TypeNames: stringsOf(info.Names), UnreadBytes: a.unreadBytes(info.Peer),
			})
		}
		return items, next
	})
}

func (a *API) getStatus(w http.ResponseWriter, r *http.Request) error {
	grant := grantOf(r)
	s := a.apiStatus(grant)
	if typ, err := typeParam(r); err != nil {
		return err
	} else if typ != nil && !grant.CoversName(typ) {
		s.Scopes = slices.DeleteFunc(s.Scopes, func(scope string) bool { return scope == "submit" })
	}
	reply(w, http.StatusOK, s)
	return nil
}

func (a *API) apiStatus(grant *guard.Grant) api.Status {
	opt := a.srv.Options()
	s := api.Status{
		Version: opt.Version, Links: parseLinks(opt.PageLinks), Fleet: a.srv.Fleet() != nil, UptimeSeconds: time.Since(a.srv.Started()).Seconds(), Draining: a.srv.Draining(), Scopes: scopesOf(grant),
		Limits: map[string]int64{
			"max_memory": opt.MaxMemory, "max_unread": opt.MaxUnread, "dead_bytes": opt.DeadBytes, "history": opt.History,
			"max_frame": int64(opt.MaxFrame), "max_jobs": int64(opt.MaxJobs), "max_bytes": opt.MaxBytes,
			"max_type_jobs": int64(opt.MaxTypeJobs), "max_submitter_jobs": int64(opt.MaxSubmitterJobs),
			"max_type_bytes": opt.MaxTypeBytes, "max_submitter_bytes": opt.MaxSubmitterBytes,
			"max_types": int64(opt.MaxTypes), "max_groups": int64(opt.MaxGroups), "dead_letters": int64(opt.DeadLetters),
			"max_conns": int64(a.srv.MaxConns()), "max_http_conns": int64(opt.MaxHTTPConns), "max_outbound": int64(opt.MaxOutbound),
			"max_inbound": opt.MaxInbound, "max_prefetch": int64(opt.MaxPrefetch), "retries": int64(opt.Retries),
		},
	}
	var total broker.Ledger
	a.srv.Hub().View(func(core *broker.Broker, _ int64) {
		total, s.Types, s.StoreBytes = core.Totals(), core.TypeCount(), core.Memory().Jobs()
		s.Submitters, s.Workers = core.Peers()
		s.Dead, s.DeadBytes = core.LetterCount()
		s.DeadDropped = core.DroppedLetters()
	})
	s.Ledger, s.Imbalance = apiLedger(&total), total.Imbalance()
	return s
}

func parseLinks(values []string) []api.Link {
	out := []api.Link{}
	for _, v := range values {
		name, to, _ := strings.Cut(v, "=")
		out = append(out, api.Link{Name: name, URL: to})
	}
	return out
}

// drain begins a graceful stop, like SIGTERM.
func (a *API) drain(w http.ResponseWriter, r *http.Request) error {
	if _, err := readBody(r); err != nil {
		return err
	}
	a.log.Info().Str("peer", peerOf(r)).Msg("an operator asked to drain")
	a.srv.AskDrain()
	reply(w, http.StatusAccepted, api.Draining{Draining: true})
	return nil
}

//go:embed openapi.json
var openapiDocument []byte

func (a *API) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapiDocument)
}

// scopesOf returns the names of the scopes that a grant includes for requests over HTTP.
func scopesOf(grant *guard.Grant) []string {
	names := []string{}
	for _, sc := range []struct {
		scope guard.Scope
		name  string
	}{{server.ScopeSubmit, "submit"}, {server.ScopeAdmin, "admin"}, {server.ScopeWatch, "watch"}} {
		if grant.Has(sc.scope) {
			names = append(names, sc.name)
		}
	}
	return names
}
