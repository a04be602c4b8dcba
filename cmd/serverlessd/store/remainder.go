package store

import (
	"database/sql"

	"gloom/cmd/serverlessd/job"
)

// remainderType stands for those types of a client that no longer have a job or a handler, and has
// their counts. Without it, the store would keep counts of every type that ever existed. No real
// type has this name.
const remainderType = "*"

// settleRemainder adds a type's counts to those of remainderType if the type has neither a job nor
// a handler any more. The changes that the transaction makes to the type's counts are among them.
func (t *tx) settleRemainder(jobtype string) error {
	left := false
	err := t.queryRow("SELECT EXISTS(SELECT 1 FROM sq_jobs WHERE type = ?) OR EXISTS(SELECT 1 FROM sq_handlers WHERE type = ?)",
		[]any{jobtype, jobtype}, &left)
	if err != nil || left {
		return err
	}
	pending := t.count(jobtype)
	sum := *pending
	var slots []int
	err = t.eachRow("SELECT slot, "+countColumns+" FROM sq_counts WHERE type = ?"+t.store.forUpdate(),
		[]any{jobtype}, func(r *sql.Rows) error {
			var slot int
			var c Counts
			err := r.Scan(append([]any{&slot}, c.columnPointers()...)...)
			slots = append(slots, slot)
			sum.Add(&c)
			return err
		})
	if err != nil || sum.Waiting != 0 || sum.Running != 0 {
		return err
	}
	for _, slot := range slots { // this keeps rows that other daemons have written since
		if _, err := t.delete("sq_counts", "type = ? AND slot = ?", jobtype, slot); err != nil {
			return err
		}
	}
	*pending = Counts{}
	client, _, _ := job.SplitJobtype(jobtype)
	t.count(job.Jobtype(client, remainderType)).Add(&sum)
	return nil
}
