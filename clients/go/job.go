package gloom

import (
	"context"
	"errors"
	"time"

	"github.com/goccy/go-json"

	"gloom/wire"
)

// NoRetries as Job.Retries asks for a single run.
const NoRetries = -1

// DefaultBackoff is Job.Backoff where that is 0 and a retry may be, NoBackoff asks for none.
const (
	DefaultBackoff               = time.Second
	NoBackoff      time.Duration = -1
)

// Job is what a submitter hands in and what a handler receives. A handler's job
// has ID, Type, Body and Headers only.
type Job struct {
	// ID names the job: 1 … 1024 bytes of UTF-8, unique in the broker while the
	// job has not ended. Empty: a short unique one is generated.
	ID string
	// Type says which workers serve the job: at most 1024 bytes of UTF-8. Empty:
	// the broker's default type.
	Type string
	// Body is one JSON value. It is passed on byte for byte and copied before
	// Submit returns. Nil is null; JSON encodes other values.
	Body json.RawMessage
	// Priority puts larger numbers first. Equals go by age.
	Priority int64

	// The durations are rounded up to milliseconds, at most a year. 0 is none.

	Delay   time.Duration // not handed out before
	Timeout time.Duration // of one run; then that run has failed
	Expires time.Duration // a deadline for starting, counted from the submit, Delay included

	// Backoff is the wait before the first retry, doubled for each further one, at most a day.
	// A job whose worker is lost runs again at once. 0 is DefaultBackoff, NoBackoff is none.
	Backoff time.Duration
	// Retries is the number of runs after the first one, at most 1000. 0 leaves
	// it to the broker, NoRetries is none.
	Retries int
	// Groups are what the job belongs to, such as its tenant or the host it calls:
	// at most 16 different names. Operators limit what a group may do at once.
	Groups []string
	// Age has the job stand among its equals as if it had been submitted so long
	// ago, at most a year. For jobs that are submitted again.
	Age time.Duration
	// Headers reach workers that ask for them.
	Headers Headers

	// Keep has the job, and then its outcome for so long, at most a day, outlive
	// the connection. When that is lost, the submitter gets the job back from the
	// same broker and goes on as if nothing had happened. It ends with a
	// *LostError all the same when the broker no longer knows it, having been
	// restarted or having sent the outcome into the lost connection, and when the
	// broker cannot be reached but another address can. Once another connection
	// has attached to the job, it ends with a *JobError of ErrTakenOver.
	Keep time.Duration
	// AtLeastOnce, with Keep, submits the job again where the broker no longer
	// knows it, though it may have run.
	AtLeastOnce bool
	// Detach lets the job outlive its submitter. It is done, for this package,
	// as soon as the broker has taken it: nothing is sent about it later, and its
	// Result has no body.
	Detach bool
	// NoAck saves the broker's ack. That the job was taken is then known only
	// from a later reply or from its result; a refusal still comes. Detached jobs
	// without an ack are confirmed in batches, by a ping after each write.
	NoAck bool
	// OnProgress, when set, receives what the job's worker reports on its way,
	// which the broker may drop when it comes too fast. It is called on the
	// goroutine that reads the connection: it must return soon.
	OnProgress func(body json.RawMessage)

	run *Run // set for a handler
}

// Progress sends news of the running job to a submitter that asked for it: any
// value, as a handler's result. It does not wait for the broker, but
// for room when many reports are unanswered. It returns the cause of the
// handler's context when that has ended, and ErrUnsupported when the job did not
// come from a worker or the broker knows no progress.
func (j *Job) Progress(v any) error {
	r := j.run
	if r == nil || r.socket.conf.compat {
		return ErrUnsupported
	}
	s := r.socket
	body, err := encodeAnswer(v, nil)
	if err != nil {
		return err
	}
	e := encoders.Get().(*encoder)
	defer e.release()
	e.frame = wire.AppendWorkerProgress(e.frame[:0], r.name(), body)
	if err := e.check(s, body); err != nil {
		return err
	}
	return s.mu.until(r.ctx, true, func() error {
		switch cause := context.Cause(r.ctx); {
		case cause != nil:
			return cause
		case s.runs[r.key] != r:
			return errAnswered
		case s.full() || s.reports == maxReports:
			return ErrWindowFull
		}
		s.reports++
		s.post(e.frame, request{verb: wire.Progress, key: r.key, run: r})
		return nil
	})
}

// errAnswered is what Progress returns when it comes too late.
var errAnswered = errors.New("gloom: job has been answered")

// Result is the answer to a job.
type Result struct {
	ID   string
	Body json.RawMessage // as the worker sent it, the caller's to keep; nil for a detached job
}

// Decode puts the body into v, as json.Unmarshal does.
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
