package job

import "time"

// MaxUniqueKey is how many bytes a unique key may have.
const MaxUniqueKey = 256

// While says how long a job holds its unique key.
type While uint8

// How long a job holds its key.
const (
	WhileLive    While = iota // until it has ended
	WhileWaiting              // as long as it waits
	WhileWindow               // for a time from when it came, unless it is cancelled
)

var whileNames = [...]string{"live", "waiting", "window"}

func (w While) String() string { return whileNames[w] }

// ParseWhile is the While of a name.
func ParseWhile(name string) (While, bool) {
	for i, n := range whileNames {
		if n == name {
			return While(i), true
		}
	}
	return 0, false
}

// UniqueMode says what becomes of a job whose key is held by a job that waits.
type UniqueMode uint8

// What becomes of it. A holder that does not wait is kept in all modes.
const (
	UniqueKeep    UniqueMode = iota // the holder stays as it is
	UniqueReplace                   // the holder is cancelled, the new job has its place
	UniqueExtend                    // the holder is delayed anew
)

var uniqueModes = [...]string{"keep", "replace", "extend"}

func (m UniqueMode) String() string { return uniqueModes[m] }

// ParseUniqueMode is the UniqueMode of a name.
func ParseUniqueMode(name string) (UniqueMode, bool) {
	for i, n := range uniqueModes {
		if n == name {
			return UniqueMode(i), true
		}
	}
	return 0, false
}

// Unique is the key that a job holds: of the jobs of one name, one holds it.
type Unique struct {
	Key   string // 1 … MaxUniqueKey bytes
	While While
	Until int64 // of WhileWindow, in milliseconds since 1970
	// Replaces is the waiting job whose place this one has; none for none.
	Replaces ID
}

// uniqueBytes is about what a key takes besides its own bytes.
const uniqueBytes = 200

// Size is how many bytes the key takes.
func (u *Unique) Size() int64 {
	if u == nil {
		return 0
	}
	return int64(len(u.Key)) + uniqueBytes
}

// Holds reports whether the job holds its key at a time, in milliseconds since 1970,
// unless another job has it since:
//
//	                            live  waiting  window
//	queued (also released)      yes   yes      until its end
//	retrying                    yes   yes      until its end
//	running                     yes   no       until its end
//	done, error                 no    no       until its end
//	cancelled, replaced         no    no       no
//	revived from error          takes it again, and is refused while another job holds it
//
// What has waited, run and waits again has its key again unless another job came meanwhile.
func (j *Job) Holds(now int64) bool {
	switch u := j.Unique; {
	case u == nil || j.State == Cancelled:
		return false
	case u.While == WhileWindow:
		return now < u.Until
	case u.While == WhileWaiting:
		return j.State == Queued || j.State == Retrying
	}
	return !j.State.Ended()
}

// Sharing is what a pusher asks of a unique key.
type Sharing struct {
	Key    string
	While  While
	Window time.Duration // of WhileWindow
	Mode   UniqueMode
	Max    time.Duration // of UniqueExtend: from the holder's coming
}
