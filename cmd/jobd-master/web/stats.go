package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	"gloom/broker/admin/moments"
	"gloom/cmd/jobd-master/master"
	"gloom/cmd/jobd/overview"
)

// maxPage limits the items of a reply. maxBusiest limits the targets in the statistics.
const maxPage, maxBusiest = 500, 20

// maxFound bounds the findings in a reply. maxFolded bounds those in the statistics.
const maxFound, maxFolded = 1000, 20

// getStats returns the statistics. As pages request them all the time, they are encoded only once
// per snapshot.
func (s *Server) getStats(*http.Request) (any, error) {
	s.lastRequest.Store(time.Now().UnixNano())
	snapshot := s.Master.Snapshot()
	return s.replyCache.Get(snapshot, struct{}{}, func() ([]byte, error) { return json.Marshal(summarize(snapshot)) })
}

// watchPeriod is how long Watch continues after the last request for the statistics.
const watchPeriod = 10 * time.Minute

// Watch takes a snapshot at intervals, until stop is closed, so that plots have data when the page
// is opened again. If nobody has requested the statistics for watchPeriod, workers and their tables are
// left alone.
func (s *Server) Watch(stop <-chan struct{}) { s.momentRing.Collect(stop, s.currentMoment) }

// currentMoment returns the current sums. known is false if nobody has requested the statistics
// lately.
func (s *Server) currentMoment() (m moments.Moment, h moments.Histograms, known bool) {
	if time.Since(time.Unix(0, s.lastRequest.Load())) > watchPeriod {
		return m, h, false
	}
	sums := summarize(s.Master.Snapshot())
	m.Moment = api.Moment{Submitted: sums.Accepted, Ended: sums.OK + sums.Fail, Failed: sums.Fail, Queued: uint64(sums.Waiting + sums.Queued), Running: uint64(sums.Running)}
	if sums.Oldest != nil {
		age := max(0, sums.At.Sub(*sums.Oldest).Truncate(time.Second).Seconds())
		m.WaitP95 = &age
	}
	return m, moments.Histograms{Bounds: sums.Bounds, Runs: sums.Runs}, true
}

func (s *Server) getMoments(*http.Request) (any, error) {
	return api.List[moments.Moment]{Items: s.momentRing.Recent()}, nil
}

// stats holds the sums of a snapshot, its findings, and the busiest targets.
type stats struct {
	At         time.Time       `json:"at"`
	Workers    int             `json:"workers"`
	Slots      int             `json:"slots"`
	Queued     int             `json:"queued"` // accepted, and not running yet
	Running    int             `json:"running"`
	Waiting    int             `json:"waiting"` // in the tables
	Manual     int             `json:"manual"`
	More       bool            `json:"more"` // waiting and manual are lower bounds
	Oldest     *time.Time      `json:"oldest"`
	Accepted   uint64          `json:"accepted"` // rows since their workers started
	OK         uint64          `json:"ok"`
	Fail       uint64          `json:"fail"`
	Bounds     []float64       `json:"bounds"`
	Runs       []uint64        `json:"runs"`
	Targets    int             `json:"targets"`
	Busiest    []master.Target `json:"busiest"`
	Findings   []api.Finding   `json:"findings"`   // similar ones are combined
	Severities api.Severities  `json:"severities"` // number of findings of each severity
}

func summarize(snapshot *master.Snapshot) *stats {
	findings := snapshot.Findings.Select(finding.Query{Fold: true}, maxFolded)
	sums := &stats{
		At: snapshot.At, Workers: len(snapshot.Workers), Bounds: snapshot.Bounds, Runs: snapshot.Runs, Targets: len(snapshot.Targets),
		Busiest: append([]master.Target{}, snapshot.Targets[:min(maxBusiest, len(snapshot.Targets))]...), Findings: findings.Items, Severities: findings.Counts,
	}
	for i := range snapshot.Targets {
		t := &snapshot.Targets[i]
		sums.Slots += t.Concurrency
		sums.Queued += t.Queued
		sums.Running += t.Running
		sums.Waiting += t.Waiting
		sums.Manual += t.Manual
		sums.More = sums.More || t.More
		sums.Accepted += t.Accepted
		sums.OK += t.OK
		sums.Fail += t.Fail
		if t.Oldest != nil && (sums.Oldest == nil || t.Oldest.Before(*sums.Oldest)) {
			sums.Oldest = t.Oldest
		}
	}
	return sums
}

// list is the reply with one page of a list.
type list[T any] struct {
	Items []T  `json:"items"`
	Next  *int `json:"next"` // the cursor of the next page; nil if there is none
}

// pageOf returns the requested page of a list. If the request has a part of a name, the list is
// filtered by it.
func pageOf[T any](r *http.Request, items []T, name func(*T) string) (any, error) {
	q := r.URL.Query()
	if part := q.Get("part"); part != "" {
		items = slices.DeleteFunc(slices.Clone(items), func(x T) bool { return !strings.Contains(name(&x), part) })
	}
	limit, err := readNumber(q, "limit", 1, maxPage, maxPage)
	if err != nil {
		return nil, err
	}
	from, err := readNumber(q, "cursor", 0, 1<<31, 0)
	if err != nil {
		return nil, err
	}
	first := min(int(from), len(items))
	end := min(first+int(limit), len(items))
	out := list[T]{Items: append([]T{}, items[first:end]...)}
	if end < len(items) {
		out.Next = &end
	}
	return out, nil
}

func (s *Server) getFindings(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, err := readNumber(q, "limit", 1, maxFound, maxFound)
	if err != nil {
		return nil, err
	}
	return s.Master.Snapshot().Findings.Select(finding.Query{Subject: q.Get("subject"), Cause: q.Get("cause")}, int(limit)), nil
}

func (s *Server) getWorkers(r *http.Request) (any, error) {
	return pageOf(r, s.Master.Snapshot().Workers, func(w *master.Worker) string { return w.Name })
}

func (s *Server) getTargets(r *http.Request) (any, error) {
	return pageOf(r, s.Master.Snapshot().Targets, func(t *master.Target) string { return t.Target.Target })
}

func (s *Server) getTarget(r *http.Request) (any, error) {
	snapshot, name := s.Master.Snapshot(), targetOf(r)
	i := slices.IndexFunc(snapshot.Targets, func(t master.Target) bool { return t.Target.Target == name })
	if i < 0 {
		return nil, master.ErrUnserved
	}
	workers := []master.Worker{}
	for _, w := range snapshot.Workers {
		at := slices.IndexFunc(w.Targets, func(t overview.Target) bool { return t.Target == name })
		if at >= 0 && len(workers) < maxPage {
			w.Targets = w.Targets[at : at+1]
			workers = append(workers, w)
		}
	}
	findings := snapshot.Findings.Select(finding.Query{Subject: name, Visible: func(f *api.Finding) bool { return f.Kind == "target" }}, maxFound).Items
	return struct {
		master.Target
		At       []master.Worker `json:"at"` // the workers that serve it
		Findings []api.Finding   `json:"findings"`
	}{snapshot.Targets[i], workers, findings}, nil
}
