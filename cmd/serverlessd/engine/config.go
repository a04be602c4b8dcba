package engine

import (
	"time"

	"gloom/cmd/internal/link"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/serverlessd/runner"
)

// Config holds the options of the engine. Their defaults are in package main. The engine sets the
// runner's Dir, Guard and Log.
type Config struct {
	runner.Options
	Dir    string   // directory of the journal, the events and the handler processes
	Stores []string // addresses of the stores
	Broker link.Config

	LockTTL, Sweep       time.Duration
	RetryDelay, RetryMax time.Duration // RetryFor is an option of the runner, too
	KeepDone, KeepUnrun  time.Duration

	NoSync     bool
	JournalMax int64
	// DiskReserve is the number of bytes that adds leave free on the journal's disk; 0: none.
	DiskReserve int64
	MaxResult   int

	Concurrency, ClientConcurrency int // batches that run at a time; ClientConcurrency 0: any number
	Batch                          int // jobs taken at a time
	Drain                          time.Duration
	Stopped                        bool // hand out no jobs before Start is called
	// Schedules is the file of schedules; nil if there is none.
	Schedules *schedule.File
}
