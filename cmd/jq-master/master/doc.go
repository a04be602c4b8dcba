// Package master hands jobs to workers. It knows all jobs that have not ended, and jobs that ended
// recently. A state machine, which has no clock and no connections, decides what happens to the
// jobs. The store keeps the jobs. The broker decides in which order and within which limits the
// jobs run; the master is a client of the broker.
//
// The package does not speak HTTP: package web calls Master, and a Pusher sends jobs to workers.
//
// # How a job flows
//
//	request.go        Enqueue turns a request into a command and waits for its reply
//	commandqueue.go   runs commands one at a time, then the side effects that they list
//	enqueue.go        admits the job and has the store write it; then answers the pusher and
//	                  submits the job, with the groups of its constraints, to the broker
//	broker.go         the broker has the job under its id, as a job of a type of JQ
//	run.go            handed: the broker gives the job to a worker; start: the store writes
//	                  the attempt; started: the worker gets the job, by push or by
//	pull.go           the pull that waits. done: the worker has reported, or the run has
//	                  timed out. end: the store writes how it ended; retry: the job waits
//	                  for its backoff at the broker
//	poll.go           replies to requests that wait for the end
//	end.go            keeps the ended job for a while, then forgets it
//
// A transition that must survive the master takes effect only when the store has written it. Until
// then the record is busy (record.op), and commands about it wait.
//
// After a start, recovery.go reads the store and submits the jobs to the broker again. standby.go
// waits for the lease.
//
// # Goroutines and locks
//
// Master.mu guards the machine. The goroutine that adds a command to an empty queue runs the queue.
// Stores, brokers and workers are never called with mu held. The connection to the broker has its
// own goroutine and its own lock.
package master
