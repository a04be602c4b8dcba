package admin

import (
	"cmp"
	"net/http"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	"gloom/broker/admin/findings"
	"gloom/broker/server"
	"gloom/broker/wording"
	"gloom/wire"
)

const (
	// maxSuspectGroups, maxSuspectClients and maxSuspectTypes bound how many groups, clients and
	// types are examined more closely.
	maxSuspectGroups, maxSuspectClients, maxSuspectTypes = 1024, 64, 16
	// minLostWorkers is the smallest number of lost workers for which a job is reported.
	minLostWorkers = 3
	// comparedReasons is how many failed jobs of a type are compared.
	comparedReasons = 16
)

// getFindings answers a request for the findings.
func (a *API) getFindings(w http.ResponseWriter, r *http.Request) error {
	_, limit, err := pageParams(r)
	if err != nil {
		return err
	}
	var found api.Findings
	query := r.URL.Query()
	a.withSnapshot(func(snap *snapshot) {
		found = snap.findings.List(finding.Query{Subject: query.Get("subject"), Cause: query.Get("cause")}, limit)
	})
	reply(w, http.StatusOK, found)
	return nil
}

// updateFindings derives the findings of the snapshot that was just taken.
func (a *API) updateFindings(snap *snapshot) {
	opt, h, counts, hubMemory := a.srv.Options(), a.srv.Hub(), a.srv.Counts(), a.srv.Hub().Memory()
	b := findings.Broker{
		Now: snap.takenAt, Draining: a.srv.Draining(), Lag: a.srv.Lag(server.LagForFindings),
		Refused: h.Stats().Errors[wire.Overloaded], Unauthorized: counts.UnauthorizedRequests, RefusedConns: counts.RefusedConns,
		AcceptErrors: counts.AcceptErrors,
		MaxTypeJobs:  int64(opt.MaxTypeJobs), MaxTypeBytes: opt.MaxTypeBytes, DeadLetters: int64(opt.DeadLetters),
		MaxSubmitterJobs: int64(opt.MaxSubmitterJobs), MaxSubmitterBytes: opt.MaxSubmitterBytes,
	}
	b.Certificate, b.CertificateInvalid = a.srv.CertificateWarning(snap.takenAt)
	if f := a.srv.Fleet(); f != nil {
		health := f.Health()
		b.Fleet = &findings.Fleet{
			Away: health.Away, Why: health.Why, Since: health.Since, NameTaken: health.NameTaken, BrokersUp: health.UpBrokers, LostBrokers: health.LostBrokers, OtherVersions: health.OtherVersions,
			LostServing: func(typ string) []string { return f.LostBrokers(wire.Canonical(nil, typ)) },
		}
	}
	var jobs, bytes, types, groups, deadBytes, memory int64
	h.View(func(core *broker.Broker, _ int64) {
		total := core.Totals()
		b.Imbalance = total.Imbalance()
		jobs, bytes = core.Usage()
		_, deadBytes = core.LetterCount()
		types, groups, memory = int64(core.TypesInUse()), int64(core.GroupCount()), core.Memory().Total()
	})
	b.Limits = []findings.Limit{
		{Name: "max-jobs", Used: jobs, Max: int64(opt.MaxJobs)},
		{Name: "max-bytes", Used: bytes, Max: opt.MaxBytes, IsBytes: true},
		{Name: "max-types", Used: types, Max: int64(opt.MaxTypes)},
		{Name: "max-groups", Used: groups, Max: int64(opt.MaxGroups)},
		{Name: "max-conns", Used: counts.Conns, Max: int64(a.srv.MaxConns())},
		{Name: "max-memory", Used: memory + hubMemory.Total() + a.figureBytes.total(), Max: opt.MaxMemory, IsBytes: true},
		{Name: "max-inbound", Used: counts.InboundBytes, Max: opt.MaxInbound, IsBytes: true},
		{Name: "max-unread", Used: hubMemory.Unread, Max: opt.MaxUnread, IsBytes: true},
		{Name: "dead-bytes", Used: deadBytes, Max: opt.DeadBytes, IsBytes: true, RefusesNothing: true},
	}
	heldJobs := 0
	for _, row := range snap.rows {
		heldJobs += row.figures.HeldJobs
	}
	if heldJobs > 0 {
		l := broker.GroupLook{Limit: maxSuspectGroups, OnlyShut: true}
		a.lookGroups(&l)
		for _, g := range l.Infos(nil) {
			b.Groups = append(b.Groups, apiGroup(&g))
		}
	}
	b.Clients = a.clientsNearLimit(&b, hubMemory.Unread, jobs, bytes)
	a.updateLosses(snap)
	typesLeft := maxSuspectTypes
	b.Types = func(yield func(*findings.Type) bool) {
		for _, row := range snap.rows {
			t := &row.figures
			t.Figures, t.Rates = &row.Type, &row.rates
			t.SameReason, t.RecentFailures = 0, 0
			if typesLeft > 0 && t.IsFailing(snap.takenAt) {
				typesLeft--
				a.recordSameReason(t)
			}
			if !yield(t) {
				return
			}
		}
	}
	snap.findings.Update(&b)
}

// clientsNearLimit returns the figures of clients that are near a limit, do not read, or leave
// overdue runs unanswered.
func (a *API) clientsNearLimit(b *findings.Broker, unread, jobs, bytes int64) []findings.Client {
	h := a.srv.Hub()
	clients := map[broker.Peer]*findings.Client{}
	client := func(p broker.Peer) *findings.Client {
		if c := h.FindConn(p); c != nil && (clients[p] != nil || len(clients) < maxSuspectClients) {
			if clients[p] == nil {
				clients[p] = &findings.Client{Name: cmp.Or(c.ClientName(), c.Remote, "unix"), Number: uint64(p), Address: cmp.Or(c.Remote, "unix"), IsWorker: c.Port == wire.WorkerPort}
			}
			return clients[p]
		}
		return &findings.Client{}
	}
	var stalled []broker.WorkerInfo
	h.View(func(core *broker.Broker, _ int64) { stalled = core.StalledWorkers(maxSuspectClients) })
	for i := range stalled {
		client(stalled[i].Peer).Overdue = stalled[i].Overdue
	}
	if unread > 0 {
		for _, c := range h.SlowReaders(maxSuspectClients) {
			x := client(c.Peer)
			x.Unread, x.UnreadFor = c.UnreadBytes(), c.UnreadTime(h.Now())
		}
	}
	nearLimit := func(used, limit int64) bool { return limit > 0 && used >= limit-limit/10 }
	if nearLimit(jobs, b.MaxSubmitterJobs) || nearLimit(bytes, b.MaxSubmitterBytes) {
		for from := 0; from >= 0; {
			var found []broker.SubmitterInfo
			h.View(func(core *broker.Broker, _ int64) { found, from = core.Submitters(nil, from, itemsPerLook) })
			for _, s := range found {
				if nearLimit(int64(s.Jobs), b.MaxSubmitterJobs) || nearLimit(s.Bytes, b.MaxSubmitterBytes) {
					x := client(s.Peer)
					x.Jobs, x.Bytes = int64(s.Jobs), s.Bytes
				}
			}
		}
	}
	var out []findings.Client
	for _, c := range clients {
		out = append(out, *c)
	}
	return out
}

// updateLosses records the jobs that were running on workers when these were lost.
func (a *API) updateLosses(snap *snapshot) {
	failed := false
	for _, row := range snap.rows {
		row.figures.LostJob, row.figures.LostWorkers = "", 0
		failed = failed || snap.takenAt.Sub(row.figures.FailedAt) <= findings.FailingFor
	}
	if !failed {
		return
	}
	var lost []broker.JobLosses
	a.srv.Hub().View(func(core *broker.Broker, now int64) { lost = core.Losses(now, findings.FailingFor, minLostWorkers) })
	for _, losses := range lost {
		if row := snap.rows[string(losses.Type)]; row != nil && losses.Workers > row.figures.LostWorkers {
			row.figures.LostJob, row.figures.LostWorkers = wire.Value(losses.ID), losses.Workers
		}
	}
}

// recordSameReason records the most frequent reason among a type's last failed jobs.
func (a *API) recordSameReason(t *findings.Type) {
	var letters []*broker.DeadLetter
	var now int64
	a.srv.Hub().View(func(core *broker.Broker, at int64) {
		now = at
		letters, _ = core.DeadLetters(at, wire.Canonical(nil, t.Figures.Type), 0, comparedReasons, nil)
	})
	t.RecentFailures = 0
	count := map[string]int{}
	for _, d := range letters {
		if time.Duration(now-d.FailedAt) <= findings.FailingFor {
			t.RecentFailures++
			reason := wording.Reason(&d.Reason)
			if count[reason]++; count[reason] > t.SameReason {
				t.SameReason, t.Reason = count[reason], reason
			}
		}
	}
}

// usualWait returns the 95th percentile of waits, from a histogram of them; 0 if there were few.
func usualWait(durations *broker.Durations) time.Duration {
	total, n := durations.Count(), uint64(0)
	if total < 20 {
		return 0
	}
	for i, v := range durations.Buckets {
		n += v
		if n*20 >= total*19 {
			return time.Microsecond << i
		}
	}
	return 0
}
