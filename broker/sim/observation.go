package sim

import (
	"bytes"

	"gloom/broker"
)

// observation holds the parts of the core's state that the oracle may read after a command. The
// oracle needs it where the protocol leaves a choice to the core.
type observation struct {
	core   *broker.Broker
	now    int64
	frames []frame // sent by this command
	closed []int   // the peers that this command closed, in order
	// overloaded reports that the core refused this command because of a limit, and known that the
	// type to forget exists. borrowRefusal is the reason why the core did not borrow a job, or 0 if it
	// did.
	overloaded, known bool
	borrowRefusal     broker.BorrowRefusal
}

// job returns the core's description of a job.
func (o *observation) job(id string) (broker.JobInfo, bool) { return o.core.Explain(o.now, []byte(id)) }

// delay returns how long the delay of a delayed job still lasts, and whether there is such a job.
func (o *observation) delay(id string) (int64, bool) {
	info, found := o.job(id)
	return int64(info.DelayLeft), found && info.State == "delayed"
}

// held reports whether the core knows a job with this id that has not ended.
func (o *observation) held(id string) bool {
	info, found := o.job(id)
	return found && info.State != "ended"
}

// handedOut returns the ids of the jobs of a type that this command handed out, in order.
func (o *observation) handedOut(typ string) (ids []string) {
	for i := range o.frames {
		if f := &o.frames[i]; f.op == broker.OpJob && f.typ == typ {
			ids = append(ids, f.id)
		}
	}
	return ids
}

// handOutIndex returns which of this command's frames hands out a job. For a job that it does not
// hand out, this is the number of frames.
func (o *observation) handOutIndex(id string) int {
	for i := range o.frames {
		if f := &o.frames[i]; f.op == broker.OpJob && f.id == id {
			return i
		}
	}
	return len(o.frames)
}

// letters returns the dead letters of a type.
func (o *observation) letters(typ string) []*broker.DeadLetter {
	found, _ := o.core.DeadLetters(0, []byte(typ), 0, 1000, nil)
	return found
}

// reason returns why a job failed now, if the core kept the reason or sent it to the submitter.
func (o *observation) reason(j *oracleJob) (string, bool) {
	for _, l := range o.letters(j.typ) {
		if string(l.ID) == j.id && l.FailedAt == o.now && l.SubmittedAt == j.submittedAt && bytes.Equal(l.Body, j.body) {
			return l.Reason.Text, true
		}
	}
	for i := range o.frames {
		if f := &o.frames[i]; f.op == broker.OpEnd && f.id == j.id {
			return f.reason, true
		}
	}
	return "", false
}
