// Package jq measures the HTTP queue: jobs per second from enqueueing to done, beside
// other queues on Redis; batches; and the cost of waiting jobs and constraints. It
// checks that every job was enqueued once, ran once and was done once.
package jq

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gloom/bench/door"
)

// These are the loads that a run may measure.
const (
	// Push enqueues one job at a time; the master pushes each to a worker, which
	// reports it done.
	Push = "push"
	// Batch enqueues 1,000 jobs at a time, and no worker runs them.
	Batch = "batch"
	// Waiting hands out jobs of a long queue, with and without constraints, and changes
	// a constraint on half of its jobs.
	Waiting = "waiting"
)

// These are the systems that a run may measure.
const (
	Memory = "memory" // jq-master without a store
	Redis  = "redis"  // jq-master with a Redis that is started for it
	Asynq  = "asynq"  // the asynq library, client and server in this process
	BullMQ = "bullmq" // queue and worker in one process of node
)

// Options says what to measure.
type Options struct {
	Load        string
	Systems     []string
	Jobs        int // jobs of a round; for Waiting, the length of the queue
	Pushers     int // connections that enqueue, one request at a time each
	Workers     int
	Slots       int // jobs that a worker runs at once
	Body        int // bytes of a job's argument
	Constraints int // for Waiting
	Rounds      int
	Master      string        // the program jq-master; "" finds it
	Fsync       string        // appendfsync of Redis
	NodeModules string        // folder with node_modules of BullMQ
	Timeout     time.Duration // of a round
}

// DefaultOptions returns the options of the published figures, with 32 workers on
// persistent connections.
func DefaultOptions() Options {
	return Options{
		Load: Push, Systems: []string{Memory, Redis}, Jobs: 50_000, Pushers: 32, Workers: 32, Slots: 4, Body: 64,
		Constraints: 20, Rounds: 3, Fsync: "everysec", Timeout: 5 * time.Minute,
	}
}

// Validate returns an error for the first option that is out of range.
func (o Options) Validate() error {
	if err := cmp.Or(door.AtLeast(1, "jobs", o.Jobs), door.AtLeast(1, "pushers", o.Pushers), door.AtLeast(1, "workers", o.Workers), door.AtLeast(1, "slots", o.Slots),
		door.AtLeast(1, "rounds", o.Rounds), door.AtLeast(0, "constraints", o.Constraints), door.AtLeast(0, "body", o.Body), door.AtLeast(1, "systems", len(o.Systems))); err != nil {
		return err
	}
	if !slices.Contains([]string{Push, Batch, Waiting}, o.Load) {
		return fmt.Errorf("load '%s' must be one of %s, %s, %s", o.Load, Push, Batch, Waiting)
	}
	for _, s := range o.Systems {
		switch s {
		case Memory, Redis:
		case Asynq, BullMQ:
			if o.Load != Push {
				return fmt.Errorf("system '%s' has only the load %s", s, Push)
			}
			if s == BullMQ && o.NodeModules == "" {
				return fmt.Errorf("system '%s' needs --modules, a folder where npm install bullmq ioredis was run", s)
			}
		default:
			return fmt.Errorf("system '%s' must be one of %s, %s, %s, %s", s, Memory, Redis, Asynq, BullMQ)
		}
	}
	return nil
}
