// Package runner runs jobs by their handlers: in warm contexts, over HTTP, in a
// shell. It knows nothing of stores and brokers.
package runner

import (
	"context"
	"net/netip"
	"time"

	"gloom/cmd/serverlessd/job"

	"github.com/rs/zerolog"
)

// Options of a runner.
type Options struct {
	Dir                   string // temporary directories are made below it
	Languages             []string
	HTTPAllow             []netip.Prefix // none: all but link-local addresses
	Contexts, ContextJobs int
	Timeout, CPU          time.Duration // of a job whose handler does not say
	MaxLine               int           // of J: payloads
	RetryFor              time.Duration // most of Retry-After
	User                  string        // "" is the daemon's own
	Log                   zerolog.Logger
}

// Job is a job of a batch.
type Job struct {
	ID      job.ID
	Payload []byte // without the newline
	Tries   int
}

// Batch is jobs of one type that run one after the other.
type Batch struct {
	Client, Type string // Type bare
	Handler      *job.Handler
	Jobs         []Job
	// Held is asked before each job but the first: true ends the batch there. May
	// be nil.
	Held func() bool
}

// Reporter is told what happens to the jobs of a batch, by their place in it,
// in order, from one goroutine.
type Reporter interface {
	Started(i int)
	Ended(i int, o job.Outcome)
}

// Interface is what the engine needs of a runner.
type Interface interface {
	// Run runs a batch. Jobs of which nothing was reported were not begun. When
	// the context ends, no further job is begun, and the running one is ended with
	// what it stands for: its job is not reported as ended. gloom is not run here.
	Run(ctx context.Context, b Batch, to Reporter)
	// Check tells what is wrong with a source, if anything: *CheckError.
	Check(s *job.Source) error
	// Warm tells whether a context stands ready for a handler of a client.
	Warm(client string, h *job.Handler) bool
	// Contexts is how many contexts there are.
	Contexts() int
	// Kill ends all contexts and what runs in them, at once; the runner goes on.
	Kill()
	Close()
}

// CheckError is what Check refuses: a code of the HTTP side, and the field.
type CheckError struct{ Code, Field, Reason string }

func (e *CheckError) Error() string { return e.Reason }
