// Package unique defines requests for a unique key. Among the jobs of one name (jq-master) or
// jobtype (serverlessd), one job holds a key. If a client submits another job with that key, the
// answer names the holder.
package unique

import (
	"fmt"
	"slices"
	"time"
)

const (
	// MaxKeyBytes bounds the length of a key, in bytes.
	MaxKeyBytes = 256
	// MaxDuration bounds the length of a window, and Request.Max.
	MaxDuration = 365 * 24 * time.Hour
)

// Period says how long a job holds its key.
type Period uint8

// These are the values of Period.
const (
	PeriodLive    Period = iota // the job holds the key until it has ended
	PeriodWaiting               // the job holds the key while it waits
	PeriodWindow                // the job holds the key for a time from its submission, unless it is cancelled
)

var periods = [...]string{"live", "waiting", "window"}

func (p Period) String() string { return periods[p] }

// ParsePeriod returns the Period with this name.
func ParsePeriod(name string) (Period, bool) {
	i := slices.Index(periods[:], name)
	return Period(max(i, 0)), i >= 0
}

// Mode says what happens to a waiting job that holds a key when another job with the key is
// submitted. A holder that is no longer waiting keeps the key in all modes.
type Mode uint8

// These are the values of Mode.
const (
	ModeKeep    Mode = iota // the holder stays as it is
	ModeReplace             // the holder is cancelled, and the new job takes its place
	ModeExtend              // the holder waits until the new job would be due, but not beyond Request.Max
)

var modes = [...]string{"keep", "replace", "extend"}

func (m Mode) String() string { return modes[m] }

// ParseMode returns the Mode with this name.
func ParseMode(name string) (Mode, bool) {
	i := slices.Index(modes[:], name)
	return Mode(max(i, 0)), i >= 0
}

// The answer about a job whose key was held has one of these values.
const (
	AnswerKept     = "kept"
	AnswerReplaced = "replaced"
	AnswerExtended = "extended"
)

// Request is a request for a key.
type Request struct {
	Period Period
	Window time.Duration // for Period Window
	Mode   Mode
	Max    time.Duration // for Mode Extend: counted from the holder's submission; 0 means no limit
}

// Check returns the name of a field that contradicts the other fields, whether that field is
// missing, and the reason. The reason is text to put after the name. All three are zero if no field
// contradicts another.
func (r *Request) Check() (field string, missing bool, reason string) {
	switch {
	case r.Period == PeriodWindow && r.Window == 0:
		return "for_ms", true, "is missing: a window needs a length"
	case r.Period != PeriodWindow && r.Window != 0:
		return "for_ms", false, fmt.Sprintf(`needs "while" to be "window", but it is %q`, r.Period)
	case r.Mode != ModeExtend && r.Max != 0:
		return "max_ms", false, fmt.Sprintf(`needs "mode" to be "extend", but it is %q`, r.Mode)
	}
	return "", false, ""
}
