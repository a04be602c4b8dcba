// Package engine runs the daemon: it brings jobs from the journal to a store, takes due jobs from
// there to the runner or to Gloom workers, and writes how they ended to the store.
//
// # How a job flows through the files
//
//	web/body.go   splits a request into lines
//	view.go       Add appends them to the journal; when they are synced, the client gets its
//	              answer. AddUnique adds jobs with unique keys to the store itself.
//	ingest.go     brings pieces of the journal to a store, each piece to one of them
//	pick.go       asks the stores what is due, has package schedule choose types for the
//	              free slots, and takes (locks) jobs of these types
//	batch.go      the jobs of a slot: the runner runs them one after the other
//	gloom.go      or, for types that Gloom workers serve, each is submitted to the broker
//	ending.go     judges an outcome: the job ends, runs again later, or is given back
//	write.go      writes endings to the store, with the jobs that follow them
//
// Meanwhile, backend.go keeps the daemon registered with a store (its sysid) and renews the locks of
// all jobs that it has there. If it cannot do so in time, their runs are ended, and other daemons
// free the locks. sysid.go remembers the sysids of earlier processes, whose jobs are given back at
// the start. schedules.go adds the jobs of schedules.
//
// # Goroutines and locks
//
// One goroutine picks, and one reads the handlers. Each store has four goroutines: one ingests, one
// writes, one renews the locks (backend.keepSysid), and one sweeps. The first store has two more,
// for schedules. Each running batch has a goroutine. Engine.mu guards the slots, and backend.mu the
// jobs that the daemon has taken from one store. Neither is held during a call to a store, and no
// goroutine holds both.
package engine
