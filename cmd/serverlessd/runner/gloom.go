package runner

import (
	"bytes"
	"errors"
	"net/http"
	"unicode/utf8"

	gloom "gloom/clients/go"
	"gloom/cmd/serverlessd/job"

	"github.com/goccy/go-json"
)

// GloomBody is what a Gloom worker gets of a payload: the payload if it is JSON,
// else a JSON string of it.
func GloomBody(payload []byte) []byte {
	if utf8.Valid(payload) && json.Valid(payload) {
		return payload
	}
	body, _ := json.Marshal(string(bytes.ToValidUTF8(payload, []byte("\uFFFD")))) // a string always can
	return body
}

// GloomOutcome is what a Gloom worker's answer, or the error of its job, means.
func GloomOutcome(body []byte, err error) job.Outcome {
	o := job.Outcome{Status: http.StatusOK, Data: body, RetryAfter: -1}
	if err == nil {
		return o
	}
	o = fault{text: err.Error()}.outcome()
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
		o.Status, o.RetryAfter = http.StatusContinue, failed.Delay
	}
	return o
}
