package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/guard"
	"gloom/broker/server"
	"gloom/wire"
)

const (
	// maxWait is the longest time that a request may wait for an answer.
	maxWait = time.Hour
	// defaultKeepMS is the default of keep_ms for requests that wait: how long, in milliseconds,
	// the outcome is kept.
	defaultKeepMS = 600_000
	// Bodies being received (each takes a few times its length) may take the larger of two amounts:
	// 1/submitShare of the memory, or submitFrames frames of the largest size.
	submitShare  = 32
	submitFrames = 4
	// minBodyBuffer is the initial buffer of a body, in bytes.
	minBodyBuffer = 16 << 10
)

// submitKeys are the keys of a job, except its body.
var submitKeys = []string{"id", "type", "priority", "groups", "headers", "delay_ms", "timeout_ms", "backoff_ms", "expires_ms", "retries", "keep_ms", "age_ms"}

// rawKeys are the keys of a query: how long to wait and, if the request's body is the job's
// body, all other keys of the job.
var rawKeys = append([]string{"wait", "group"}, slices.DeleteFunc(slices.Clone(submitKeys), func(key string) bool { return key == "groups" })...)

// isRawBody reports whether the whole body of a request is the job's body; then the query has the
// type and all other keys.
func isRawBody(r *http.Request) bool {
	return r.Pattern == submitPattern && r.URL.Query().Get("type") != ""
}

// postJob submits a job, and waits for its answer if requested.
func (a *API) postJob(w http.ResponseWriter, r *http.Request) error {
	wait, err := waitParam(r)
	if err != nil {
		return err
	}
	c := a.srv.Call(grantOf(r), r.RemoteAddr, "http "+r.UserAgent())
	defer c.Close()
	if err := a.submit(c, r, wait > 0); err != nil {
		return err
	}
	out := api.Submitted{ID: c.Job.ID, Type: c.Job.Type, State: "queued"}
	event := a.log.Debug()
	if r.Header.Get("Origin") != "" { // the request comes from the page, so a person has made it
		event = a.log.Info()
	}
	event.Str("id", out.ID).Str("type", out.Type).Str("peer", peerOf(r)).Msg("a job was submitted over HTTP")
	if wait == 0 {
		if c.Job.Delayed {
			out.State = "delayed"
		}
		w.Header().Set("Location", "/v1/jobs/"+api.Segment(out.ID))
		reply(w, http.StatusAccepted, out)
		return nil
	}
	allowLongAnswer(w)
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	answer, e := c.Answer(ctx)
	if e != nil {
		failure := a.noAnswerError(grantOf(r), &out, e, wait)
		reply(w, failure.Status, failure)
		err = http.NewResponseController(w).Flush()
	} else {
		out.State = "answered"
		data, _ := marshalIndented(out, "")
		err = sendWith(w, data, "body", answer)
	}
	// An outcome is not acknowledged if the wait timed out or the client hung up.
	if err == nil && (e == nil || e.Code != 0) && r.Context().Err() == nil {
		c.MarkDelivered()
	}
	return nil
}

// noAnswerError returns the reply without an answer: an error ended the job, or the wait timed out.
func (a *API) noAnswerError(grant *guard.Grant, job *api.Submitted, why *wire.Error, wait time.Duration) *api.Error {
	e := refusalError(why)
	switch why.Code {
	case 0:
		link := "/v1/jobs/{id}?body=true"
		if !grant.Has(server.ScopeWatch) {
			link = "an attach of this token's owner on the port for submitters, or " + link + " with a token of the scope watch"
		}
		e = apiError(http.StatusGatewayTimeout, "timeout", "there was no answer within %v; the job continues, and its outcome is kept for %s", wait, link)
		e.State = a.stateOf(job.ID)
	case wire.JobFailed, wire.Expired, wire.Cancelled:
		e.Status = http.StatusUnprocessableEntity
	case wire.TakenOver:
		e.Status = http.StatusConflict
	}
	e.ID = job.ID
	return e
}

func (a *API) stateOf(id string) (state string) {
	a.srv.Hub().View(func(core *broker.Broker, now int64) {
		info, _ := core.Explain(now, wire.Canonical(nil, id))
		state = info.State
	})
	return state
}

func waitParam(r *http.Request) (time.Duration, error) {
	v := r.URL.Query().Get("wait")
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < time.Millisecond || d > maxWait {
		return 0, apiError(http.StatusBadRequest, "invalid_value", "wait must be a duration from 1ms to %v, such as 30s, got %.64q", maxWait, v)
	}
	return d, nil
}

// submit reads a job and submits it.
func (a *API) submit(c *server.Call, r *http.Request, waits bool) error {
	limit := a.srv.Options().MaxFrame
	data, release, err := a.bodyOf(r, limit)
	defer release()
	if err != nil {
		return err
	}
	var b body
	if isRawBody(r) {
		b, err = rawJob(r, data)
	} else {
		for key := range r.URL.Query() {
			if key != "wait" && err == nil {
				err = apiError(http.StatusBadRequest, "invalid_value", "the query has the key %.64q, but no type: without a type it may have only wait, and the body has the other keys", key)
			}
		}
		if err == nil {
			b, err = parseObject(data, append(submitKeys, "body")...)
		}
	}
	if err != nil {
		return err
	}
	frame := frameOf(b, waits)
	if len(frame) > limit {
		return tooLongError(limit)
	}
	if e := c.Submit(frame); e != nil {
		return refusalError(e)
	}
	return nil
}

func tooLongError(limit int) *api.Error {
	return apiError(http.StatusRequestEntityTooLarge, "size_error", "the job has more than %d bytes (max-frame)", limit)
}

// bodyOf reads the body of a job. The body's memory is counted as the body grows, until release is
// called.
func (a *API) bodyOf(r *http.Request, limit int) (data []byte, release func(), err error) {
	release = func() { a.submitBytes.Release(int64(cap(data))) }
	if r.ContentLength > int64(limit) {
		return nil, release, tooLongError(limit)
	}
	for err == nil {
		if len(data) > limit {
			return data, release, tooLongError(limit)
		}
		if n := cap(data); len(data) == n {
			size := min(max(4*n, minBodyBuffer), limit+1)
			if !a.submitBytes.TryAcquire(int64(size - n)) {
				return data, release, apiError(http.StatusServiceUnavailable, "overloaded", "too many bytes of jobs are being received over HTTP; try again")
			}
			data = append(make([]byte, 0, size), data...)
		}
		var n int
		n, err = r.Body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
	}
	if err != io.EOF {
		return data, release, apiError(http.StatusBadRequest, "invalid_body", "reading the body: %v", err)
	}
	return data, release, nil
}

// rawJob builds a job from a query and a body.
func rawJob(r *http.Request, data []byte) (body, error) {
	b := body{}
	if ct := r.Header.Get("Content-Type"); len(ct) >= 10 && ct[:10] == "text/plain" {
		if !utf8.Valid(data) {
			return nil, apiError(http.StatusBadRequest, "invalid_body", "the body is not UTF-8")
		}
		b["body"], _ = json.Marshal(string(data))
	} else if b["body"] = data; !json.Valid(data) {
		return nil, apiError(http.StatusBadRequest, "invalid_json", "the body is not JSON: %.64q", data)
	}
	query := r.URL.Query()
	for key, v := range query {
		switch {
		case key == "wait":
		case key == "group":
			b["groups"], _ = json.Marshal(v)
		case key == "headers" && json.Valid([]byte(v[0])), wholeNumber.MatchString(v[0]) && key != "id" && key != "type":
			b[key] = json.RawMessage(v[0])
		default:
			b[key], _ = json.Marshal(v[0])
		}
	}
	return b, nil
}

// frameOf returns the payload of the submit frame for a job. No connection waits for its
// outcome: the job is detached, or kept.
func frameOf(b body, waits bool) []byte {
	if n, err := strconv.Atoi(string(b["keep_ms"])); err == nil && n == 0 { // 0 or -0
		delete(b, "keep_ms")
	}
	frame := []byte(`{"action":"submit"`)
	switch {
	case b["keep_ms"] != nil:
	case waits:
		frame = fmt.Appendf(frame, `,"keep_ms":%d`, defaultKeepMS)
	default:
		frame = append(frame, `,"detach":true`...)
	}
	if b["id"] == nil {
		frame = fmt.Appendf(frame, `,"id":%q`, rand.Text())
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		frame = append(fmt.Appendf(frame, `,%q:`, key), b[key]...)
	}
	return append(frame, '}')
}

// refusalError returns the reply for an error of the protocol.
func refusalError(e *wire.Error) *api.Error {
	status, known := map[wire.Code]int{
		wire.Forbidden: http.StatusForbidden, wire.IDExists: http.StatusConflict, wire.SizeError: http.StatusRequestEntityTooLarge,
		wire.Overloaded: http.StatusServiceUnavailable, wire.Draining: http.StatusServiceUnavailable,
	}[e.Code]
	if !known {
		status = http.StatusBadRequest
	}
	return apiError(status, e.Code.String(), "%s", e.Reason)
}
