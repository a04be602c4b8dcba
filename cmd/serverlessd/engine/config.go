package engine

import (
	"net/netip"
	"time"

	"gloom/cmd/internal/link"
	"gloom/cmd/internal/schedule"
)

// Config holds the options of the engine. Their defaults are in package main.
type Config struct {
	Dir    string   // journal, events, contexts
	Stores []string // addresses
	Broker link.Config

	LockTTL, Sweep                 time.Duration
	RetryDelay, RetryMax, RetryFor time.Duration
	KeepDone, KeepUnrun            time.Duration

	NoSync     bool
	JournalMax int64
	// DiskReserve is the number of bytes that adds leave free on the journal's disk; 0: none.
	DiskReserve int64
	MaxLine     int
	MaxResult   int

	Concurrency, ClientConcurrency int // batches that run at a time; ClientConcurrency 0: any number
	Batch                          int // jobs taken at a time
	JobTimeout, JobCPU             time.Duration
	Contexts, ContextJobs          int
	ContextMemory                  int64
	Languages                      []string
	HTTPAllow                      []netip.Prefix
	User                           string
	Drain                          time.Duration
	Stopped                        bool // whether to hand out no jobs before Start
	// Schedules is the file of schedules; nil if there is none.
	Schedules *schedule.File
}
