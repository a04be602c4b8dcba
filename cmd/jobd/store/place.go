package store

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Place says which process an incarnation is. Processes with the same Host can
// see one another; the start time tells a process from an earlier one that had
// its id.
type Place struct {
	Host  string // kernel's boot and namespace of process ids
	PID   int
	Start string // in the kernel's ticks since boot
}

// Here is the place of this process.
var Here = sync.OnceValue(func() Place {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, _ := os.Readlink("/proc/self/ns/pid")
	p := Place{PID: os.Getpid()}
	if len(boot) > 0 && space != "" {
		p.Host = strings.TrimSpace(string(boot)) + "/" + space
	}
	p.Start, _ = startOf(p.PID)
	return p
})

// Gone tells for certain that the process of a place has ended. A process that
// this one cannot see is not gone for certain.
func (p Place) Gone() bool {
	here := Here()
	if p.Host == "" || p.Host != here.Host || p.PID <= 0 {
		return false
	}
	// The signal that is none also sees processes that /proc hides.
	if err := unix.Kill(p.PID, 0); err == unix.ESRCH {
		return true
	}
	start, state := startOf(p.PID)
	return start != "" && (start != p.Start || state == "Z" || state == "X")
}

// startOf returns a process's start time and state, empty when unknown.
func startOf(pid int) (start, state string) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", ""
	}
	// The second field is the program's name, which may hold anything.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", ""
	}
	return fields[19], fields[0]
}

func (p Place) String() string { return fmt.Sprintf("%s/%d/%s", p.Host, p.PID, p.Start) }

func parsePlace(text string) Place {
	parts := strings.Split(text, "/")
	if len(parts) < 4 {
		return Place{}
	}
	n := len(parts)
	pid, err := strconv.Atoi(parts[n-2])
	if err != nil {
		return Place{}
	}
	return Place{Host: strings.Join(parts[:n-2], "/"), PID: pid, Start: parts[n-1]}
}
