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

// GloomBody returns a payload in the form for a Gloom worker: unchanged if it is JSON that a
// broker accepts, else as a JSON string.
func GloomBody(payload []byte) []byte {
	if wire.ValidBody(payload) {
		return payload
	}
	body, _ := json.Marshal(string(bytes.ToValidUTF8(payload, []byte("\uFFFD")))) // a string can always be encoded
	return body
}

// GloomOutcome returns the outcome of a Gloom worker's answer, or of the error of its job.
func GloomOutcome(body []byte, err error) job.Outcome {
	o := job.Outcome{Status: http.StatusOK, Data: body}
	if err == nil {
		return o
	}
	o = fault{text: err.Error()}.outcome()
	var refused *gloom.RefusedError
	if errors.As(err, &refused) {
		o.Code = codeRefused
	}
	var failed *gloom.JobError
	if !errors.As(err, &failed) {
		return o
	}
	o.Data = []byte(failed.Reason)
	switch {
	case failed.Lost:
		o.Code = codeWorkerLost
	case failed.Final:
		o.Status = http.StatusBadRequest
	case failed.Later:
		o.Status, o.RetryAfter = http.StatusContinue, max(failed.Delay, job.AtOnce)
	}
	return o
}
