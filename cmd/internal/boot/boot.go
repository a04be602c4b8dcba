// Package boot reads a clock that nobody can set: the time since the boot of this host. All
// processes of a host read the same time.
package boot

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ID identifies the boot of this host. It is "" where the boot has no known id.
var ID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// ClockID identifies the clock that Since reads: processes with the same ClockID read the same
// time. It is "" where the clock is not known.
var ClockID = sync.OnceValue(func() string {
	if ID() == "" {
		return ""
	}
	timeNamespace, _ := os.Readlink("/proc/self/ns/time") // each time namespace has its own time
	return ID() + " " + timeNamespace
})

// Since returns the time since the boot of this host, including suspends.
func Since() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}
