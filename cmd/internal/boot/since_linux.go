package boot

import (
	"time"

	"golang.org/x/sys/unix"
)

// Since returns the time since the boot of this host, including suspends.
func Since() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}
