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
	SeeText Why = iota // Text says why

	// Reasons why a job or a run ended. The comments name the fields that are set.
	WorkerLost     // Have: in which run
	TimedOut       // Have: which run; Limit: its timeout in ms
	WorkerClosed   // Text: for which reason
	DeadlinePassed // before the job was done
	Stopped        // the broker stopped before the job was done
	Revoked        // an operator cancelled the job
	TypeForgotten  // an operator forgot the job's type
	GivenBack      // the worker gave the job back
	AttachedTo     // another connection attached to the job

	// Reasons why a request does not reach a job.
	NotKept        // no kept job has the id
	NotCancellable // no job with the id that this submitter may cancel
	NotChangeable  // no waiting job with the id that this submitter may change
	NotWaiting     // no waiting job has the id
	NoLetter       // no dead letter has the id
	NotRunningHere // no job with the id is out on this worker
	NothingRunning // no job at all is out on this worker
	IsRunning      // the job is out on a worker
	AlreadyEnded
	EndUnread // the job has ended, and its last frame is on its way
	AlreadyCancelled
	IDInUse     // a job with the id is queued or running
	OutcomeKept // an outcome with the id is kept. Have: for how many more ns

	// Limits that a request would exceed. The comments name the fields that are set.
	Closing               // no new jobs are accepted
	TooManyTypes          // Limit
	TooManyPairs          // Have
	TooManyPoolBytes      // Have, Need, Limit: the names in joins
	TooManyJobs           // Have, Overdue
	TooManyBytes          // Have, Overdue, Need, Limit
	TooManyTypeJobs       // Text: the type; Have
	TooManyTypeBytes      // Text: the type; Have, Need, Limit
	TooManySubmitterJobs  // Have
	TooManySubmitterBytes // Have, Need, Limit
	TooManyGroups         // Have
	TooManyOverdue        // Have: overdue runs on this worker; Overdue: on all workers
	FrameTooLong          // a kept frame exceeds the bytes that may wait for this submitter
	TooManyRules          // Limit: all rules; Need: rules with a *

	// The part of a BadSetting that is out of range.
	BadConcurrency
	BadRate
	BadBurst
	BurstWithoutRate // without a rate
	EmptyRule
)

// reasonFor returns a reason with the figures of a job's last run.
func (b *Broker) reasonFor(why Why, j *job, text string) Reason {
	r := Reason{Why: why, Have: int64(b.attempts(j)), Text: text}
	if j.timing != 0 {
		r.Limit = b.timing(j).timeout / 1e6
	}
	return r
}
