// Package proc reads the resources that a process uses (processor time to the nanosecond, memory,
// descriptors). It also sets the processors that a run may use and the limit on open files. Linux
// only.
package proc
