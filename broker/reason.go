package broker

// Reason says why a request is refused, or why a job or a run ended without an answer: in
// codes and figures, which others put into words.
type Reason struct {
	Why Why
	// Have is what there is, Overdue how many overdue runs are among it, Need what would be
	// added, Most the limit.
	Have, Overdue, Need, Most int64
	// Text is what a worker said, or the name of a type.
	Text string
}

// Why is the kind of a Reason.
type Why uint8

const (
	Said Why = iota // Text says why

	// Why a job or a run ended.
	WorkerLost     // in run Have
	TimedOut       // run Have, after Most ms
	WorkerClosed   // for the reason Text
	DeadlinePassed // before it was done
	Stopped        // the broker, before it was done
	Revoked        // by an operator
	TypeForgotten  // by an operator
	GivenBack      // by its worker
	AttachedTo     // by another connection

	// Which job a request does not reach.
	NotKept       // no kept job has the id
	NotReached    // no job that this submitter may cancel
	NotChangeable // no waiting job that this submitter may change
	NotWaiting    // none that waits
	NoLetter      // none that failed
	NotOut        // none that is out on this worker
	NothingOut    // no job at all is out on this worker
	IsRunning     // it is out at a worker
	HasEnded
	EndUnread // it has ended, its last frame is on its way
	CancelledBefore
	IDHeld      // a job with the id is queued or running
	OutcomeKept // that of a job with the id, for another Have ns

	// Which limit a request would pass.
	Closing            // no new jobs are taken in
	ManyTypes          // Most
	ManyPairs          // Have
	ManyPoolBytes      // Have, Need, Most: of what joins name
	ManyJobs           // Have, Overdue
	ManyBytes          // Have, Overdue, Need, Most
	ManyTypeJobs       // Have: of the type Text
	ManyTypeBytes      // Have, Need, Most: of the type Text
	ManySubmitterJobs  // Have
	ManySubmitterBytes // Have, Need, Most
	ManyGroups         // Have
	ManyOverdue        // Have of all Overdue runs are on this worker
	FrameTooLong       // for what may wait for this submitter
	ManyRules          // Most, or Need with a *

	// What of a BadSetting is out of range.
	BadConcurrency
	BadRate
	BadBurst
	BurstAlone // without a rate
	EmptyRule
)

// because returns a reason with the figures of a job's last run.
func (b *Broker) because(why Why, j *job, text string) Reason {
	r := Reason{Why: why, Have: int64(j.attempts), Text: text}
	if j.timing != 0 {
		r.Most = b.timings.Get(j.timing).timeout / 1e6
	}
	return r
}
