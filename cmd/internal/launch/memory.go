package launch

import (
	"os"
	"strconv"
	"strings"

	"gloom/cmd/internal/process"
)

// GroupsOverMemory returns the process groups that hold more than limit bytes of memory, and how many
// bytes they hold. Memory that processes share is divided equally among them. A process that left
// its group counts with its new group.
func GroupsOverMemory(limit int64) map[int]int64 {
	type group struct {
		bytes int64
		pids  []int
	}
	groups := make(map[int]*group)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fields := process.Stat(pid)
		if len(fields) < 22 {
			continue // the process has ended
		}
		id, _ := strconv.Atoi(fields[5-3])
		pages, _ := strconv.ParseInt(fields[24-3], 10, 64)
		g := groups[id]
		if g == nil {
			g = &group{}
			groups[id] = g
		}
		g.bytes += pages * int64(os.Getpagesize())
		g.pids = append(g.pids, pid)
	}
	pids := make(map[int]int64)
	for id, g := range groups {
		if g.bytes <= limit {
			continue
		}
		g.bytes = 0
		for _, pid := range g.pids {
			g.bytes += proportionalMemory(pid)
		}
		if g.bytes > limit {
			pids[id] = g.bytes
		}
	}
	return pids
}

// proportionalMemory returns a process's memory in bytes, including its share of shared memory.
// Reading that costs more than counting shared memory in full.
func proportionalMemory(pid int) int64 {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			kilobytes, _ := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}
