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
	for _, n := range names {
		out = append(out, wire.Value(n))
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
		a.srv.Hub().View(func(b *broker.Broker, now int64) { found, next = b.Workers(now, typ, from, limit) })
		for i := range found {
			x := &found[i]
			v := api.Worker{
				Peer: *a.apiPeer(x.Peer, ""), Types: x.Types, Prefetch: x.Room, Out: x.JobsOut, Overdue: x.Overdue, Left: x.HasLeft,
				IdleSeconds: x.IdleTime.Seconds(), Jobs: stringsOf(x.Jobs), Serves: stringsOf(x.Serves), UnreadBytes: a.unreadBytes(x.Peer),
			}
			if x.Type != nil {
				v.Type = wire.Value(x.Type)
			}
			items = append(items, v)
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
		a.srv.Hub().View(func(b *broker.Broker, _ int64) { found, next = b.Submitters(typ, from, limit) })
		for _, x := range found {
			items = append(items, api.Submitter{
				Peer: *a.apiPeer(x.Peer, ""), Jobs: x.Jobs, Bytes: x.Bytes, Types: x.Types, TypeNames: stringsOf(x.Names), UnreadBytes: a.unreadBytes(x.Peer),
			})
		}
		return items, next
	})
}

func (a *API) getStatus(w http.ResponseWriter, r *http.Request) error {
	g := grantOf(r)
	s := a.apiStatus(g)
	if typ, err := typeParam(r); err != nil {
		return err
	} else if typ != nil && !g.CoversName(typ) {
		s.Scopes = slices.DeleteFunc(s.Scopes, func(scope string) bool { return scope == "submit" })
	}
	reply(w, http.StatusOK, s)
	return nil
}

func (a *API) apiStatus(g *guard.Grant) api.Status {
	o := a.srv.Options()
	s := api.Status{
		Version: o.Version, Links: parseLinks(o.PageLinks), Fleet: a.srv.Fleet() != nil, UptimeSeconds: time.Since(a.srv.Started()).Seconds(), Draining: a.srv.Draining(), Scopes: scopesOf(g),
		Limits: map[string]int64{
			"max_memory": o.MaxMemory, "max_unread": o.MaxUnread, "dead_bytes": o.DeadBytes, "history": o.History,
			"max_frame": int64(o.MaxFrame), "max_jobs": int64(o.MaxJobs), "max_bytes": o.MaxBytes,
			"max_type_jobs": int64(o.MaxTypeJobs), "max_submitter_jobs": int64(o.MaxSubmitterJobs),
			"max_type_bytes": o.MaxTypeBytes, "max_submitter_bytes": o.MaxSubmitterBytes,
			"max_types": int64(o.MaxTypes), "max_groups": int64(o.MaxGroups), "dead_letters": int64(o.DeadLetters),
			"max_conns": int64(a.srv.MaxConns()), "max_http_conns": int64(o.MaxHTTPConns), "max_outbound": int64(o.MaxOutbound),
			"max_inbound": o.MaxInbound, "max_prefetch": int64(o.MaxPrefetch), "retries": int64(o.Retries),
		},
	}
	var total broker.Ledger
	a.srv.Hub().View(func(b *broker.Broker, _ int64) {
		total, s.Types, s.StoreBytes = b.Totals(), b.TypeCount(), b.Memory().Jobs()
		s.Submitters, s.Workers = b.Peers()
		s.Dead, s.DeadBytes = b.LetterCount()
		s.DeadDropped = b.DroppedLetters()
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
func scopesOf(g *guard.Grant) []string {
	names := []string{}
	for _, sc := range []struct {
		scope guard.Scope
		name  string
	}{{server.ScopeSubmit, "submit"}, {server.ScopeAdmin, "admin"}, {server.ScopeWatch, "watch"}} {
		if g.Has(sc.scope) {
			names = append(names, sc.name)
		}
	}
	return names
}
