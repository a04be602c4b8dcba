// Package master is the central daemon: it knows which worker serves which target,
// passes polls on, and combines many answers into one.
//
//	worker ── register-worker ──▶ ┌────────┐ ◀── poke, status, … ── client
//	worker ◀── poll, run-manual ─ │ master │
//	                              └────────┘
//
// It has no database. All its state, including pokes for targets without a worker, is lost when
// the master ends.
package master
