package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since the boot of this host, suspends included.
func Uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}

// process names a process for good: host, boot, pid namespace, id and start.
type process struct {
	host, boot, space string
	pid               int
	start             string
}

// self is this process.
func self() process {
	p := process{host: "unknown", boot: "unknown", space: "unknown", pid: os.Getpid()}
	if name, err := os.Hostname(); err == nil && name != "" {
		p.host = strings.Join(strings.Fields(name), "-")
	}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		p.boot = string(bytes.TrimSpace(id))
	}
	if space, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		p.space = space
	}
	p.start, _ = startOf(p.pid)
	return p
}

// startOf is when a process started, in ticks since the boot; "" when there is no
// such process, or only what it left for its parent to read.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if os.IsNotExist(err) && errors.Is(unix.Kill(pid, 0), unix.ESRCH) { // else it is hidden
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// The name before is in parentheses and may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, start = 0, 19
	if len(fields) <= start {
		return "", fmt.Errorf("process %d: stat has %d fields", pid, len(fields))
	}
	if s := fields[state][0]; s == 'Z' || s == 'X' {
		return "", nil
	}
	return string(fields[start]), nil
}

// gone reports whether the process surely runs no more, as this one sees it.
func (p process) gone() bool {
	me := self()
	if p.host != me.host || p.boot != me.boot || p.space != me.space || me.boot == "unknown" || me.space == "unknown" {
		return false
	}
	start, err := startOf(p.pid)
	return err == nil && start != p.start
}
