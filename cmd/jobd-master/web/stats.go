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
	l := s.Master.Snapshot()
	return s.replyCache.Get(l, struct{}{}, func() ([]byte, error) { return json.Marshal(summarize(l)) })
}

// watchPeriod is how long Watch continues after the last request for the statistics.
const watchPeriod = 10 * time.Minute

// Watch takes a snapshot at intervals, until stop is closed, so that plots have data when the page
// is opened again. If nobody has requested the statistics for watchPeriod, workers and their tables are
// left alone.
func (s *Server) Watch(stop <-chan struct{}) { s.momentRing.Collect(stop, s.currentMoment) }

// currentMoment returns the current sums, and false if nobody has requested the statistics lately.
func (s *Server) currentMoment() (m moments.Moment, h moments.Histograms, known bool) {
	if time.Since(time.Unix(0, s.lastRequest.Load())) > watchPeriod {
		return m, h, false
	}
	v := summarize(s.Master.Snapshot())
	m.Moment = api.Moment{Submitted: v.Accepted, Ended: v.OK + v.Fail, Failed: v.Fail, Queued: uint64(v.Waiting + v.Queued), Running: uint64(v.Running)}
	if v.Oldest != nil {
		age := max(0, v.At.Sub(*v.Oldest).Truncate(time.Second).Seconds())
		m.WaitP95 = &age
	}
	return m, moments.Histograms{Bounds: v.Bounds, Runs: v.Runs}, true
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

func summarize(l *master.Snapshot) *stats {
	found := l.Findings.Select(finding.Query{Fold: true}, maxFolded)
	v := &stats{
		At: l.At, Workers: len(l.Workers), Bounds: l.Bounds, Runs: l.Runs, Targets: len(l.Targets),
		Busiest: append([]master.Target{}, l.Targets[:min(maxBusiest, len(l.Targets))]...), Findings: found.Items, Severities: found.Counts,
	}
	for i := range l.Targets {
		t := &l.Targets[i]
		v.Slots += t.Concurrency
		v.Queued += t.Queued
		v.Running += t.Running
		v.Waiting += t.Waiting
		v.Manual += t.Manual
		v.More = v.More || t.More
		v.Accepted += t.Accepted
		v.OK += t.OK
		v.Fail += t.Fail
		if t.Oldest != nil && (v.Oldest == nil || t.Oldest.Before(*v.Oldest)) {
			v.Oldest = t.Oldest
		}
	}
	return v
}

// list is the reply with one page of a list.
type list[T any] struct {
	Items []T  `json:"items"`
	Next  *int `json:"next"` // the cursor of the next page; nil if there is none
}

// pageOf returns the page of a list that a request asks for, filtered by a part of the name if it has
// one.
func pageOf[T any](r *http.Request, items []T, name func(*T) string) (any, error) {
	q := r.URL.Query()
	if which := q.Get("part"); which != "" {
		items = slices.DeleteFunc(slices.Clone(items), func(x T) bool { return !strings.Contains(name(&x), which) })
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
	l, name := s.Master.Snapshot(), targetOf(r)
	i := slices.IndexFunc(l.Targets, func(t master.Target) bool { return t.Target.Target == name })
	if i < 0 {
		return nil, master.ErrUnserved
	}
	workers := []master.Worker{}
	for _, w := range l.Workers {
		at := slices.IndexFunc(w.Targets, func(t overview.Target) bool { return t.Target == name })
		if at >= 0 && len(workers) < maxPage {
			w.Targets = w.Targets[at : at+1]
			workers = append(workers, w)
		}
	}
	found := l.Findings.Select(finding.Query{Subject: name, Visible: func(f *api.Finding) bool { return f.Kind == "target" }}, maxFound).Items
	return struct {
		master.Target
		At       []master.Worker `json:"at"` // the workers that serve it
		Findings []api.Finding   `json:"findings"`
	}{l.Targets[i], workers, found}, nil
}
