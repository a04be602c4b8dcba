package launch

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc, whatever the kernel's own.
const tick = time.Second / 100

// Meter counts the processor time that a process and its descendants use.
type Meter struct {
	p     *Process
	spent time.Duration // by the process and the children it had waited for
	begun time.Duration // since boot
}

// Meter counts from now on.
func (p *Process) Meter() Meter {
	own, _ := readTimes(p.process.Pid)
	return Meter{p: p, spent: own.spent, begun: time.Duration(bootTime())}
}

// Used is what the process, the children that it has waited for, and members of
// its group that began since then have used, in steps of 10 ms. Who left the
// group is not counted.
func (m Meter) Used() time.Duration {
	own, ok := readTimes(m.p.process.Pid)
	if !ok {
		return 0
	}
	used := own.spent - m.spent
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == m.p.process.Pid {
			continue
		}
		if t, ok := readTimes(pid); ok && t.group == m.p.process.Pid && t.begun >= m.begun-tick {
			used += t.spent
		}
	}
	return used
}

type times struct {
	group        int
	spent, begun time.Duration
}

// readTimes reads a process's times; a process that is gone has none.
func readTimes(pid int) (t times, ok bool) {
	fields := stat(pid)
	if len(fields) < 20 {
		return t, false
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return n
	}
	t.group = int(number(5))
	t.spent = time.Duration(number(14)+number(15)+number(16)+number(17)) * tick
	t.begun = time.Duration(number(22)) * tick
	return t, true
}

// stat is what /proc tells of a process, from its state on, which is field 3: the
// name before it may hold spaces and brackets.
func stat(pid int) []string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}
