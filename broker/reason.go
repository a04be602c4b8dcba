package broker

// Reason says, in codes and figures, why a request is refused, or why a job or a run
// ended without an answer. Package wording puts it into words.
type Reason struct {
	Why Why
	// Have is the present number, and Overdue counts the overdue runs in it. Need is the amount
	// that would be added, and Limit is the limit.
	Overdue           int32
	Have, Need, Limit int64
	// Text is a worker's text, or the name of a type.
	Text string
}

// Why is the kind of a Reason.
type Why uint8

const (
	WhySeeText Why = iota // Text says why

	// Reasons why a job or a run ended. The comments name the fields that are set.
	WhyWorkerLost     // Have: which run
	WhyTimedOut       // Have: which run; Limit: its timeout in ms
	WhyWorkerClosed   // Text: for which reason
	WhyDeadlinePassed // before the job could run
	WhyStopped        // the broker stopped before the job was done
	WhyRevoked        // an operator cancelled the job
	WhyTypeForgotten  // an operator forgot the job's type
	WhyGivenBack      // the worker gave the job back
	WhyAttachedTo     // another connection attached to the job

	// Reasons why a request does not reach a job.
	WhyNotKept        // no kept job has the id
	WhyNotCancellable // no job with the id that this submitter may cancel
	WhyNotChangeable  // no waiting job with the id that this submitter may change
	WhyNotWaiting     // no waiting job has the id
	WhyNoLetter       // no dead letter has the id
	WhyNotRunningHere // no job with the id is out on this worker
	WhyNothingRunning // no job at all is out on this worker
	WhyIsRunning      // the job is out on a worker
	WhyAlreadyEnded
	WhyOutcomeOnItsWay // the job has ended, and its last frame is on its way
	WhyAlreadyCancelled
	WhyIDInUse     // a job with the id is queued or running
	WhyOutcomeKept // an outcome with the id is kept. Have: for how many more ns

	// Reasons why the broker takes nothing more. The comments name the fields that are set.
	WhyDraining              // no new jobs are accepted
	WhyTooManyTypes          // Limit
	WhyTooManyPairs          // Have
	WhyTooManyPoolBytes      // Have, Need, Limit: the names in joins
	WhyTooManyJobs           // Have, Overdue
	WhyTooManyBytes          // Have, Overdue, Need, Limit
	WhyTooManyTypeJobs       // Text: the type; Have
	WhyTooManyTypeBytes      // Text: the type; Have, Need, Limit
	WhyTooManySubmitterJobs  // Have
	WhyTooManySubmitterBytes // Have, Need, Limit
	WhyTooManyGroups         // Have
	WhyTooManyOverdue        // Have: overdue runs on this worker; Overdue: on all workers
	WhyFrameTooLong          // a kept frame exceeds the bytes that may wait for this submitter
	WhyTooManyRules          // Limit: all rules; Need: rules with a *

	// These name the part of a BadSetting that is out of range.
	WhyBadConcurrency
	WhyBadRate
	WhyBadBurst
	WhyBurstWithoutRate // a burst is given, but no rate
	WhyEmptyRule        // neither a concurrency nor a rate is given
)

// reasonFor returns a reason with the figures of a job's last run.
func (b *Broker) reasonFor(why Why, j *job, text string) Reason {
	r := Reason{Why: why, Have: int64(b.attempts(j)), Text: text}
	if j.timing != 0 {
		r.Limit = b.timing(j).timeout / 1e6
	}
	return r
}
