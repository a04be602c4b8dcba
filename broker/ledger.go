package broker

// Ledger counts the jobs of a type (or of all types) by their states and outcomes. At
// every moment
//
//	Submitted = Delayed + Queued + Running + Answered + Failed + Cancelled + Expired + Discarded
//
// Runs that are overdue are in none of these.
type Ledger struct {
	Failed uint64
	// Cancelled by a submitter or an operator.
	Cancelled uint64
	// Expired: its deadline came before it could run to an end.
	Expired uint64
	// Discarded with its submitter, or with its type by an operator.
	Discarded uint64

	// Requeued counts every return to the queue.
	Requeued uint64
	// Releases counts jobs that workers gave back.
	Releases uint64
	// Overdue counts runs that passed their timeout.
	Overdue uint64

	// The counts that every job changes lie together.
	Submitted, Delayed, Queued, Running uint64
	// Answered: the result went to a connected submitter, or the job was detached or
	// kept.
	Answered uint64
	// Dispatched counts every hand-out.
	Dispatched uint64
}

// Imbalance returns the error of the equation; anything but 0 is a bug.
func (l *Ledger) Imbalance() int64 {
	return int64(l.Submitted - (l.Delayed + l.Queued + l.Running +
		l.Answered + l.Failed + l.Cancelled + l.Expired + l.Discarded))
}

// ends returns the counter of jobs with an outcome.
func (l *Ledger) ends(o Outcome) *uint64 {
	switch o {
	case OutAnswered:
		return &l.Answered
	case OutCancelled:
		return &l.Cancelled
	case OutExpired:
		return &l.Expired
	case OutDiscarded:
		return &l.Discarded
	}
	return &l.Failed
}

// Add adds o to l.
func (l *Ledger) Add(o *Ledger) { l.add(o, 1) }

// Sub subtracts o from l.
func (l *Ledger) Sub(o *Ledger) { l.add(o, ^uint64(0)) }

// add adds each count times n; it wraps around.
func (l *Ledger) add(o *Ledger, n uint64) {
	l.Submitted += n * o.Submitted
	l.Delayed += n * o.Delayed
	l.Queued += n * o.Queued
	l.Running += n * o.Running
	l.Answered += n * o.Answered
	l.Failed += n * o.Failed
	l.Cancelled += n * o.Cancelled
	l.Expired += n * o.Expired
	l.Discarded += n * o.Discarded
	l.Dispatched += n * o.Dispatched
	l.Requeued += n * o.Requeued
	l.Releases += n * o.Releases
	l.Overdue += n * o.Overdue
}
