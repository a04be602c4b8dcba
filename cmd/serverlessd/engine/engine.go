// Package engine runs the daemon: journal to store, store through the broker to
// the runner, and back.
package engine
