package launch

import (
	"os"
	"strconv"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/process"
)

// clockTick is the unit of times in /proc, whatever unit the kernel uses internally.
const clockTick = time.Second / 100

// Meter counts the processor time that a process and its descendants use.
type Meter struct {
	process     *Process
	startedAt   time.Duration // since boot
	hasBaseline bool
	baseline    time.Duration // times at the first reading
}

// Meter begins to count. The processor time of the process itself, and of the children
// that it has waited for, is counted only from the first call of Used on, because
// reading it is costly.
func (p *Process) Meter() Meter { return Meter{process: p, startedAt: boot.Since()} }

// Used returns the processor time of the process, of the children that it has waited for, and of
// the members of its group that began meanwhile, in steps of 10 ms. Processes that left the group
// are not counted.
func (m *Meter) Used() (used time.Duration) {
	self, ok := readTimes(m.process.process.Pid)
	if !ok {
		return 0
	}
	if !m.hasBaseline {
		m.hasBaseline, m.baseline = true, self.cpu
	}
	used = self.cpu - m.baseline
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == m.process.process.Pid {
			continue
		}
		if t, ok := readTimes(pid); ok && t.group == m.process.process.Pid && t.startedAt >= m.startedAt-clockTick {
			used += t.cpu
		}
	}
	return used
}

// processTimes are the times of a process as /proc shows them.
type processTimes struct {
	group          int
	cpu, startedAt time.Duration
}

// readTimes reads a process's times; a process that is gone has none.
func readTimes(pid int) (t processTimes, ok bool) {
	fields := process.Stat(pid)
	if len(fields) < 20 {
		return t, false
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return n
	}
	t.group = int(number(5))
	t.cpu = time.Duration(number(14)+number(15)+number(16)+number(17)) * clockTick
	t.startedAt = time.Duration(number(22)) * clockTick
	return t, true
}
