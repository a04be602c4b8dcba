package gloom

import (
	"context"
	"errors"
	"time"

	"github.com/goccy/go-json"

	"gloom/wire"
)

// NoRetries is the value of Job.Retries that asks for a single run.
const NoRetries = -1

// DefaultBackoff stands in for a Job.Backoff of 0 if retries are possible.
const DefaultBackoff = time.Second

// NoBackoff is the value of Job.Backoff that asks for retries without a wait.
const NoBackoff time.Duration = -1

// Job is what a submitter submits and a handler receives. A handler gets ID, Type, Body and
// Headers only.
type Job struct {
	// ID names the job: 1 … 1024 bytes of UTF-8, unique in the broker until the job has ended.
	// If it is empty, a short unique one is generated.
	ID string
	// Type decides which workers serve the job: at most 1024 bytes of UTF-8. Empty is the
	// broker's default type.
	Type string
	// Body is one JSON value, passed on byte for byte. Submit copies it. Nil means null; use
	// JSON to encode other values.
	Body json.RawMessage
	// Priority orders waiting jobs: the largest number goes first and, among equals, the oldest job.
	Priority int64

	// Durations are rounded up to milliseconds and are at most a year; 0 means none.

	Delay   time.Duration // how long the job waits before it may be handed out
	Timeout time.Duration // how long a run may take before it has failed
	Expires time.Duration // a deadline for starting, counted from the submit, Delay included

	// Backoff is the wait before the first retry; each further one waits twice as long, at
	// most a day. A job whose worker is lost runs again at once. 0 means
	// DefaultBackoff, NoBackoff none.
	Backoff time.Duration
	// Retries is the number of runs that may follow the first, at most 1000. 0 means the broker's
	// default, NoRetries none.
	Retries int
	// Groups are the groups that the job belongs to, such as its tenant or the host that it
	// calls: at most 16 different names. Operators can limit groups.
	Groups []string
	// Age places the job among jobs of its priority as if it had been submitted that much
	// earlier, at most a year. It is for jobs that are submitted again.
	Age time.Duration
	// Headers reach workers that ask for them.
	Headers Headers

	// With Keep, the job outlives the connection, and its outcome is kept for this long, at
	// most a day. When the connection is lost, the submitter reconnects to the same broker and
	// resumes the job. The job still ends with a *LostError if the broker no longer knows it (it was
	// restarted, or sent the outcome into the lost connection), or if only another address can be
	// reached, or the token is refused, and with a *JobError of ErrTakenOver if another one attaches.
	Keep time.Duration
	// With Keep, AtLeastOnce submits the job again if the broker no longer knows it, although
	// it may have run.
	AtLeastOnce bool
	// Detach lets the job outlive its submitter. Its Pending ends as soon as the broker has accepted
	// the job, with a Result without a body.
	Detach bool
	// NoAck saves the broker's ack: only a later reply or the result proves that the job was
	// accepted. Refusals are still sent. Detached jobs without ack are confirmed in batches, by a
	// ping after each write.
	NoAck bool
	// OnProgress, if set, receives the worker's reports. The broker may drop some if they come
	// too fast. It is called on the goroutine that reads the connection, and must return soon.
	OnProgress func(body json.RawMessage)

	run *Run // set for a handler
}

// Progress sends a report about the running job, any value, to a submitter that wants it. It
// blocks only while too many reports are unanswered. It returns the cause of the handler's
// context once that has ended, and an error for a job that no handler received.
func (j *Job) Progress(v any) error {
	r := j.run
	if r == nil {
		return errors.New("gloom: progress of a job that no worker received")
	}
	s := r.socket
	body, err := encodeAnswer(v, nil)
	if err != nil {
		return err
	}
	frame := wire.AppendWorkerProgress(nil, r.nameInFrames, body)
	if err := s.checkAnswer(frame, body); err != nil {
		return err
	}
	return s.mu.waitFor(r.ctx, true, func() error {
		switch cause := context.Cause(r.ctx); {
		case cause != nil:
			return cause
		case s.runs[r.key] != r:
			return errors.New("gloom: job has been answered")
		case s.isFull() || s.unansweredProgress == maxUnansweredProgress:
			return ErrWindowFull
		}
		s.unansweredProgress++
		s.send(frame, request{verb: wire.Progress, key: r.key, run: r})
		return nil
	})
}

// Result is the answer to a job.
type Result struct {
	ID   string
	Body json.RawMessage // byte for byte what the worker sent, nil for a detached job; the caller may keep it
}

// Decode decodes the body into v, as json.Unmarshal does.
func (r Result) Decode(v any) error {
	if r.Body == nil {
		return errors.New("gloom: result of a detached job has no body")
	}
	return json.Unmarshal(r.Body, v)
}

// JSON encodes a value as a body.
func JSON(v any) (json.RawMessage, error) {
	switch b := v.(type) {
	case json.RawMessage:
		return b, nil
	case []byte:
		return b, nil
	}
	return json.Marshal(v)
}
