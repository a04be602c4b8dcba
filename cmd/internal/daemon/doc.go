// Package daemon is what the long-running programs have in common: signals,
// readiness, the log, health, and the command line of those that read one file.
package daemon
