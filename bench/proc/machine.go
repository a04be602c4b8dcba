package proc

import (
	"time"

	"github.com/prometheus/procfs"
)

// MachineCPU returns the processor time that the whole machine has been busy, to 10 ms, including
// time stolen by the hypervisor.
func MachineCPU() time.Duration {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0
	}
	t := stat.CPUTotal
	busySeconds := t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	return time.Duration(busySeconds * float64(time.Second))
}
