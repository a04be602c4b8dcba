package daemon

import (
	"runtime/debug"
	"testing"

	"gloom/broker/memory"
)

// TestMemoryLimitFollowsHost: the collector keeps the process below the memory of its host, or of its
// cgroup.
func TestMemoryLimitFollowsHost(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	LimitMemory()
	if limit := debug.SetMemoryLimit(-1); limit > memory.OfHost() {
		t.Errorf("the limit is %d bytes, and the host has %d", limit, memory.OfHost())
	}
}
