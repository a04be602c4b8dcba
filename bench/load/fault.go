package load

import (
	"fmt"
	"strings"
)

// Fault is a kind of error that a server can make.
type Fault uint8

const (
	Lost         Fault = iota // no answer, although the run waited for it
	Doubled                   // answered a second time
	Swapped                   // an answer that belongs to another job or submitter
	Damaged                   // an answer with a body other than the one sent
	Unacked                   // answered before its ack, or never acked
	Unknown                   // about a job that was never submitted
	Refused                   // an error frame without a reason
	Misbehaved                // bytes that the protocol does not allow
	Disconnected              // a connection ended by the server
	faultCount
)

var faultNames = [faultCount]string{"lost", "doubled", "swapped", "damaged", "unacked", "unknown", "refused",
	"misbehaved", "disconnected"}

func (f Fault) String() string { return faultNames[f] }

const maxSamples = 8

// Faults counts faults, and keeps a description of the first few.
type Faults struct {
	Counts  [faultCount]int64
	Samples []string
}

func (f *Faults) add(kind Fault, format string, args ...any) {
	f.Counts[kind]++
	if len(f.Samples) < maxSamples {
		f.Samples = append(f.Samples, kind.String()+": "+fmt.Sprintf(format, args...))
	}
}

// Merge adds the faults of other.
func (f *Faults) Merge(other *Faults) {
	for i, n := range other.Counts {
		f.Counts[i] += n
	}
	for _, s := range other.Samples {
		if len(f.Samples) < maxSamples {
			f.Samples = append(f.Samples, s)
		}
	}
}

// Total returns the number of all faults.
func (f *Faults) Total() (n int64) {
	for _, c := range f.Counts {
		n += c
	}
	return n
}

// ByName returns the counts above zero by their names.
func (f *Faults) ByName() map[string]int64 {
	m := make(map[string]int64)
	for i, n := range f.Counts {
		if n > 0 {
			m[Fault(i).String()] = n
		}
	}
	return m
}

// String lists the counts above zero, or returns "none" if all counts are zero.
func (f *Faults) String() string {
	var parts []string
	for i, n := range f.Counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, Fault(i)))
		}
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}
