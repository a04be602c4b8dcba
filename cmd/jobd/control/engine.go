package control

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"gloom/cmd/jobd/overview"
	"gloom/cmd/jobd/store"
)

// Engine is the part of a jobd daemon that owns targets and rows. The control server calls it. All
// methods may be called from any goroutine, and none keeps its slice and map arguments.
//
// Errors are sent to the client unchanged, so their texts are part of the protocol. The functions
// below return the errors that clients know.
type Engine interface {
	// Targets returns the names of all targets, in the order of the configuration; targets that
	// were added later come last.
	Targets() []string

	// Poll asks for the waiting rows of the named targets to be fetched; nil means all
	// targets. It does not wait. Unknown names are skipped: the caller has checked them
	// against Targets, but a target may be removed meanwhile.
	Poll(targets []string)

	// Pause stops the named targets from starting jobs; nil means all. Continue lets them start
	// jobs again. Both are idempotent and skip unknown names.
	Pause(targets []string)
	Continue(targets []string)

	// Status reports every target, in the order of Targets.
	Status() Status

	// AddTarget adds a target (TargetExistsError), SetConcurrency resizes one
	// (TargetUnknownError), RemoveTarget removes one that has nothing queued or
	// running (TargetUnknownError, ErrTargetBusy). The concurrency is at least 1
	// (ErrConcurrency).
	AddTarget(name string, concurrency int) error
	SetConcurrency(name string, concurrency int) error
	RemoveTarget(name string) error

	// RunManual runs the manual jobs with these ids. It runs each job once, even if the job's id is
	// given several times. It returns when all jobs have ended: outcomes for jobs that ran and error
	// texts for the others, both by id. An error concerns the whole call: no job was started, or it is
	// not known how they ended. When ctx ends, the call returns its error at once; started jobs
	// continue.
	RunManual(ctx context.Context, ids []int64) (map[int64]JobResult, map[int64]string, error)

	// SendSignal sends each signal to the running job with that id. The result says for each id
	// whether the signal was delivered. The signals must exist on this system; signal 0 only
	// tests whether the job runs.
	SendSignal(ctx context.Context, signals map[int64]syscall.Signal) map[int64]bool

	// Recover settles the rows of dead daemons at once, and returns their number.
	Recover(ctx context.Context) (int, error)

	// Overview describes the daemon itself. Rows gives people read access to its table.
	Overview() overview.Daemon
	Rows() (store.Reader, error)

	// OnTargets registers a function that is called after the set of targets has
	// changed, from any goroutine and with no lock of the engine held. It replaces the
	// function registered before; nil removes it.
	OnTargets(func())
}

// JobResult says how one manual job ended.
type JobResult struct {
	Result         string  // "ok" or "fail"
	Code           *int    // exit code, 0 to 255; nil if there is none
	Signal         *string // name of the signal that ended the job, such as "SIGTERM"; nil if no signal did
	Stdout, Stderr string
}

// Status is a snapshot of the engine.
type Status struct {
	Targets []TargetStatus
	Waiting int // jobs for which a RunManual waits
}

// TargetStatus is one target in a Status.
type TargetStatus struct {
	Name        string
	Paused      bool
	Concurrency int
	Length      int // jobs queued or running
}

// ErrTargetBusy is the error for removing a target that has jobs queued or running.
var ErrTargetBusy = errors.New("queue is not empty")

// ErrConcurrency is the error for a concurrency below 1.
//
//lint:ignore ST1005 clients match on this text
var ErrConcurrency = errors.New("Invalid concurrency value.")

// TargetExistsError returns the error for a second target of the same name.
func TargetExistsError(name string) error { return fmt.Errorf("target '%s' already added", name) }

// TargetUnknownError returns the error for a target that does not exist.
func TargetUnknownError(name string) error { return fmt.Errorf("target '%s' not found", name) }

// The next three functions return texts that RunManual reports for a single job.

// UnknownTargetText returns the error text for a row whose target this daemon does not serve.
func UnknownTargetText(target string, id int64) string {
	return fmt.Sprintf("target '%s' not found (job id=%d)", target, id)
}

// NotManualText returns the error text for a row that is not waiting to be run by hand.
func NotManualText(status string) string { return fmt.Sprintf("status = %s != manual", status) }

// UnknownJobText returns the error text for an id that no row has.
func UnknownJobText(id int64) string { return fmt.Sprintf("job %d not found", id) }

// JobAwaited returns the error of a RunManual for a job for which another call waits.
func JobAwaited(id int64) error {
	return fmt.Errorf("another client is already waiting for job %d", id)
}

// Daemon is an Engine with the methods that its program needs to run it.
type Daemon interface {
	Engine

	// Health returns nil if the daemon can work, and otherwise why not: the database or the
	// broker is away.
	Health() error

	// Shutdown stops taking rows and gives back those that have not begun. It waits for running
	// jobs as long as the configuration says, then ends them, and writes pending changes.
	// Waiting calls of RunManual return then. Shutdown returns when all of this is done or, with
	// an error, when ctx ends.
	Shutdown(ctx context.Context) error

	// Done is closed when the daemon has ended, by Shutdown or otherwise. Err then returns the
	// reason, nil after a successful Shutdown.
	Done() <-chan struct{}
	Err() error
}
