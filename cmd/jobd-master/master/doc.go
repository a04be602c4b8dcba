// Package master is the central daemon: it knows which worker serves which
// target, passes polls on, and makes one answer out of many.
//
//	worker ── register-worker ──▶ ┌────────┐ ◀── poke, status, … ── client
//	worker ◀── poll, run-manual ─ │ master │
//	                              └────────┘
//
// It has no database. What it remembers, pokes for targets that nobody serves
// among it, it remembers until it ends.
package master
