package link

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	gloom "gloom/clients/go"
)

// A run is astray when the door has given up its job while a worker may still run it: the
// connection to the broker was lost, or the door has cancelled the job. Until the worker answers or
// is lost, the run holds the id at the broker. The broker shows whether it has a run only when a
// job with the same id is submitted: AwaitRun submits a delayed job, and cancels it at once.

const (
	minAskPause = 20 * time.Millisecond // the first pause between two submits; later pauses are longer
	maxAskPause = 2 * time.Second
)

// AwaitRun returns when the broker no longer has a run of the job, or when ctx ends; the job's body
// does not matter. If the broker has a run, AwaitRun calls onRun, once. After a restart of the
// broker, and at another broker, the id is free although the run may go on.
func (j *JobSubmitter) AwaitRun(ctx context.Context, job gloom.Job, onRun func()) {
	job.Delay, job.Retries = time.Hour, gloom.NoRetries // nobody gets it
	reported := false
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = minAskPause, maxAskPause
	for {
		p, err := j.Current().Submit(ctx, job)
		if err == nil {
			err = p.Ack(ctx)
		}
		j.NoteRefusal(job.Type, err, true)
		switch {
		case err == nil:
			_ = p.Cancel(ctx) // if the connection is lost, the job ends with it
			return
		case IsFinalRefusal(err):
			return
		}
		var refused *gloom.RefusedError
		if errors.As(err, &refused) && refused.Code == gloom.ErrIDExists && !reported {
			reported = true
			onRun()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause.NextBackOff()):
		}
	}
}

// IsFinalRefusal reports whether an error is a broker's refusal of a job that it will refuse again.
func IsFinalRefusal(err error) bool {
	var refused *gloom.RefusedError
	return errors.As(err, &refused) && slices.Contains([]gloom.Code{
		gloom.ErrSizeError, gloom.ErrInvalidType, gloom.ErrInvalidValue, gloom.ErrMissingField, gloom.ErrInvalidJSON,
	}, refused.Code)
}
