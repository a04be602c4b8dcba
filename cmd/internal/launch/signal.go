package launch

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rtMin and rtMax are the first and the last real-time signal of the C library, which keeps the
// kernel's first two for itself.
const (
	rtMin = 34
	rtMax = 64
)

// ValidSignal reports whether the system has a signal of that number.
func ValidSignal(signal syscall.Signal) bool {
	return unix.SignalName(signal) != "" || signal >= rtMin && signal <= rtMax
}

// signalAliases are further names of signals that clients may use.
var signalAliases = map[string]syscall.Signal{
	"SIGIOT": syscall.SIGABRT, "SIGPOLL": syscall.SIGIO, "SIGCLD": syscall.SIGCHLD, "SIGUNUSED": syscall.SIGSYS,
}

// SignalName returns the name of a signal, at most ten characters, the width of a column in jobd's table: SIGTERM, or
// SIGRTMIN+3, SIGRTMAX-3 and, in the middle where neither fits, SIG45.
func SignalName(signal syscall.Signal) string {
	if name := unix.SignalName(signal); name != "" {
		return name
	}
	n := int(signal)
	switch { // one digit at most
	case n == rtMin:
		return "SIGRTMIN"
	case n == rtMax:
		return "SIGRTMAX"
	case n > rtMin && n < rtMin+10:
		return fmt.Sprintf("SIGRTMIN+%d", n-rtMin)
	case n > rtMax-10 && n < rtMax:
		return fmt.Sprintf("SIGRTMAX-%d", rtMax-n)
	}
	return fmt.Sprintf("SIG%d", n)
}

// ParseSignal finds a signal by its name, with SIG in front: ordinary signals, SIGRTMIN+n,
// SIGRTMAX-n and SIGn. It reports whether there is such a signal.
func ParseSignal(name string) (syscall.Signal, bool) {
	rest, ok := strings.CutPrefix(name, "SIG")
	if !ok {
		return 0, false
	}
	if signal, ok := signalAliases[name]; ok {
		return signal, true
	}
	if signal := unix.SignalNum(name); signal != 0 {
		return signal, true
	}
	base, sign := 0, 1
	switch {
	case strings.HasPrefix(rest, "RTMIN"):
		base, rest = rtMin, strings.TrimPrefix(rest, "RTMIN")
		if rest == "" {
			return rtMin, true
		}
		if rest[0] != '+' {
			return 0, false
		}
		rest = rest[1:]
	case strings.HasPrefix(rest, "RTMAX"):
		base, sign, rest = rtMax, -1, strings.TrimPrefix(rest, "RTMAX")
		if rest == "" {
			return rtMax, true
		}
		if rest[0] != '-' {
			return 0, false
		}
		rest = rest[1:]
	}
	n, err := strconv.ParseUint(rest, 10, 8)
	if err != nil {
		return 0, false
	}
	signal := syscall.Signal(base + sign*int(n))
	return signal, signal > 0 && signal <= rtMax && (base == 0 || signal >= rtMin)
}
