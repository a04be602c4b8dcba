// Package schedule decides which type's jobs are taken next. It is a pure
// function of counts, running batches and time: no store, no clock.
package schedule

import "time"

// Type is a type with jobs that are due.
type Type struct {
	Client, Jobtype string
	Count           int           // at most 1,000
	Age             time.Duration // how long the oldest has been due
	Limit           int           // jobs of the type that may run at a moment; 0: any number
	Warm            bool          // a context stands ready
}

// Limits of the daemon.
type Limits struct {
	Slots, ClientSlots int // batches at work, in all and of a client; 0: any number
}

// Interface is what the engine needs of a scheduler. It is not safe for
// concurrent use. A slot is a batch at work.
type Interface interface {
	// SelectJobtypeToRun is whose jobs to take next, as a place in types; -1 when
	// nothing may run.
	SelectJobtypeToRun(types []Type) int
	// JobsStarted takes a slot for a batch of a type.
	JobsStarted(client, jobtype string)
	// JobsStopped gives it back; the batch ran for so long.
	JobsStopped(client, jobtype string, ran time.Duration)
}
