package engine

import (
	"net/netip"
	"time"

	"gloom/cmd/internal/link"
	"gloom/cmd/internal/schedule"
)

// Config is what can be set on the daemon's engine; main has the defaults.
type Config struct {
	Dir    string   // journal, events, contexts
	Stores []string // addresses
	Broker link.Config

	LockTTL, Sweep                 time.Duration
	RetryDelay, RetryMax, RetryFor time.Duration
	KeepDone, KeepUnrun            time.Duration

	NoSync     bool
	JournalMax int64
	// DiskReserve is what additions leave free of the journal's disk, in bytes; 0: nothing.
	DiskReserve int64
	MaxLine     int
	MaxResult   int

	Concurrency, ClientConcurrency int // batches at work; 0 of a client: any number
	Batch                          int // jobs taken at a time
	JobTimeout, JobCPU             time.Duration
	Contexts, ContextJobs          int
	ContextMemory                  int64
	Languages                      []string
	HTTPAllow                      []netip.Prefix
	User                           string
	Drain                          time.Duration
	Stopped                        bool // at the start, until Start
	// Schedules is the file whose schedules are the store's; nil: there is none.
	Schedules *schedule.File
}
