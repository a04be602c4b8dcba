package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/matcher"
	"gloom/cmd/jq-master/pack"
)

const (
	defaultPage, maxPage = 50, 500
	defaultBulk, maxBulk = 1000, 10_000
)

// filterFields holds the fields that select jobs. A body may also have match.
var filterFields = []string{"status", "name", "worker", "from", "to"}

// filter returns the filter in a body or a query. It returns nil if all jobs are selected, because
// no field is given or the matcher selects every job.
func filter(f *fieldReader) *master.Filter {
	out := &master.Filter{Name: f.name("name", job.MaxName), From: f.moment("from"), To: f.moment("to"), Worker: f.id("worker", job.InvalidValue)}
	given := false
	for _, name := range filterFields {
		given = given || f.value(name) != nil
	}
	if state := f.checkKind("status", f.value("status"), pack.String); state != nil {
		if out.State, out.HasState = job.ParseState(string(state.Bytes())); !out.HasState {
			f.refuse(job.InvalidValue, "status", "must be queued, running, retrying, done, error or cancelled, not %s", showValue(state))
		}
	}
	if match := f.value("match"); match != nil {
		m, fault := matcher.Parse(match)
		if fault != nil {
			f.fault = fault
			return nil
		}
		given = given || !m.MatchesAll()
		out.Match = m.Match
	}
	if !given {
		return nil
	}
	return out
}

// cursor returns the cursor from which a list is to continue, or 0 if there is none.
func cursor(f *fieldReader) uint64 {
	text := f.text("cursor")
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		f.refuse(job.InvalidValue, "cursor", "must be the cursor of the previous page, not %.40q", text)
	}
	return n
}

var (
	listFields  = slices.Concat(filterFields, []string{"limit", "cursor"})
	queryFields = slices.Concat([]string{"match"}, listFields)
	bulkFields  = slices.Concat([]string{"match"}, filterFields, []string{"limit", "all", "cursor", "count"})
)

// fromQuery converts a query to a form. The limit becomes a number; all other values are strings.
func fromQuery(q url.Values, names ...string) fieldReader {
	a := replyBuilder{}
	given := 0
	for _, name := range names {
		text := q.Get(name)
		if text == "" {
			continue
		}
		given++
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && name == "limit" {
			a.integer(name, n)
		} else {
			a.text(name, text)
		}
	}
	head := replyBuilder{}
	head.object(given)
	return readKnown(append(head.buf, a.buf...), "", names...)
}

func getJobs(x *exchange) (int, error) {
	f := fromQuery(x.query, listFields...)
	return x.list(&f)
}

func queryJobs(x *exchange) (int, error) {
	f := x.form(queryFields...)
	return x.list(&f)
}

func (x *exchange) list(f *fieldReader) (int, error) {
	which := filter(f)
	limit, from := int(f.integer("limit", 1, maxPage, defaultPage)), cursor(f)
	if f.fault != nil {
		return 0, f.fault
	}
	if which == nil {
		which = &master.Filter{}
	}
	page, err := x.Master.List(which, limit, from)
	if err != nil {
		return 0, err
	}
	x.object(2)
	x.key("jobs")
	x.array(len(page.Jobs))
	for _, j := range page.Jobs {
		x.object(jobKeys + 1)
		x.job(j)
		argument := j.Argument
		if len(argument) > maxArgumentShown {
			argument = nil
		}
		x.raw("argument", argument)
	}
	x.cursor("cursor", page.Next)
	return http.StatusOK, nil
}

// maxArgumentShown is the size, in bytes, up to which lists show an argument.
const maxArgumentShown = 256

// jobKeys is the number of keys that job writes.
const jobKeys = 18

// job writes the fields of a job that lists show.
func (a *replyBuilder) job(j *job.Job) {
	a.idOrNull("id", j.ID)
	a.text("name", j.Name)
	a.integer("priority", int64(j.Priority))
	a.integer("max_retry", int64(j.MaxRetry))
	a.boolean("keep_result", j.KeepResult)
	a.seconds("timeout", j.Timeout)
	a.text("status", j.State.String())
	a.idOrNull("worker_id", j.Worker)
	a.integer("retry_count", int64(j.Retries))
	a.integer("attempt", int64(j.Attempt))
	a.moment("enqueued_at", j.Enqueued)
	a.moment("due_at", j.Due)
	a.moment("started_at", j.Started)
	deadline, finished := j.Deadline, j.Finished
	if j.State != job.Running {
		deadline = 0
	}
	if !j.State.Ended() {
		finished = 0
	}
	a.moment("deadline", deadline)
	a.moment("finished_at", finished)
	a.textOrNull("reason", j.Reason.String())
	a.textOrNull("message", j.Message)
	a.integer("argument_bytes", int64(len(j.Argument)))
}

func getDetail(x *exchange) (int, error) {
	id, bodies := x.jobID(), !x.query.Has("bodies") || x.flag("bodies")
	if x.fault != nil {
		return 0, x.fault
	}
	d, err := x.Master.Detail(x.r.Context(), id)
	if err != nil {
		return 0, err
	}
	if bodies {
		if err := x.reserve(len(d.Job.Argument) + len(d.Job.Error) + len(d.Job.Result)); err != nil {
			return 0, err
		}
		x.object(jobKeys + 10)
		x.raw("argument", d.Job.Argument)
		x.raw("error", d.Job.Error)
		x.raw("result", d.Job.Result)
	} else {
		x.object(jobKeys + 7)
	}
	x.job(d.Job)
	x.boolean("has_result", d.HasResult)
	attempts := d.Job.Attempts
	x.key("runs")
	x.array(len(attempts))
	for i := range attempts {
		x.run(&attempts[i])
	}
	attempts = attempts[max(0, len(attempts)-maxAttemptsShown):]
	x.key("attempts")
	x.array(len(attempts))
	for i := range attempts {
		x.attempt(&attempts[i])
	}
	x.texts("blocked_by", d.BlockedBy)
	x.textOrNull("waits", d.WaitReason)
	if d.Position < 0 {
		x.null("place")
	} else {
		x.integer("place", int64(d.Position))
	}
	x.boolean("place_exact", d.PositionExact)
	return http.StatusOK, nil
}

const (
	maxAttemptsShown = 10      // the last ones
	maxErrorShown    = 1 << 10 // bytes of a run's error
)

// run writes an attempt with the keys that the broker uses for runs.
func (a *replyBuilder) run(t *job.Attempt) {
	said := t.Message
	if len(said) > maxErrorShown {
		said = strings.ToValidUTF8(said[:maxErrorShown-len("…")], "") + "…"
	}
	if said == "" {
		a.object(5)
	} else {
		a.object(6)
		a.text("error", said)
	}
	a.integer("n", int64(t.Number))
	if t.Worker.IsZero() {
		a.null("worker")
	} else {
		a.key("worker")
		a.object(1)
		a.idOrNull("id", t.Worker)
	}
	a.moment("started_at", t.Started)
	a.integer("ran_ms", max(0, t.Finished-t.Started))
	a.text("outcome", t.Outcome())
}

func (a *replyBuilder) attempt(t *job.Attempt) {
	a.object(7)
	a.integer("attempt", int64(t.Number))
	a.idOrNull("worker_id", t.Worker)
	a.moment("started_at", t.Started)
	a.moment("finished_at", t.Finished)
	kind := "failure"
	if t.Success {
		kind = "success"
	}
	a.text("type", kind)
	a.textOrNull("reason", t.Reason.String())
	a.textOrNull("message", t.Message)
}

// jobAction returns a handler that acts on the job in the path. fields has the fields of the body that
// the action needs.
func jobAction(action func(*fieldReader) master.Action, fields ...string) handler {
	return func(x *exchange) (int, error) {
		id, f := x.jobID(), fieldReader{}
		if len(fields) > 0 || x.r.ContentLength != 0 {
			f = x.form(fields...)
		}
		act := action(&f)
		if x.note(f.fault); x.fault != nil {
			return 0, x.fault
		}
		return http.StatusNoContent, x.Master.Act(x.r.Context(), act, id)
	}
}

// constantAction returns a function that returns the action act, whatever the form.
func constantAction(act master.Action) func(*fieldReader) master.Action {
	return func(*fieldReader) master.Action { return act }
}

// prioritize returns the action that gives jobs the priority in the form.
func prioritize(f *fieldReader) master.Action {
	if f.value("priority") == nil {
		f.refuse(job.MissingField, "priority", "is missing")
	}
	return master.PriorityAction(int32(f.integer("priority", -1<<31, 1<<31-1, 0)))
}

// bulkAction returns a handler that acts on many jobs, or only counts them. fields has the further
// fields that the action needs.
func bulkAction(action func(*fieldReader) master.Action, fields ...string) handler {
	known := slices.Concat(bulkFields, fields)
	return func(x *exchange) (int, error) {
		f := x.form(known...)
		which, limit, all := filter(&f), int(f.integer("limit", 1, maxBulk, defaultBulk)), f.boolean("all", false)
		act, from, count := action(&f), cursor(&f), f.boolean("count", false)
		if which == nil && !all {
			f.refuse(job.MissingField, "all", "must be true if no field selects jobs: give %s, or a match that does not select every job",
				strings.Join(filterFields, ", "))
		}
		if f.fault != nil {
			return 0, f.fault
		}
		if which == nil {
			which = &master.Filter{}
		}
		t, err := x.Master.Bulk(x.r.Context(), act, which, limit, from, count)
		if err != nil {
			return 0, err
		}
		x.object(4)
		x.integer("affected", int64(t.Affected))
		x.boolean("more", t.Next != 0)
		x.cursor("cursor", t.Next)
		x.cursor("start", t.Start)
		return http.StatusOK, nil
	}
}

// cursor writes a cursor; 0 is written as null.
func (a *replyBuilder) cursor(k string, at uint64) {
	if at == 0 {
		a.null(k)
		return
	}
	a.text(k, strconv.FormatUint(at, 10))
}

// maxWorkers is the maximum number of workers in a reply. There cannot be more of them; a request
// may ask for fewer.
const maxWorkers = 1 << 20

func getWorkers(x *exchange) (int, error) {
	limit, afterID := x.count("limit", maxWorkers, 1, maxWorkers), job.ID{}
	if text := x.query.Get("cursor"); text != "" {
		var ok bool
		if afterID, ok = job.ParseID(text); !ok {
			x.noteFault(job.InvalidValue, "cursor", "cursor must be the cursor of the previous page, not %.40q", text)
		}
	}
	if x.fault != nil {
		return 0, x.fault
	}
	workers, err := x.Master.Workers(afterID, limit)
	if err != nil {
		return 0, err
	}
	x.object(2)
	last := job.ID{}
	if len(workers) == limit {
		last = workers[limit-1].ID
	}
	x.idOrNull("cursor", last)
	x.key("workers")
	x.array(len(workers))
	for _, w := range workers {
		x.object(14)
		x.idOrNull("id", w.ID)
		x.text("name", w.Name)
		x.integer("max_jobs", int64(w.MaxJobs))
		x.integer("running", int64(w.Running))
		x.text("mode", w.Mode())
		x.textOrNull("url", w.URL)
		x.texts("names", w.Names)
		x.boolean("heartbeat", w.Heartbeat)
		x.moment("registered_at", w.Since)
		x.moment("seen_at", w.LastSeen)
		paused := int64(0)
		if w.PausedUntil.After(time.Now()) {
			paused = w.PausedUntil.UnixMilli()
		}
		x.moment("paused_until", paused)
		x.textOrNull("paused_for", w.PauseReason)
		x.boolean("leaving", w.Leaving)
		x.boolean("silent", w.Silent)
	}
	return http.StatusOK, nil
}

func dropWorker(x *exchange) (int, error) {
	id := x.idOf(job.UnknownWorker, "", x.r.PathValue("id"))
	if x.fault != nil {
		return 0, x.fault
	}
	return http.StatusNoContent, x.Master.Dismiss(id)
}

// matcherOf returns the value of a required field and the matcher that it describes.
func matcherOf(f *fieldReader, name string) (pack.Value, *matcher.Matcher) {
	v := f.value(name)
	if v == nil {
		f.refuse(job.MissingField, name, "is missing")
		return nil, nil
	}
	m, fault := matcher.Parse(v)
	if fault != nil && f.fault == nil {
		f.fault = fault
	}
	return v, m
}
