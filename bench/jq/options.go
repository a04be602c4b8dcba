// Package jq measures the HTTP queue: jobs per second from enqueueing to done,
// beside other queues on Redis, batches, and what waiting jobs and constraints
// cost. Every job is checked: enqueued once, run once, done once.
package jq

import (
	"fmt"
	"slices"
	"time"
)

// The loads.
const (
	// Push enqueues one job at a time; workers that jobs are pushed to end them.
	Push = "push"
	// Batch enqueues 1,000 jobs at a time, which stay.
	Batch = "batch"
	// Waiting hands jobs out of a long line, with and without constraints, and
	// changes a constraint over it.
	Waiting = "waiting"
)

// The systems.
const (
	Memory = "memory" // jq-master without a store
	Redis  = "redis"  // jq-master with a Redis of its own
	Asynq  = "asynq"  // its library, client and server in this process
	BullMQ = "bullmq" // queue and worker in one process of node
)

// Options says what to measure.
type Options struct {
	Load        string
	Systems     []string
	Jobs        int // of a round; of Waiting, the line
	Pushers     int // connections that enqueue, one request at a time each
	Workers     int
	Slots       int // jobs of a worker at once
	Body        int // bytes of a job's argument
	Constraints int // of Waiting
	Rounds      int
	Master      string        // the program jq-master; "" finds it
	Fsync       string        // appendfsync of Redis
	Modules     string        // folder with node_modules of BullMQ
	Timeout     time.Duration // of a round
}

// DefaultOptions are those of the goal: 32 workers on connections that stay.
func DefaultOptions() Options {
	return Options{
		Load: Push, Systems: []string{Memory, Redis}, Jobs: 50_000, Pushers: 32, Workers: 32, Slots: 4, Body: 64,
		Constraints: 20, Rounds: 3, Fsync: "everysec", Timeout: 5 * time.Minute,
	}
}

// Validate returns an error for what cannot be measured.
func (o Options) Validate() error {
	for _, c := range []struct {
		name  string
		value int
		least int
	}{
		{"jobs", o.Jobs, 1}, {"pushers", o.Pushers, 1}, {"workers", o.Workers, 1}, {"slots", o.Slots, 1},
		{"rounds", o.Rounds, 1}, {"constraints", o.Constraints, 0}, {"body", o.Body, 0}, {"systems", len(o.Systems), 1},
	} {
		if c.value < c.least {
			return fmt.Errorf("%s %d: must be at least %d", c.name, c.value, c.least)
		}
	}
	if !slices.Contains([]string{Push, Batch, Waiting}, o.Load) {
		return fmt.Errorf("load '%s' is none of %s, %s, %s", o.Load, Push, Batch, Waiting)
	}
	for _, s := range o.Systems {
		switch s {
		case Memory, Redis:
		case Asynq, BullMQ:
			if o.Load != Push {
				return fmt.Errorf("system '%s' has only the load %s", s, Push)
			}
			if s == BullMQ && o.Modules == "" {
				return fmt.Errorf("system '%s' needs --modules, a folder where npm install bullmq ioredis was run", s)
			}
		default:
			return fmt.Errorf("system '%s' is none of %s, %s, %s, %s", s, Memory, Redis, Asynq, BullMQ)
		}
	}
	return nil
}
