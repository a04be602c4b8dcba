// Package process identifies processes across restarts, so that a daemon knows whether the
// earlier owner of its work is still alive.
package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"gloom/cmd/internal/boot"
)

// Process identifies a process, even after its end. Processes with the same Boot and PIDNamespace can
// see one another; Start distinguishes a process from an earlier one with the same id.
type Process struct {
	Boot         string // id of the kernel's boot, "" where it is not known
	PIDNamespace string // namespace of process ids, and of time if its clock is another; "" where it is not known
	PID          int
	Start        string // start time, in the kernel's ticks since the boot
}

// Self returns this process.
var Self = sync.OnceValue(func() Process {
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	if hasOwnBootClock() {
		clock, _ := os.Readlink("/proc/self/ns/time")
		namespace += clock
	}
	pid := os.Getpid()
	start, _ := StartTime(pid)
	return Process{boot.ID(), namespace, pid, start}
})

// hasOwnBootClock reports whether this process is in a time namespace with an offset of the boot clock. It
// then sees other start times than processes outside.
func hasOwnBootClock() bool {
	offsets, _ := os.ReadFile("/proc/self/timens_offsets")
	for line := range strings.Lines(string(offsets)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "boottime" && (f[1] != "0" || f[2] != "0") {
			return true
		}
	}
	return false
}

// IsGone reports whether the process has certainly ended. A process that our own process
// cannot see may still live.
func (p Process) IsGone() bool {
	self := Self()
	if p.Boot == "" || p.Boot != self.Boot || p.PIDNamespace == "" || p.PIDNamespace != self.PIDNamespace || p.PID <= 0 {
		return false
	}
	// Signal 0 also finds processes that /proc hides.
	if unix.Kill(p.PID, 0) == unix.ESRCH {
		return true
	}
	start, state := StartTime(p.PID)
	return start != "" && (start != p.Start || state == "Z" || state == "X")
}

// StartTime returns the time at which a process started, in ticks since the boot, and the letter
// of its state; both are "" if unknown.
func StartTime(pid int) (start, state string) {
	fields := Stat(pid)
	if len(fields) < 20 {
		return "", ""
	}
	return fields[19], fields[0]
}

// Stat returns the fields of a process's /proc/PID/stat from field 3, the state, on: field 2,
// the name, may contain spaces and brackets.
func Stat(pid int) []string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}
