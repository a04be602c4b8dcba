package runner

import (
	"bytes"
	"errors"
	"net/http"

	gloom "gloom/clients/go"
	"gloom/cmd/serverlessd/job"
	"gloom/wire"

	"github.com/goccy/go-json"
)

// GloomBody returns the body of a payload for Gloom workers: the payload itself if it is JSON that
// a broker accepts, otherwise the payload as a JSON string.
func GloomBody(payload []byte) []byte {
	if wire.CheckBody("payload", payload) == nil {
		return payload
	}
	body, _ := json.Marshal(string(bytes.ToValidUTF8(payload, []byte("\uFFFD")))) // no error: a string can always be encoded
	return body
}

// GloomOutcome returns the outcome of a job at a Gloom worker, from the body of the answer or the
// error.
func GloomOutcome(body []byte, err error) job.Outcome {
	o := job.Outcome{Status: http.StatusOK, Data: body}
	if err == nil {
		return o
	}
	o = runFault{text: err.Error()}.outcome()
	if _, refused := errors.AsType[*gloom.RefusedError](err); refused {
		o.Code = codeRefused
	}
	failed, ok := errors.AsType[*gloom.JobError](err)
	if !ok {
		return o
	}
	o.Data = []byte(failed.Reason)
	switch {
	case failed.Lost:
		o.Code = codeWorkerLost
	case failed.Final:
		o.Status = http.StatusBadRequest
	case failed.Later:
		o.Status, o.RetryAfter = http.StatusContinue, max(failed.Delay, job.MinRetryDelay)
	}
	return o
}
