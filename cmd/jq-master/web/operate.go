package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"

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

// filter returns the filter in a body or a query. It returns nil if no field is given or the
// matcher selects every job.
func filter(f *fieldReader) *master.Filter {
	out := &master.Filter{Name: f.name("name", job.MaxNameBytes), From: f.moment("from"), To: f.moment("to"), Worker: f.id("worker", job.InvalidValue)}
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
	f := fieldReader{names: names}
	for i, name := range names {
		text := q.Get(name)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && name == "limit" {
			f.values[i] = msgp.AppendInt64(nil, n)
		} else if text != "" {
			f.values[i] = msgp.AppendString(nil, text)
		}
	}
	return f
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
	selection := filter(f)
	limit, from := int(f.integer("limit", 1, maxPage, defaultPage)), cursor(f)
	x.note(f.fault)
	if selection == nil {
		selection = &master.Filter{}
	}
	return answer(x, func() (*master.Page, error) {
		page, err := x.Master.List(selection, limit, from)
		if err != nil {
			return nil, err
		}
		n := 0
		for _, j := range page.Jobs {
			n += len(j.Message)
		}
		return page, x.reserve(n)
	}, func(page *master.Page) object {
		return object{"jobs", objectsOf(page.Jobs, func(j *job.Job) object {
			argument := j.Argument
			if len(argument) > maxArgumentShown {
				argument = nil
			}
			return append(jobObject(j), "argument", argument)
		}), "cursor", cursorText(page.Next)}
	})
}

// maxArgumentShown is the size, in bytes, up to which lists show an argument.
const maxArgumentShown = 256

// jobObject returns the fields that lists show of a job.
func jobObject(j *job.Job) object {
	var deadline, finished moment
	if j.State == job.Running {
		deadline = moment(j.Deadline)
	}
	if j.State.Ended() {
		finished = moment(j.Finished)
	}
	return object{
		"id", j.ID, "name", j.Name, "priority", j.Priority, "max_retry", j.MaxRetry, "keep_result", j.KeepResult, "timeout", j.Timeout,
		"status", j.State, "worker_id", j.Worker, "retry_count", j.Retries, "attempt", j.Attempt,
		"enqueued_at", moment(j.Enqueued), "due_at", moment(j.Due), "started_at", moment(j.Started), "deadline", deadline, "finished_at", finished,
		"reason", j.Reason, "message", orNull(j.Message), "argument_bytes", len(j.Argument),
	}
}

func getDetail(x *exchange) (int, error) {
	id, bodies := x.jobID(), !x.query.Has("bodies") || x.flagParam("bodies")
	if x.fault != nil {
		return 0, x.fault
	}
	d, err := x.Master.Detail(x.r.Context(), id)
	if err != nil {
		return 0, err
	}
	reply := object{}
	if bodies {
		if err := x.reserve(len(d.Job.Argument) + len(d.Job.Error) + len(d.Job.Result)); err != nil {
			return 0, err
		}
		reply = object{"argument", d.Job.Argument, "error", d.Job.Error, "result", d.Job.Result}
	}
	var place any
	if d.Position >= 0 {
		place = d.Position
	}
	runs := d.Job.Attempts
	reply = append(reply, jobObject(d.Job)...)
	x.object(append(reply,
		"has_result", d.HasResult, "runs", objectsOf(runs, runObject), "attempts", objectsOf(runs[max(0, len(runs)-maxAttemptsShown):], attemptObject),
		"blocked_by", d.BlockedBy, "waits", orNull(d.WaitReason), "place", place, "place_exact", d.PositionExact,
	)...)
	return http.StatusOK, nil
}

const (
	maxAttemptsShown = 10      // number of attempts; these are the last ones
	maxErrorShown    = 1 << 10 // bytes of a run's error
)

// runObject returns an attempt with the keys that the broker uses for runs.
func runObject(t job.Attempt) object {
	message := t.Message
	if len(message) > maxErrorShown {
		message = strings.ToValidUTF8(message[:maxErrorShown-len("…")], "") + "…"
	}
	var worker any
	if !t.Worker.IsZero() {
		worker = object{"id", t.Worker}
	}
	run := object{"n", t.Number, "worker", worker, "started_at", moment(t.Started), "ran_ms", max(0, t.Finished-t.Started), "outcome", t.Outcome()}
	if message != "" {
		run = append(object{"error", message}, run...)
	}
	return run
}

func attemptObject(t job.Attempt) object {
	kind := "failure"
	if t.Success {
		kind = "success"
	}
	return object{
		"attempt", t.Number, "worker_id", t.Worker, "started_at", moment(t.Started), "finished_at", moment(t.Finished),
		"type", kind, "reason", t.Reason, "message", orNull(t.Message),
	}
}

// jobAction returns a handler that acts on the job in the path. fields has the fields of the body that
// the action needs.
func jobAction(action func(*fieldReader) master.Action, fields ...string) handler {
	return func(x *exchange) (int, error) {
		id, f := x.jobID(), fieldReader{}
		if x.r.ContentLength < 0 { // the body may be empty
			x.note(x.readBody())
		}
		if len(fields) > 0 || x.r.ContentLength > 0 || x.body.Len() > 0 {
			f = x.form(fields...)
		}
		act := action(&f)
		x.note(f.fault)
		return x.act(func() error { return x.Master.Act(x.r.Context(), act, id) })
	}
}

// constantAction returns a function that returns the action act, whatever the form.
func constantAction(value master.Action) func(*fieldReader) master.Action {
	return func(*fieldReader) master.Action { return value }
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
		selection, limit, all := filter(&f), int(f.integer("limit", 1, maxBulk, defaultBulk)), f.boolean("all", false)
		act, from, count := action(&f), cursor(&f), f.boolean("count", false)
		if selection == nil && !all {
			f.refuse(job.MissingField, "all", "must be true if no field selects jobs: give %s, or a match that does not select every job",
				strings.Join(filterFields, ", "))
		}
		x.note(f.fault)
		if selection == nil {
			selection = &master.Filter{}
		}
		return answer(x, func() (master.BulkResult, error) {
			return x.Master.Bulk(x.r.Context(), act, selection, limit, from, count)
		}, func(t master.BulkResult) object {
			return object{"affected", t.Affected, "more", t.Next != 0, "cursor", cursorText(t.Next), "start", cursorText(t.Start)}
		})
	}
}

// cursorText returns a cursor as replies have it; 0 is null.
func cursorText(at uint64) any {
	if at == 0 {
		return nil
	}
	return strconv.FormatUint(at, 10)
}

// maxWorkers is the maximum number of workers in a reply. There cannot be more workers, and a
// request may ask for fewer.
const maxWorkers = 1 << 20

func getWorkers(x *exchange) (int, error) {
	limit, afterID := x.intParam("limit", maxWorkers, 1, maxWorkers), job.ID{}
	if text := x.query.Get("cursor"); text != "" {
		var ok bool
		if afterID, ok = job.ParseID(text); !ok {
			x.noteFault(job.InvalidValue, "cursor", "cursor must be the cursor of the previous page, not %.40q", text)
		}
	}
	return answer(x, func() ([]*master.WorkerView, error) { return x.Master.Workers(afterID, limit) }, func(workers []*master.WorkerView) object {
		last := job.ID{}
		if len(workers) == limit {
			last = workers[limit-1].ID
		}
		return object{"cursor", last, "workers", objectsOf(workers, workerObject)}
	})
}

func workerObject(w *master.WorkerView) object {
	var paused moment
	if w.PausedUntil.After(time.Now()) {
		paused = moment(w.PausedUntil.UnixMilli())
	}
	return object{
		"id", w.ID, "name", w.Name, "max_jobs", w.MaxJobs, "running", w.Running, "mode", w.Mode(), "url", orNull(w.URL), "names", w.Names,
		"heartbeat", w.Heartbeat, "registered_at", moment(w.Since), "seen_at", moment(w.LastSeen), "paused_until", paused,
		"paused_for", orNull(w.PauseReason), "leaving", w.Leaving, "silent", w.Silent,
	}
}

func dropWorker(x *exchange) (int, error) {
	id := x.idOf(job.UnknownWorker, "", x.r.PathValue("id"))
	return x.act(func() error { return x.Master.Dismiss(id) })
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
