package web

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	"gloom/broker/admin/moments"
	"gloom/cmd/internal/cli"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
)

// getStatus replies with the version and the limits of the master, and with what the token permits.
func getStatus(x *exchange) (int, error) {
	st, err := x.Master.Stats(0)
	if err != nil {
		return 0, err
	}
	l := x.Master.Limits()
	x.object(
		"name", "jq-master", "version", cli.Version(), "namespace", x.Master.Namespace(), "uptime", time.Since(x.startedAt).Seconds(), "durable", st.Durable,
		"scopes", slices.DeleteFunc(slices.Clone(Scopes), func(s string) bool { return !x.grant.Has(1 << slices.Index(Scopes, s)) }),
		"limits", object{
			"max_jobs", l.MaxJobs, "max_bytes", l.MaxBytes, "max_workers", l.MaxWorkers, "max_constraints", l.MaxConstraints,
			"max_connections", x.Door.MaxConns(), "max_body", x.MaxBody,
		},
	)
	return http.StatusOK, nil
}

func getStats(x *exchange) (int, error) {
	names, shared := x.intParam("names", statNames, 0, statNames), x.flagParam("shared")
	if x.fault != nil {
		return 0, x.fault
	}
	findings, err := x.Master.Findings()
	if err != nil {
		return 0, err
	}
	if !shared {
		return http.StatusOK, x.writeStats(findings, names)
	}
	x.sharedReply, err = x.replyCache.Get(findings, statsRequest{names, x.replyType == jsonType}, func() ([]byte, error) {
		if err := x.writeStats(findings, names); err != nil {
			return nil, err
		}
		return bytes.Clone(x.replyBody()), nil
	})
	return http.StatusOK, err
}

// statsRequest is the key of a cached reply with the statistics.
type statsRequest struct {
	names int
	json  bool
}

// writeStats writes the statistics and the first findings.
func (x *exchange) writeStats(findings *master.FindingLists, names int) error {
	st, err := x.Master.Stats(names)
	if err != nil {
		return err
	}
	ledger := &st.Ledger
	x.object(
		"findings", objectsOf(findings.Folded.Items, findingObject), "severities", severitiesObject(findings.Folded.Counts), "states", statesObject(st.States),
		"names", objectsOf(st.Names, func(n master.NameStats) object {
			return object{"name", n.Name, "states", statesObject(n.States), "served", n.Served, "oldest_age", n.Oldest.Seconds()}
		}),
		"oldest_age", st.Oldest.Seconds(),
		"rates", object{"enqueued", st.EnqueuedRate, "handed_out", st.HandedOutRate, "ended", st.EndedRate},
		"ledger", object{
			"enqueued", ledger.Enqueued, "revived", ledger.Revived, "waiting", ledger.Waiting, "running", ledger.Running,
			"done", ledger.Done, "error", ledger.Failed, "cancelled", ledger.Cancelled, "handed_out", ledger.HandedOut, "released", ledger.Released,
			"retries", ledger.Retries, "timeouts", ledger.Timeouts, "lost", ledger.LostRuns, "discarded", ledger.LateReports,
		},
		"workers", st.Workers, "slots", st.Slots, "busy", st.Busy, "paused", st.Paused,
		"times", object{"bounds", master.Bounds(), "wait", st.Wait[:], "run", st.Run[:]},
		"bytes", st.Bytes, "results", st.Results, "waiters", st.Waiters, "durable", st.Durable, "store_away", orNull(st.StoreError),
		"connections", x.Door.Conns(), "max_connections", x.Door.MaxConns(), "max_body", x.MaxBody,
	)
	return nil
}

func getFindings(x *exchange) (int, error) {
	limit := x.intParam("limit", maxFound, 1, maxFound)
	return answer(x, x.Master.Findings, func(findings *master.FindingLists) object {
		selected := findings.All.Select(finding.Query{Subject: x.query.Get("subject"), Cause: x.query.Get("cause")}, limit)
		return object{"items", objectsOf(selected.Items, findingObject), "more", selected.More, "counts", severitiesObject(selected.Counts)}
	})
}

func getMoments(x *exchange) (int, error) {
	x.object("items", objectsOf(x.moments.Recent(), func(m moments.Moment) object {
		return object{
			"unix_ms", m.UnixMS, "submitted", m.Submitted, "ended", m.Ended, "failed", m.Failed, "queued", m.Queued, "running", m.Running,
			"wait50", m.WaitP50, "wait95", m.WaitP95, "run50", m.RunP50, "run95", m.RunP95,
		}
	}))
	return http.StatusOK, nil
}

// maxFound is the maximum number of findings in one reply.
const maxFound = 1000

func severitiesObject(n api.Severities) object {
	return object{"severe", n.Severe, "warning", n.Warning, "info", n.Info}
}

func findingObject(f api.Finding) object {
	return object{
		"severity", f.Severity, "kind", f.Kind, "subject", f.Subject, "cause", f.Cause, "finding", f.Finding, "advice", f.Advice,
		"since", f.Since, "alike", f.AlikeCount,
	}
}

// statNames is the maximum number of names in the statistics; a request may ask for fewer.
const statNames = 1000

// intParam returns an integer query parameter from low to high, or fallback if it is absent.
func (x *exchange) intParam(name string, fallback, low, high int) int {
	text := x.query.Get(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		x.noteFault(job.InvalidValue, name, "%s must be an integer from %d to %d, not %.40q", name, low, high, text)
	}
	return n
}

func statesObject(counts master.StateCounts) object {
	out := object{}
	for s, n := range counts {
		out = append(out, job.State(s).String(), n)
	}
	return out
}
