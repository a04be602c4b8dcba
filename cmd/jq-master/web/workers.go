package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/pack"
)

const (
	maxURL   = 2000 // bytes
	maxToken = 1000 // bytes
	// defaultPullWait is the time that a pull waits by default.
	defaultPullWait = 30e9
)

// owner returns the hash of the request's token, hashed once more, or "" without a token. So the
// stored value gives no access, and differs from the hash that a token file may have.
func (x *exchange) owner() string {
	if x.grant == nil {
		return ""
	}
	sum := sha256.Sum256(x.grant.Hash[:])
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

// worker returns the worker that the header worker-id names, with the owner of the request's token.
func (x *exchange) worker() job.Caller {
	text := x.r.Header.Get("Worker-Id")
	if text == "" {
		x.noteFault(job.MissingField, "worker-id", "the header worker-id is missing")
		return job.Caller{}
	}
	return job.Caller{ID: x.idOf(job.UnknownWorker, "worker-id", text), Owner: x.owner()}
}

func postWorker(x *exchange) (int, error) {
	v := x.value()
	if x.fault != nil {
		return 0, x.fault
	}
	f := readKnown(v, "", "name", "max_jobs", "url", "port", "names", "token", "heartbeat")
	for _, name := range []string{"name", "max_jobs"} {
		if f.value(name) == nil {
			f.refuse(job.MissingField, name, "is missing")
		}
	}
	w := job.Worker{
		Name:      f.name("name", job.MaxNameBytes),
		MaxJobs:   int(f.integer("max_jobs", 1, job.MaxWorkerJobs, 0)),
		URL:       f.name("url", maxURL),
		Names:     globs(&f),
		Token:     f.name("token", maxToken),
		Heartbeat: f.boolean("heartbeat", false),
		Owner:     x.owner(),
	}
	w.Host, _, _ = net.SplitHostPort(x.r.RemoteAddr) // "" on a unix socket
	if port := f.integer("port", 1, 65535, int64(x.WorkerPort)); w.URL == "" && port != 0 {
		w.URL = "http://" + net.JoinHostPort(cmp.Or(w.Host, "127.0.0.1"), strconv.FormatInt(port, 10))
	}
	if w.URL != "" && f.fault == nil {
		f.fault = x.CheckURL(w.URL, w.Host)
	}
	if f.fault != nil {
		return 0, f.fault
	}
	reg, err := x.Master.Register(w)
	if err != nil {
		return 0, err
	}
	x.object("worker_id", reg.ID, "mode", reg.Mode(), "heartbeat_interval", x.Master.Limits().Heartbeat.Seconds())
	return http.StatusCreated, nil
}

// globs returns the globs of the names that a worker serves, or * if the field is absent.
func globs(f *fieldReader) []string {
	v := f.checkKind("names", f.value("names"), pack.Array)
	if v == nil {
		return []string{"*"}
	}
	if n := v.Len(); n < 1 || n > job.MaxWorkerNames {
		f.refuse(job.InvalidValue, "names", "must have 1 to %d names, but has %d", job.MaxWorkerNames, n)
		return nil
	}
	var names []string
	for item := range v.Items() {
		field := fmt.Sprintf("names[%d]", len(names))
		if item.Kind() != pack.String {
			f.refuse(job.InvalidType, field, "must be a string, not %s", showValue(item))
			return nil
		}
		s := string(item.Bytes())
		if reason := nameError(s, job.MaxNameBytes); reason != "" {
			f.refuse(job.InvalidValue, field, "%s", reason)
		}
		names = append(names, s)
	}
	return names
}

func deleteWorker(x *exchange) (int, error) {
	from := x.worker()
	return x.act(func() error { return x.Master.Unregister(from) })
}

func heartbeat(x *exchange) (int, error) {
	from := x.worker()
	return answer(x, func() ([]job.ID, error) { return x.Master.Heartbeat(from) }, func(cancel []job.ID) object { return object{"cancel", cancel} })
}

func pull(x *exchange) (int, error) {
	from, limit, wait := x.worker(), x.intParam("max", 1, 1, job.MaxWorkerJobs), x.waitParam("wait", defaultPullWait)
	if x.fault != nil {
		return 0, x.fault
	}
	jobs, err := x.Master.Pull(x.r.Context(), from, limit, int(x.outboundBytes()/4), wait, x.reserveHandout)
	if err != nil {
		return 0, err
	}
	if len(jobs) == 0 {
		return http.StatusNoContent, nil
	}
	x.object("jobs", jobs)
	return http.StatusOK, nil
}

// postDone handles a report. Its errors have this order: header, worker, body, job, assignment. If
// the body is valid, the worker is checked together with the job.
func postDone(x *exchange) (int, error) {
	worker := x.worker()
	if x.fault != nil {
		return 0, x.fault
	}
	if n := x.r.ContentLength; n < 0 || n > int64(x.MaxBody) { // the worker is checked before a large body is read
		if err := x.Master.CheckWorker(worker); err != nil {
			return 0, err
		}
	}
	v, r := x.value(), (*master.Report)(nil)
	if x.fault == nil {
		r, x.fault = readReport(v)
	}
	if x.fault != nil {
		return 0, cmp.Or(x.Master.CheckWorker(worker), error(x.fault))
	}
	return http.StatusNoContent, x.Master.Done(x.r.Context(), worker, r)
}

var reportFields = []string{"job_id", "id", "type", "finished_at", "attempt", "result", "reason", "should_retry", "error", "message"}

func readReport(v pack.Value) (*master.Report, *job.Fault) {
	f := readKnown(v, "", reportFields...)
	id := "job_id"
	if f.value(id) == nil && f.value("id") != nil {
		id = "id" // sent by workers that were written for the original program
	}
	idValue := f.required(id, pack.String)
	r := &master.Report{Attempt: int32(f.integer("attempt", 1, 1<<31-1, 0))}
	r.ReportedAt = f.moment("finished_at")
	switch kind := f.required("type", pack.String); {
	case kind.Is("success"):
		r.Success = true
		r.Result = bytes.Clone(f.value("result"))
	case kind.Is("failure"):
		readFailure(&f, &r.Outcome)
	case kind != nil:
		f.refuse(job.InvalidValue, "type", "must be success or failure, not %s", showValue(kind))
	}
	if idValue != nil {
		r.Job = f.id(id, job.UnknownJob)
	}
	return r, f.fault
}

func readFailure(f *fieldReader, o *job.Outcome) {
	if reason := f.required("reason", pack.String); reason != nil {
		var ok bool
		if o.Reason, ok = job.ParseReason(string(reason.Bytes())); !ok {
			f.refuse(job.InvalidValue, "reason", "must be other or timeout, not %s", showValue(reason))
		}
	}
	if retry := f.required("should_retry", pack.Bool); retry != nil {
		o.Retry = retry.Bool()
	}
	f.required("message", pack.String)
	o.Message = f.text("message")
	o.Error = bytes.Clone(f.value("error"))
}
