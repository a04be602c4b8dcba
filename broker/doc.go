// Package broker is Gloom's core: which jobs wait, in which order, on which
// worker they run, and how each of them ends.
//
// It is a state machine. Every method that changes it takes the time and a command and
// returns effects: frames for peers, in the order in which they must be sent. Reasons
// for refusals and ends are codes and figures. It has no sockets, clock, goroutines,
// locks, logging, metrics or words for people; a hub around it provides those, and a
// simulation can drive it with virtual time and replay any run.
//
// # Data model
//
//	submitter ── holding ─────┐                      worker ─┬─ type
//	             counts, bytes│                              └─ pool ── pair ── type
//	                          │
//	         job ── holding ── queue ──┬─ type.line                 plain
//	                 set of groups     ├─ tenant.line ── type.line  in a fair type
//	                                   └─ pen ── group.parked       held back
//
// A job is a record of fixed size without pointers in a chunked table. Its id, headers
// and body lie in byte slabs beside it; a body of 128 KiB or more has memory of its
// own. Fields that only jobs with some deadline need are in a second table (timing). An
// index finds jobs by id. These structures are in container.
//
// A holding is what one submitter has in one queue: lists of its jobs, counts and
// bytes. When the submitter goes, its holdings are marked. From then on its ids are
// free and the ledger has counted the ends; the records are swept later, in slices or
// as they come up. Kept jobs go on in a holding without a submitter; detached jobs are
// in a holding that never had one.
//
// A queue has the ready jobs of one type with the same set of groups, by priority and
// age: first-in first-out lanes by priority, and a heap for jobs that come out of
// order. In a fair type it belongs to a tenant: the first of the groups or, without
// groups, the submitter.
//
// A type has a line of its queues by their best jobs; in a fair type it has a line of
// tenants, of which the one served longest ago goes first. A group has the limits of
// the rules that match its name. While one of them is reached the group is shut: its
// queues stand in pens, one for each type, outside of all lines. When it opens, pens
// come back as workers ask for them.
//
// A worker that serves one type stands in the type's line of idle workers. One that
// serves several belongs to a pool, the set of names and patterns with which it joined.
// A pair says that a pool serves a type. It stands in a heap of the pool, by the type's
// best job, or in a heap of the type, by how long the pool has had an idle worker: once
// matching is done, one of the two heaps is empty.
//
// A worker's list of jobs that are out has running jobs and overdue runs; these are not
// jobs any more but still take a place. An ended job leaves a record in the history, a
// log of bounded size, as did its earlier runs. It leaves a dead letter if it failed,
// and its last frame if it is kept. Another broker's job that runs here is a record in
// a holding as well, but holds no id.
//
// All deadlines stand in one heap of timers. Work that is too long for one command is a
// chore, with which later commands and ticks go on.
//
// # Time
//
// Times are nanoseconds of a monotonic clock that the caller keeps. A time before the
// latest one seen counts as that one.
package broker
