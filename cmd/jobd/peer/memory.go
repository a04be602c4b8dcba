package peer

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
)

// Memory is a daemon's report of its memory, in bytes, under the names that clients of
// the protocol know.
type Memory struct {
	RSS          uint64 `json:"rss"`       // resident
	HeapTotal    uint64 `json:"heapTotal"` // taken from the system for the heap
	HeapUsed     uint64 `json:"heapUsed"`  // objects that are live or not yet collected
	External     uint64 `json:"external"`  // everything else: stacks and the runtime's own data
	ArrayBuffers uint64 `json:"arrayBuffers"`
}

// MemoryUsage measures this process.
func MemoryUsage() Memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	total, used, unused, free, released := samples[0].Value.Uint64(), samples[1].Value.Uint64(),
		samples[2].Value.Uint64(), samples[3].Value.Uint64(), samples[4].Value.Uint64()
	m := Memory{HeapTotal: used + unused + free, HeapUsed: used}
	m.External = total - released - m.HeapTotal
	m.RSS = residentBytes()
	if m.RSS == 0 {
		m.RSS = total - released
	}
	return m
}

// residentBytes reads the resident size, where the system has /proc.
func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return pages * uint64(os.Getpagesize())
}
