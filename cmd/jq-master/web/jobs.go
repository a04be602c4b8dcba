package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gloom/cmd/internal/unique"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/pack"
)

const (
	defaultPoll = 5 * time.Second
	// maxWait is the longest wait of polls and pulls. Longer waits are cut to it.
	maxWait = 60 * time.Second
	maxKey  = 255 // characters in an idempotency key
)

var jobFields = []string{"name", "argument", "priority", "max_retry", "keep_result", "timeout", "delay", "unique"}

// readJob reads a job with the named fields from a value, and copies what it keeps.
func readJob(v pack.Value, prefix string, fields []string) (*master.NewJob, *job.Fault) {
	f := readStrict(v, prefix, fields...)
	if f.value("name") == nil {
		f.refuse(job.MissingField, "name", "is missing")
	}
	n := readAttributes(&f)
	n.Argument = bytes.Clone(f.required("argument", pack.Map))
	if v := f.value("unique"); v != nil && f.fault == nil {
		n.UniqueRequest, f.fault = readUnique(v, prefix+"unique.")
	}
	return n, f.fault
}

// readAttributes reads the attributes of a job, except its argument.
func readAttributes(f *fieldReader) *master.NewJob {
	return &master.NewJob{
		Attributes: job.Attributes{
			Name:       f.name("name", job.MaxNameBytes),
			Priority:   int32(f.integer("priority", -1<<31, 1<<31-1, 0)),
			MaxRetry:   int32(f.integer("max_retry", 0, job.MaxRetries, job.DefaultMaxRetry)),
			KeepResult: f.boolean("keep_result", false),
			Timeout:    job.Seconds(f.numberAbove("timeout", job.MaxTimeout, job.DefaultTimeout)),
		},
		Delay: f.seconds("delay", job.MaxDelay),
	}
}

// readUnique reads v, which is the value of the field unique.
func readUnique(v pack.Value, prefix string) (*job.UniqueRequest, *job.Fault) {
	f := readStrict(v, prefix, "key", "while", "for_ms", "mode", "max_ms")
	f.required("key", pack.String)
	s := &job.UniqueRequest{Key: f.name("key", unique.MaxKeyBytes)}
	var ok bool
	if f.value("while") != nil {
		if s.Period, ok = unique.ParsePeriod(f.text("while")); !ok {
			f.refuse(job.InvalidValue, "while", "must be waiting, live or window, not %s", showValue(f.value("while")))
		}
	}
	if f.value("mode") != nil {
		if s.Mode, ok = unique.ParseMode(f.text("mode")); !ok {
			f.refuse(job.InvalidValue, "mode", "must be keep, replace or extend, not %s", showValue(f.value("mode")))
		}
	}
	s.Window = f.milliseconds("for_ms")
	s.Max = f.milliseconds("max_ms")
	if field, missing, reason := s.Check(); missing {
		f.refuse(job.MissingField, field, "%s", reason)
	} else if field != "" {
		f.refuse(job.InvalidValue, field, "%s", reason)
	}
	return s, f.fault
}

// milliseconds returns a field with a number of milliseconds from 1 to unique.MaxDuration, or 0 if it
// is absent.
func (f *fieldReader) milliseconds(name string) time.Duration {
	return time.Duration(f.integer(name, 1, unique.MaxDuration.Milliseconds(), 0)) * time.Millisecond
}

func postJob(x *exchange) (int, error) {
	key, v := x.idempotencyKey(), x.value()
	if x.fault != nil {
		return 0, x.fault
	}
	n, fault := readJob(v, "", jobFields)
	if fault != nil {
		return 0, fault
	}
	if n.UniqueRequest != nil && key != nil {
		return 0, job.Refuse(job.InvalidValue, "unique", "unique and Idempotency-Key cannot be used together: send one of them")
	}
	ids, unique, err := x.enqueue([]*master.NewJob{n}, key)
	if err != nil {
		return 0, err
	}
	x.w.Header().Set("Location", "/job/"+ids[0].String())
	if unique != "" {
		x.object("job_id", ids[0], "unique", unique)
		return http.StatusOK, nil
	}
	x.object("job_id", ids[0])
	return http.StatusCreated, nil
}

func postJobs(x *exchange) (int, error) {
	key, v := x.idempotencyKey(), x.value()
	switch {
	case x.fault != nil:
		return 0, x.fault
	case v.Kind() != pack.Array:
		return 0, job.Refuse(job.InvalidType, "", "the body must be an array of jobs, not %s", showValue(v))
	case v.Len() < 1 || v.Len() > job.MaxBatch:
		return 0, job.Refuse(job.InvalidValue, "", "the body must be an array of 1 to %d jobs, but has %d", job.MaxBatch, v.Len())
	}
	jobs := make([]*master.NewJob, 0, v.Len())
	for item := range v.Items() {
		n, fault := readJob(item, "", jobFields)
		if fault != nil { // the job is read again to get a fault that names its index
			_, fault = readJob(item, fmt.Sprintf("[%d].", len(jobs)), jobFields)
			return 0, fault
		}
		if n.UniqueRequest != nil {
			field := fmt.Sprintf("[%d].unique", len(jobs))
			return 0, job.Refuse(job.InvalidValue, field, "%s: send a job with unique on its own, by POST /job", field)
		}
		jobs = append(jobs, n)
	}
	ids, _, err := x.enqueue(jobs, key)
	if err != nil {
		return 0, err
	}
	x.object("job_ids", ids)
	return http.StatusCreated, nil
}

func (x *exchange) enqueue(jobs []*master.NewJob, key *master.Key) (ids []job.ID, unique string, err error) {
	if key != nil {
		key.Body = sha256.Sum256(x.body.Bytes())
	}
	ids, replayed, unique, err := x.Master.Enqueue(jobs, key)
	if replayed {
		x.w.Header().Set("Idempotency-Replayed", "true")
	}
	return ids, unique, err
}

// idempotencyKey returns the idempotency key of the request, or nil if it has none. The name of the
// key includes the token and the path.
func (x *exchange) idempotencyKey() *master.Key {
	const header = "Idempotency-Key"
	values, ok := x.r.Header[header]
	if !ok {
		return nil
	}
	if n := utf8.RuneCountInString(values[0]); n < 1 || n > maxKey {
		x.noteFault(job.InvalidValue, header, "%s must have 1 to %d characters, but has %d", header, maxKey, n)
		return nil
	}
	owner := ""
	if x.grant != nil {
		owner = hex.EncodeToString(x.grant.Hash[:8])
	}
	return &master.Key{Name: owner + x.r.URL.Path + ":" + values[0], TTL: master.KeyTTL}
}

// jobID returns the id of the job in the path.
func (x *exchange) jobID() job.ID { return x.idOf(job.UnknownJob, "", x.r.PathValue("id")) }

// idOf reads the id of a job or a worker. It refuses an invalid id with the code unknown, unless
// another master may be active: then this master refuses every request.
func (x *exchange) idOf(unknown job.Code, field, text string) job.ID {
	id, ok := job.ParseID(text)
	if ok {
		return id
	}
	var fault *job.Fault
	if errors.As(x.Master.Ready(), &fault) && fault.Code == job.Standby {
		x.note(fault)
	}
	x.noteFault(unknown, field, "there is no %s %.80q", strings.TrimPrefix(unknown.Name, "unknown_"), text)
	return id
}

// peek reports whether the request must leave the result for other requests.
func (x *exchange) peek() bool { return x.flagParam("peek") || x.r.Method == http.MethodHead }

// flagParam reports whether a query parameter is given and not false.
func (x *exchange) flagParam(name string) bool {
	text := x.query.Get(name)
	if text == "" {
		return x.query.Has(name)
	}
	set, err := strconv.ParseBool(text)
	if err != nil {
		x.noteFault(job.InvalidValue, name, "%s must be true or false, not %.40q", name, text)
	}
	return set
}

func getJob(x *exchange) (int, error) {
	id, peek := x.jobID(), x.peek()
	if x.fault != nil {
		return 0, x.fault
	}
	st, err := x.Master.Status(id, peek)
	if err != nil {
		return 0, err
	}
	return x.sendStatus(st)
}

// sendStatus sends a job's status. Its result counts as fetched once all of it has been sent.
func (x *exchange) sendStatus(st *master.Status) (int, error) {
	fetched := func(bool) {}
	if st.Fetch != nil {
		fetched = st.Fetch
	}
	if err := x.reserve(len(st.Result) + len(st.Error)); err != nil {
		fetched(false)
		return 0, err
	}
	defer x.unreserve()
	var message any
	if st.Reason != job.NoReason {
		message = st.Message
	}
	var finished moment
	if st.State.Ended() {
		finished = moment(cmp.Or(st.ReportedAt, st.Finished))
	}
	x.object(
		"status", st.State, "worker_id", st.Worker, "result", st.Result, "error", st.Error, "message", message,
		"reason", st.Reason, "retry_count", st.Retries, "name", st.Name, "finished_at", finished,
	)
	gone := x.r.Context().Err() != nil // the operating system may still accept the reply
	fetched(x.send(http.StatusOK) && !gone && (st.Fetch == nil || x.flush() == nil))
	return http.StatusOK, nil
}

func pollJob(x *exchange) (int, error) {
	wait, peek, id := x.waitParam("timeout", defaultPoll), x.peek(), x.jobID()
	if x.fault != nil {
		return 0, x.fault
	}
	st, err := x.Master.Poll(x.r.Context(), id, wait, peek)
	if err != nil {
		return 0, err
	}
	if st.State.Ended() {
		return x.sendStatus(st)
	}
	x.object("error", job.PollTimeout.Name, "reason", fmt.Sprintf("the job did not end within %v", wait), "status", st.State)
	return http.StatusRequestTimeout, nil
}

// waitParam returns the query parameter for the longest time of the reply, or fallback if the parameter
// is absent.
func (x *exchange) waitParam(name string, fallback time.Duration) time.Duration {
	x.skipBody()
	text := x.query.Get(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) {
		x.noteFault(job.InvalidValue, name, "%s must be a number of seconds of at least 0, not %.40q", name, text)
	}
	return time.Duration(min(n, maxWait.Seconds()) * float64(time.Second))
}

func deleteJob(x *exchange) (int, error) {
	id, force := x.jobID(), x.flagParam("force")
	return x.act(func() error { return x.Master.Cancel(x.r.Context(), id, force) })
}
