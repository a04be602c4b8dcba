package web

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tinylib/msgp/msgp"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
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
	x.object(7)
	x.text("name", "jq-master")
	x.text("version", cli.Version())
	x.text("namespace", x.Master.Namespace())
	x.float("uptime", time.Since(x.startedAt).Seconds())
	x.boolean("durable", st.Durable)
	x.texts("scopes", slices.DeleteFunc(slices.Clone(Scopes), func(s string) bool { return !x.grant.Has(1 << slices.Index(Scopes, s)) }))
	x.key("limits")
	x.object(6)
	x.integer("max_jobs", int64(l.MaxJobs))
	x.integer("max_bytes", l.MaxBytes)
	x.integer("max_workers", int64(l.MaxWorkers))
	x.integer("max_constraints", int64(l.MaxConstraints))
	x.integer("max_connections", int64(x.Door.MaxConns()))
	x.integer("max_body", int64(x.MaxBody))
	return http.StatusOK, nil
}

func getStats(x *exchange) (int, error) {
	names, shared := x.count("names", statNames, 0, statNames), x.flag("shared")
	if x.fault != nil {
		return 0, x.fault
	}
	found, err := x.Master.Findings()
	if err != nil {
		return 0, err
	}
	if !shared {
		return http.StatusOK, x.writeStats(found, names)
	}
	x.sharedReply, err = x.encoded.Get(found, statsRequest{names, x.replyType == jsonType}, func() ([]byte, error) {
		if err := x.writeStats(found, names); err != nil {
			return nil, err
		}
		return bytes.Clone(x.readRequest()), nil
	})
	return http.StatusOK, err
}

// statsRequest is the key of a cached reply with the statistics.
type statsRequest struct {
	names int
	json  bool
}

// writeStats writes the statistics and the first findings.
func (x *exchange) writeStats(found *master.FindingLists, names int) error {
	st, err := x.Master.Stats(names)
	if err != nil {
		return err
	}
	x.object(20)
	x.findings("findings", found.Folded.Items)
	x.severities("severities", &found.Folded.Counts)
	x.states("states", st.States)
	x.key("names")
	x.array(len(st.Names))
	for _, n := range st.Names {
		x.object(4)
		x.text("name", n.Name)
		x.states("states", n.States)
		x.boolean("served", n.Served)
		x.float("oldest_age", n.Oldest.Seconds())
	}
	x.float("oldest_age", st.Oldest.Seconds())
	x.key("rates")
	x.object(3)
	x.float("enqueued", st.EnqueuedRate)
	x.float("handed_out", st.HandedOutRate)
	x.float("ended", st.EndedRate)
	l := &st.Ledger
	x.key("ledger")
	counts := []struct {
		name string
		n    uint64
	}{
		{"enqueued", l.Enqueued}, {"revived", l.Revived}, {"waiting", l.Waiting}, {"running", l.Running},
		{"done", l.Done}, {"error", l.Failed}, {"cancelled", l.Cancelled},
		{"handed_out", l.HandedOut}, {"released", l.Released}, {"retries", l.Retries},
		{"timeouts", l.Timeouts}, {"lost", l.LostRuns}, {"discarded", l.LateReports},
	}
	x.object(len(counts))
	for _, c := range counts {
		x.integer(c.name, int64(c.n))
	}
	x.integer("workers", int64(st.Workers))
	x.integer("slots", int64(st.Slots))
	x.integer("busy", int64(st.Busy))
	x.integer("paused", int64(st.Paused))
	x.key("times")
	x.object(3)
	x.key("bounds")
	x.array(len(master.Bounds()))
	for _, b := range master.Bounds() {
		x.buf = msgp.AppendFloat64(x.buf, b)
	}
	x.counts("wait", st.Wait[:])
	x.counts("run", st.Run[:])
	x.integer("bytes", st.Bytes)
	x.integer("results", int64(st.Results))
	x.integer("waiters", int64(st.Waiters))
	x.boolean("durable", st.Durable)
	x.textOrNull("store_away", st.StoreError)
	x.integer("connections", int64(x.Door.Conns()))
	x.integer("max_connections", int64(x.Door.MaxConns()))
	x.integer("max_body", int64(x.MaxBody))
	return nil
}

func getFindings(x *exchange) (int, error) {
	limit := x.count("limit", maxFound, 1, maxFound)
	if x.fault != nil {
		return 0, x.fault
	}
	found, err := x.Master.Findings()
	if err != nil {
		return 0, err
	}
	these := found.All.Select(finding.Query{Subject: x.query.Get("subject"), Cause: x.query.Get("cause")}, limit)
	x.object(3)
	x.findings("items", these.Items)
	x.integer("more", int64(these.More))
	x.severities("counts", &these.Counts)
	return http.StatusOK, nil
}

func getMoments(x *exchange) (int, error) {
	moments := x.moments.Recent()
	x.object(1)
	x.key("items")
	x.array(len(moments))
	for i := range moments {
		m := &moments[i]
		x.object(10)
		x.integer("unix_ms", m.UnixMS)
		x.integer("submitted", int64(m.Submitted))
		x.integer("ended", int64(m.Ended))
		x.integer("failed", int64(m.Failed))
		x.integer("queued", int64(m.Queued))
		x.integer("running", int64(m.Running))
		x.floatOrNull("wait50", m.WaitP50)
		x.floatOrNull("wait95", m.WaitP95)
		x.floatOrNull("run50", m.RunP50)
		x.floatOrNull("run95", m.RunP95)
	}
	return http.StatusOK, nil
}

// maxFound is the maximum number of findings in one reply.
const maxFound = 1000

func (a *replyBuilder) severities(k string, n *api.Severities) {
	a.key(k)
	a.object(3)
	a.integer("severe", int64(n.Severe))
	a.integer("warning", int64(n.Warning))
	a.integer("info", int64(n.Info))
}

func (a *replyBuilder) findings(k string, list []api.Finding) {
	a.key(k)
	a.array(len(list))
	for i := range list {
		f := &list[i]
		a.object(8)
		a.text("severity", f.Severity)
		a.text("kind", f.Kind)
		a.text("subject", f.Subject)
		a.text("cause", f.Cause)
		a.text("finding", f.Finding)
		a.text("advice", f.Advice)
		a.text("since", f.Since)
		a.integer("alike", int64(f.Alike))
	}
}

func (a *replyBuilder) counts(k string, counts []uint64) {
	a.key(k)
	a.array(len(counts))
	for _, n := range counts {
		a.buf = msgp.AppendUint64(a.buf, n)
	}
}

// statNames is the maximum number of names in the statistics; a request may ask for fewer.
const statNames = 1000

// count returns a query parameter from low to high, or def if it is absent.
func (x *exchange) count(name string, def, low, high int) int {
	text := x.query.Get(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		x.noteFault(job.InvalidValue, name, "%s must be an integer from %d to %d, not %.40q", name, low, high, text)
	}
	return n
}

func (a *replyBuilder) states(k string, states map[job.State]int) {
	a.key(k)
	a.object(int(job.Cancelled) + 1)
	for s := job.Queued; s <= job.Cancelled; s++ {
		a.integer(s.String(), int64(states[s]))
	}
}
