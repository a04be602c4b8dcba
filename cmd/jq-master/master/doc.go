// Package master hands jobs to workers. It knows all jobs that have not ended, and those that
// ended lately. A state machine without clock or connections decides what happens to them. Around
// it are the store, which remembers, and the broker, which decides order and limits; the master is
// a client of the broker.
//
// The package does not speak HTTP: package web calls Master, and a Pusher sends jobs to workers.
package master
