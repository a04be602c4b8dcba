package web

import (
	"strings"
	"testing"

	"gloom/cmd/serverlessd/job"
)

func TestInvalidHandlerOptionsAreRefused(t *testing.T) {
	for _, c := range []struct{ options, reason string }{
		{`{"batch":true,"batchSize":10,"concurrency":2,"timeout":"1m","cpu":"5s","next":"a","nextFailed":"b"}`, ""},
		{`null`, ""},
		{`[]`, "must be an object"},
		{`{"batchSize":0}`, "batchSize 0: must be from 1 to 10000"},
		{`{"batchSize":"x"}`, "has the wrong type"},
		{`{"concurrency":10001}`, "concurrency 10001: must be from 1 to 10000"},
		{`{"timeout":"2d"}`, "must be from 1ms to 1d"},
		{`{"next":"a b"}`, "options.next"},
		{`{"BatchSize":2000000000}`, "no option \"BatchSize\""},
		{`{"TIMEOUT":"36500d"}`, "no option \"TIMEOUT\""},
		{`{"Next":"ü"}`, "no option \"Next\""},
		{`{"concurrency\":-5,\"batch":true}`, "no option"},
		{`{"size":1}`, "the options are batch, batchSize"},
	} {
		var got job.Options
		err := readOptions([]byte(c.options), &got)
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", c.options, err)
			}
		} else if err == nil || !strings.Contains(errorOf(err).Reason, c.reason) {
			t.Errorf("%s: %v, %+v, want %q", c.options, err, got, c.reason)
		}
	}
}

// TestInvalidHandlerOptionsHaveOneAnswer: if several options are invalid, each request gets the same answer.
func TestInvalidHandlerOptionsHaveOneAnswer(t *testing.T) {
	for range 100 {
		err := readOptions([]byte(`{"concurrency":0,"batchSize":0,"timeout":0}`), new(job.Options))
		if f := errorOf(err); f.Field != "options.batchSize" {
			t.Fatal(f)
		}
	}
}
