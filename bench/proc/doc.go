// Package proc reads what a process uses (its processor time to the nanosecond, memory,
// descriptors), and sets what a run needs (the processors that it may use and the limit on open
// files). Linux only.
package proc
