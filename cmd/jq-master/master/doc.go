// Package master hands jobs to workers. It knows every job that has not ended
// and those that ended lately; what becomes of them is decided by a state machine
// without clock or connections. Around it are the store, which remembers, and the
// broker, a client of which the master is: it decides order and limits.
//
// The package does not speak HTTP: web calls Master, and Pusher carries jobs to
// the workers.
package master
