// Package broker is Gloom's core: which jobs wait, in which order, on which
// worker they run, and how each of them ends.
//
// It is a state machine. Every method that changes it takes the time and a
// command and returns effects: frames for peers, in the order in which they
// must be sent. Why it refuses or ends something it says in codes and figures.
// It has no sockets, clock, goroutines, locks, logging, metrics or words for
// people; a hub around it provides those, and a simulation can drive it with
// virtual time and replay any run.
//
// # Data model
//
// A job is a record of fixed size without pointers (type job) in a chunked
// table; its id and body lie in byte slabs beside it. An open-addressed index
// finds records by id. A flow is the meeting of one submitter and one type: it
// owns the waiting jobs (queue: FIFO lanes per priority and a keyed heap for
// whatever arrives out of order), so that a submitter that vanishes takes its
// jobs with it in one step whatever their number. A jobType merges its flows
// by a heap of their best jobs, and lists the workers with room, longest idle
// first. All deadlines stand in one heap.
//
// # Time
//
// Times are nanoseconds of a monotonic clock that the caller keeps; a time
// earlier than one already seen counts as the latest seen.
package broker
