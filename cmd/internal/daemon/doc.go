// Package daemon has the common parts of the long-running programs: signals, readiness, the
// log, health, and the command line of programs that read one file.
package daemon
