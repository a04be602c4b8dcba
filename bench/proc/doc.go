// Package proc asks the kernel what a process costs: its processor time to the
// nanosecond, memory, descriptors; and sets what a run needs: processors it may
// use and a limit on open files. Linux only.
package proc
