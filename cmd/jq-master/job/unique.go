package job

import "gloom/cmd/internal/unique"

// Unique is the key that a job holds: of the jobs of one name, one holds it.
type Unique struct {
	Key   string // 1 … unique.MaxKey bytes
	While unique.While
	Until int64 // of a window, in milliseconds since 1970
	// Replaces is the waiting job whose place this one takes; the zero id for none.
	Replaces ID
	// ReplacesRev is the Rev of that job at that time, plus 1; 0: not known. If its Rev is another
	// one now, the job has been cancelled since, and an operator may have revived it.
	ReplacesRev uint32
}

// uniqueBytes is roughly how many bytes a key takes besides its own.
const uniqueBytes = 200

// Size returns how many bytes the key takes.
func (u *Unique) Size() int64 {
	if u == nil {
		return 0
	}
	return int64(len(u.Key)) + uniqueBytes
}

// Holds reports whether the job holds its key at a time, in milliseconds since 1970,
// unless another job has taken it since:
//
//	                            live  waiting  window
//	queued (also released)      yes   yes      until its end
//	retrying                    yes   yes      until its end
//	running                     yes   no       until its end
//	done, error                 no    no       until its end
//	cancelled, replaced         no    no       no
//	revived from error          takes it again, and is refused while another job holds it
//
// A job that waits again after a run has its key again, unless another job has taken it meanwhile.
func (j *Job) Holds(now int64) bool {
	switch u := j.Unique; {
	case u == nil || j.State == Cancelled:
		return false
	case u.While == unique.Window:
		return now < u.Until
	case u.While == unique.Waiting:
		return j.State == Queued || j.State == Retrying
	}
	return !j.State.Ended()
}

// Sharing is a pusher's request for a unique key.
type Sharing struct {
	Key string
	unique.Ask
}
