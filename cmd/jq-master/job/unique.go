package job

import "gloom/cmd/internal/unique"

// Unique is the unique key of a job. Among the jobs with one name, only one at a time holds a given
// key.
type Unique struct {
	Key    string // 1 … unique.MaxKeyBytes bytes
	Period unique.Period
	Until  int64 // end of a window, in milliseconds since 1970
	// Replaces is the waiting job that this one replaces; the zero id for none.
	Replaces ID
	// ReplacesRev is 1 plus the Rev of the replaced job at the time of the replacement; 0 if not
	// known. If the Rev of that job has changed since, the job was already cancelled, and an operator
	// may have revived it.
	ReplacesRev uint32
}

// uniqueSize is roughly how many bytes of memory a key takes besides its own bytes.
const uniqueSize = 200

// Size returns roughly how many bytes of memory the key takes.
func (u *Unique) Size() int64 {
	if u == nil {
		return 0
	}
	return int64(len(u.Key)) + uniqueSize
}

// HoldsKey reports whether the job holds its key at the time now, in milliseconds since 1970,
// provided that no other job has taken the key:
//
//	                            live  waiting  window
//	queued (also released)      yes   yes      until its end
//	retrying                    yes   yes      until its end
//	running                     yes   no       until its end
//	done, error                 no    no       until its end
//	cancelled, replaced         no    no       no
//	revived from error          takes it again, and is refused while another job holds it
//
// If Period is unique.PeriodWaiting, a job that waits again after a run holds its key again, unless
// another job has taken the key meanwhile.
func (j *Job) HoldsKey(now int64) bool {
	switch u := j.Unique; {
	case u == nil || j.State == Cancelled:
		return false
	case u.Period == unique.PeriodWindow:
		return now < u.Until
	case u.Period == unique.PeriodWaiting:
		return j.State.Waits()
	}
	return !j.State.Ended()
}

// UniqueRequest is a pusher's request that its job hold a unique key.
type UniqueRequest struct {
	Key string
	unique.Request
}
