// Package master is the central daemon: it knows which worker serves which target, passes polls to
// workers, and combines their answers.
//
//	worker ── register-worker ──▶ ┌────────┐ ◀── poke, status, … ── client
//	worker ◀── poll, run-manual ─ │ master │
//	                              └────────┘
//
// It has no database. All its state, including pokes for targets without a worker, is lost when
// the master ends.
package master
