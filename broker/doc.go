// Package broker is Gloom's core: which jobs wait, in which order, on which worker they run, and
// how each job ends.
//
// It is a state machine. Every method that changes it takes the time and a command and
// returns effects: frames for peers, in the order in which they must be sent. Reasons
// for refusals and ends are codes and numbers, not text. The core has no sockets, clock,
// goroutines, locks, logging, metrics or user-facing text; a hub around it provides those, and a
// simulation can drive it with virtual time and replay any run.
//
// # Data model
//
//	submitter ── holding ────────┐                   worker ─┬─ type
//	             counts, bytes   │                           └─ pool ── pair ── type
//	                             │
//	         job ── holding ── queue ──┬─ type.line                 plain
//	                 set of groups     ├─ tenant.line ── type.line  in a fair type
//	                                   └─ held ── group.parked      held back
//
// A job is a record of fixed size without pointers in a chunked table. Its id, headers and body,
// and a priority other than 0, lie in byte slabs beside it; a body of 128 KiB or more has memory of
// its own. A second table (timing) has the fields that only some jobs need: jobs that run or have
// run, and jobs with a delay, a timeout or a deadline. An index finds jobs by id. These structures
// are in container.
//
// A holding describes one submitter's jobs in one queue: lists of these jobs, counts and bytes.
// When the submitter disconnects, its holdings are marked. From then on its ids are free and the
// ledger has counted the ends; the records are swept later, in slices or when a command meets them.
// Kept jobs stay in their holding, which then has no submitter; detached jobs are in a holding that
// never had a submitter.
//
// A queue has the ready jobs of one type with the same set of groups, ordered by priority
// and age: a first-in first-out lane for each priority, and a heap for jobs that come out
// of order. In a fair type it belongs to a tenant: the first of the groups or, without
// groups, the submitter.
//
// A type has a line of its queues, ordered by their best jobs. A fair type has a line of
// tenants instead; the one served longest ago goes first. A group has the limits of the
// rules that match its name. While one of them is reached, the group is shut: its queues
// are outside all lines, in one heldQueues for each type. When it opens, these return one by
// one while an idle worker or the fleet could take a job.
//
// An idle worker that serves one type is in the type's line of idle workers. A worker that
// serves several types belongs to a pool, the set of names and patterns with which it
// joined. A pair says that a pool serves a type. It is in a heap of the pool, ordered by
// the types' best jobs, or in a heap of the type, ordered by how long the pools have had an
// idle worker. Once matching is done, one of the two heaps is empty.
//
// The list of jobs that are out on a worker has running jobs and overdue runs, which are no
// longer jobs but still take up room. The history, a log of bounded size,
// records the end of each job and each of its runs. A failed job leaves a dead letter,
// and a job whose outcome is kept leaves its last frame. Another broker's job that
// runs here is a record in a holding as well, but holds no id.
//
// All deadlines are in one heap of timers. Work that is too long for one command becomes a chore.
// Later commands and ticks continue the chore.
//
// # Time
//
// Times are nanoseconds of a monotonic clock that the caller keeps. If the
// time of a command is before the latest one seen, the latest one is used.
package broker
