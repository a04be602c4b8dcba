package admin

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/goccy/go-json"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
)

const (
	// maxEventTypes bounds the types that an event carries.
	maxEventTypes = 12
	// maxEventFindings bounds the findings that an event carries.
	maxEventFindings = 20
	// keepAlivePeriod is the longest silence of a stream, and the interval at which its token is
	// checked again even while events are sent.
	keepAlivePeriod = 10 * time.Second
	// eventPeriod is the shortest time between two events of a stream.
	eventPeriod = time.Second
)

// encodeSnapshot returns the part of a snapshot that events carry, as JSON.
func (a *API) encodeSnapshot(snap *snapshot) []byte {
	if !snap.takenAt.Equal(snap.encodedAt) {
		v := api.Look{
			Draining: a.srv.Draining(), Types: len(snap.rows), Dead: snap.total.Dead,
			Ledger: snap.total.Ledger, Rates: snap.total.Rates, Oldest: snap.total.OldestSeconds,
			Wait: snap.stats.Wait.Buckets[:], Run: snap.stats.Run.Buckets[:], Top: []api.Type{},
		}
		a.srv.Hub().View(func(core *broker.Broker, _ int64) {
			total := core.Totals()
			v.Imbalance = total.Imbalance()
			v.Submitters, v.Workers = core.Peers()
			v.Groups, v.MemoryBytes = core.GroupCount(), core.Memory().Total()
			v.Jobs, _ = core.Usage()
		})
		hubMemory := a.srv.Hub().Memory()
		v.Conns = a.srv.Counts().Conns
		v.MemoryBytes += hubMemory.Total() + a.figureBytes.total()
		v.UnreadBytes = hubMemory.Unread
		v.FailedHour = snap.dayRates.total.shortSteps.countFailed(int(time.Hour/time.Minute), snap.dayRates.total)
		v.Findings = snap.findings.List(finding.Query{Fold: true}, maxEventFindings)
		for _, row := range snap.busiest(maxEventTypes) {
			v.Top = append(v.Top, row.Type)
		}
		snap.encoded, _ = json.Marshal(&v)
		snap.encodedAt = snap.takenAt
	}
	return snap.encoded
}

// getEvents streams snapshots as server-sent events. Slow readers get fewer of them.
func (a *API) getEvents(w http.ResponseWriter, r *http.Request) error {
	// A quarter of the connections is left for other requests: beyond --max-http-conns the
	// connections with the longest requests are closed, and those are the streams.
	limit := int64(max(1, a.srv.Options().MaxHTTPConns*3/4))
	defer a.openStreams.Add(-1)
	if a.openStreams.Add(1) > limit {
		return apiError(http.StatusServiceUnavailable, "overloaded", "%d streams of events are open, and no more are allowed (three quarters of --max-http-conns)", limit)
	}
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Time{}) // the server's deadline is for a short answer
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return nil // the stream, which never ends, is only for GET
	}
	var lastData []byte
	sentAt, judgedAt := time.Now(), time.Now()
	tick := time.NewTicker(eventPeriod)
	defer tick.Stop()
	if r.Header.Get("Last-Event-ID") != "" { // the document already contained the history and a snapshot
		_ = ctl.Flush()
		select {
		case <-r.Context().Done():
		case <-a.srv.HTTPEnds():
		case <-tick.C:
		}
	} else if history, _ := json.Marshal(a.recentMoments()); !sendEvent(w, ctl, "history", history) {
		return nil
	}
	for {
		var data []byte
		a.withSnapshot(func(snap *snapshot) { data = a.encodeSnapshot(snap) })
		if time.Since(judgedAt) >= keepAlivePeriod {
			if _, err := a.checkAccess(r); err != nil {
				return nil // the client's token was revoked
			}
			judgedAt = time.Now()
		}
		if time.Since(sentAt) >= keepAlivePeriod || !bytes.Equal(data, lastData) {
			if !sendEvent(w, ctl, "look", data) {
				return nil
			}
			lastData, sentAt = data, time.Now()
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-a.srv.HTTPEnds():
			return nil
		case <-tick.C:
		}
	}
}

func sendEvent(w http.ResponseWriter, ctl *http.ResponseController, event string, data []byte) bool {
	_ = ctl.SetWriteDeadline(time.Now().Add(minReadTime))
	_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
	return err == nil && ctl.Flush() == nil
}

// getSortedTypes answers with the sorted list of the matching types. The cursor is a position in
// that list. The list changes over time.
func (a *API) getSortedTypes(w http.ResponseWriter, r *http.Request) error {
	from, limit, err := pageParams(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	o := typeOrder{filter: strings.ToLower(query.Get("filter"))}
	o.key, o.reverse = strings.CutPrefix(query.Get("sort"), "-")
	o.key = cmp.Or(o.key, "type")
	if typeSortKeys[o.key] == nil {
		return apiError(http.StatusBadRequest, "invalid_value", "sort must be one of %s, with - before it for the reverse order, got %.64q", orderNames, query.Get("sort"))
	}
	out, count := api.TypeList{}, 0
	out.Items, out.Count = []api.Type{}, &count
	a.withSnapshot(func(snap *snapshot) {
		found := snap.sorted(o)
		count = len(found)
		from = min(from, count)
		for _, row := range found[from:min(from+limit, count)] {
			out.Items = append(out.Items, row.clone())
		}
	})
	if next := from + limit; next < count {
		out.Next = &next
	}
	reply(w, http.StatusOK, out)
	return nil
}
