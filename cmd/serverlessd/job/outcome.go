package job

import "time"

// Outcome says how a run ended.
type Outcome struct {
	Status int    // 100 … 599
	Retry  bool   // try again, whatever Status says: for HTTP's 408, 425 and 429
	Code   string // the reason where the handler did not give the status itself (before_failed, context_died, timeout, …), else ""
	Data   []byte // all data that the run has given
	Stderr []byte // the last MaxStderr bytes; empty if the first run was OK
	// RetryAfter replaces the backoff after a RETRY or ERROR. It is at least MinRetryDelay, or 0 to
	// keep the backoff.
	RetryAfter time.Duration
	Lines      []Line // J: lines lines
	BadLines   int    // number of J: lines that did not make a job
	Wall       time.Duration
}

// MaxStderr is the number of bytes of a run's standard error that are kept.
const MaxStderr = 4 << 10

// MinRetryDelay is the shortest RetryAfter.
const MinRetryDelay = time.Millisecond

// Line is a J: line of a run. It makes another job of the same client.
type Line struct {
	Type    string // bare
	Payload []byte
}

// One of these codes is stored with a job. It says why the job last stopped.
const (
	CodeOK          = "ok"
	CodeFailed      = "failed"
	CodeRetry       = "retry"
	CodeError       = "error"
	CodeAbandoned   = "abandoned"
	CodeExpired     = "expired"      // the job has waited too long for its first run
	CodeLockExpired = "lock_expired" // the daemon that ran the job was lost
	CodeNoHandler   = "no_handler"
	CodeNoPayload   = "no_payload" // the store has lost the job's payload
	CodeTimeout     = "timeout"
)

// CodeOf returns the code that a status stands for, by its first digit (CodeRetry, CodeOK, CodeFailed
// or CodeError), and the status to store. 3xx and anything outside 100 … 599 count as 500.
func CodeOf(status int) (code string, stored int) {
	switch status / 100 {
	case 1:
		return CodeRetry, status
	case 2:
		return CodeOK, status
	case 4:
		return CodeFailed, status
	case 5:
		return CodeError, status
	}
	return CodeError, 500
}

// State is the state of a job.
type State string

// A job has one of these states. Jobs that ended with CodeOK, CodeFailed or CodeExpired have the
// code as their state.
const (
	Waiting   State = "waiting"
	Deferred  State = "deferred"
	Running   State = "running"
	Succeeded State = "ok"
	Failed    State = "failed"
	Abandoned State = "abandoned"
	Expired   State = "expired"
)

// StateOf returns the state of an ended job with this code.
func StateOf(code string) State {
	switch code {
	case CodeOK, CodeFailed, CodeExpired:
		return State(code)
	}
	return Abandoned
}
