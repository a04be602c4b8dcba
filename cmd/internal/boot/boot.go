// Package boot reads a clock that nobody can set: the time since the boot of this host. All
// processes of a host read the same time.
package boot

import (
	"os"
	"strings"
	"sync"
)

// ID identifies the boot of this host, "" where it is not known.
var ID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// ClockID identifies the clock that Since reads, "" where it is not known: processes that get the
// same value here read the same time.
var ClockID = sync.OnceValue(func() string {
	if ID() == "" {
		return ""
	}
	timeNamespace, _ := os.Readlink("/proc/self/ns/time") // each time namespace has a time of its own
	return ID() + " " + timeNamespace
})
