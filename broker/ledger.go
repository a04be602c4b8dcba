package broker

// Ledger counts the jobs of a type (or of all types) by their states and ends. At
// every moment
//
//	Submitted = Delayed + Queued + Running + Answered + Failed + Cancelled + Expired + Discarded
//
// Overdue runs are in none of these counts.
type Ledger struct {
	Failed uint64
	// Cancelled counts jobs that a submitter or an operator cancelled.
	Cancelled uint64
	// Expired counts jobs whose deadline came before they could run to an end.
	Expired uint64
	// Discarded counts jobs that were discarded because their submitter was lost, or because an
	// operator forgot their type.
	Discarded uint64

	// Requeued counts every return to the queue.
	Requeued uint64
	// Releases counts jobs that workers gave back.
	Releases uint64
	// Overdue counts runs that passed their timeout.
	Overdue uint64

	// The counters that every job changes lie side by side in memory.
	Submitted, Delayed, Queued, Running uint64
	// Answered counts jobs whose answer went to a connected submitter, and answered jobs that
	// were detached or kept.
	Answered uint64
	// Dispatched counts every hand-out.
	Dispatched uint64
}

// Imbalance returns the left side of the equation minus the right side; anything but 0 is a
// bug.
func (l *Ledger) Imbalance() int64 {
	return int64(l.Submitted - (l.Delayed + l.Queued + l.Running +
		l.Answered + l.Failed + l.Cancelled + l.Expired + l.Discarded))
}

// endCounter returns the counter of the jobs that ended in this way.
func (l *Ledger) endCounter(kind EndKind) *uint64 {
	switch kind {
	case EndAnswered:
		return &l.Answered
	case EndCancelled:
		return &l.Cancelled
	case EndExpired:
		return &l.Expired
	case EndDiscarded:
		return &l.Discarded
	}
	return &l.Failed
}

// Add adds other to l.
func (l *Ledger) Add(other *Ledger) { l.addTimes(other, 1) }

// Sub subtracts other from l.
func (l *Ledger) Sub(other *Ledger) { l.addTimes(other, ^uint64(0)) }

// addTimes adds n times each count of other; a negative n subtracts, as counts wrap around.
func (l *Ledger) addTimes(other *Ledger, n uint64) {
	l.Submitted += n * other.Submitted
	l.Delayed += n * other.Delayed
	l.Queued += n * other.Queued
	l.Running += n * other.Running
	l.Answered += n * other.Answered
	l.Failed += n * other.Failed
	l.Cancelled += n * other.Cancelled
	l.Expired += n * other.Expired
	l.Discarded += n * other.Discarded
	l.Dispatched += n * other.Dispatched
	l.Requeued += n * other.Requeued
	l.Releases += n * other.Releases
	l.Overdue += n * other.Overdue
}
