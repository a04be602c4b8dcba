// Package unique is what is asked of a unique key. Of the jobs of one name (jq-master) or
// jobtype (serverlessd), one holds a key; who brings another job with it is told which.
package unique

import "time"

const (
	// MaxKey is how many bytes a key may have.
	MaxKey = 256
	// MaxTime is the longest that a window, or a limit to extensions, may be.
	MaxTime = 365 * 24 * time.Hour
)

// While says how long a job holds its key.
type While uint8

// How long a job holds its key.
const (
	Live    While = iota // until it has ended
	Waiting              // as long as it waits
	Window               // for a time from when it came, unless it is cancelled
)

var whiles = [...]string{"live", "waiting", "window"}

func (w While) String() string { return whiles[w] }

// ParseWhile is the While of a name.
func ParseWhile(name string) (While, bool) {
	i, ok := place(whiles[:], name)
	return While(i), ok
}

// Mode says what becomes of a job that holds a key and waits. A holder that does not wait
// is kept in all modes.
type Mode uint8

// What becomes of it.
const (
	Keep    Mode = iota // the holder stays as it is
	Replace             // the holder is cancelled, the new job has its place
	Extend              // the holder is delayed anew
)

var modes = [...]string{"keep", "replace", "extend"}

func (m Mode) String() string { return modes[m] }

// ParseMode is the Mode of a name.
func ParseMode(name string) (Mode, bool) {
	i, ok := place(modes[:], name)
	return Mode(i), ok
}

func place(names []string, name string) (int, bool) {
	for i, n := range names {
		if n == name {
			return i, true
		}
	}
	return 0, false
}

// What an answer says of a job whose key was held.
const (
	Kept     = "kept"
	Replaced = "replaced"
	Extended = "extended"
)

// Ask is what is asked of a key.
type Ask struct {
	While  While
	Window time.Duration // of While Window
	Mode   Mode
	Max    time.Duration // of Mode Extend: from the holder's coming; 0: without a limit
}

// Check tells what does not fit together: the field of the request, whether it is missing,
// and a reason that goes behind the field's name. "": all does.
func (a *Ask) Check() (field string, missing bool, reason string) {
	switch {
	case a.While == Window && a.Window == 0:
		return "for_ms", true, "is missing: a window needs its length"
	case a.While != Window && a.Window != 0:
		return "for_ms", false, "is of while window alone, while is " + a.While.String()
	case a.Mode != Extend && a.Max != 0:
		return "max_ms", false, "is of mode extend alone, mode is " + a.Mode.String()
	}
	return "", false, ""
}
