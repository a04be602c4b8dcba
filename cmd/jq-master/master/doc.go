// Package master hands jobs to workers. It knows all jobs that have not ended, and those that
// ended lately. A state machine without clock or connections decides what happens to them. Around
// it are the store, which remembers, and the broker, which decides order and limits; the master is
// a client of the broker.
//
// The package does not speak HTTP: package web calls Master, and a Pusher sends jobs to workers.
//
// # The way of a job
//
//	request.go        Enqueue makes a command of a request and waits for its reply
//	commandqueue.go   runs commands one at a time, then the side effects that they list
//	enqueue.go        admits the job and has the store write it; then the pusher gets its
//	                  answer, and the job, with the groups of its constraints, goes to
//	broker.go         the broker, as a job of JQ's own type, under the name of its id
//	run.go            handed: the broker gives it to a worker; start: the store writes the
//	                  attempt; started: the worker gets it, by push or by
//	pull.go           the pull that waits. done: the worker has reported, or the run has
//	                  timed out. end: the store writes how it ended; retry: it waits for its
//	                  backoff at the broker
//	poll.go           whoever waits for the end is told
//	end.go            the job is kept for a while, and forgotten
//
// Each step that must survive the master is written first and takes effect when the store has it;
// until then the record is busy (record.op), and commands about it wait.
//
// After a start, recovery.go reads the store and brings the jobs to the broker again. standby.go
// waits for the lease.
//
// # Goroutines and locks
//
// Master.mu guards the machine. Whoever adds a command to an empty queue runs the queue; nobody
// calls a store, a broker or a worker with mu held. The line to the broker has one goroutine and a
// lock of its own.
package master
