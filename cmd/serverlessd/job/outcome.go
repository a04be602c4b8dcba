package job

import "time"

// Outcome is how a run ended.
type Outcome struct {
	Status int    // 100 … 599
	Again  bool   // RETRY, whatever Status says: HTTP's 408, 425, 429
	Code   string // the reason where the handler did not give the status itself (before_failed, context_died, timeout, …), else ""
	Data   []byte // all of it
	Stderr []byte // the last StderrKept bytes; empty if the first run was OK
	// RetryAfter replaces the backoff after a RETRY or ERROR. It is at least AtOnce, or 0 to keep
	// the backoff.
	RetryAfter time.Duration
	Lines      []Line // J: lines
	BadLines   int    // J: lines that made no job
	Wall       time.Duration
}

// StderrKept is how many bytes of a run's standard error are kept.
const StderrKept = 4 << 10

// AtOnce is the shortest RetryAfter.
const AtOnce = time.Millisecond

// Line is a J: line of a run. It makes another job of the same client.
type Line struct {
	Type    string // bare
	Payload []byte
}

// Verdict is what a status means.
type Verdict uint8

// The verdicts, by the first digit of a status.
const (
	Retry  Verdict = 1 // 1xx
	OK     Verdict = 2 // 2xx
	Failed Verdict = 4 // 4xx
	Error  Verdict = 5 // 5xx, 3xx, and anything outside 100 … 599
)

// Judge returns the verdict of a status, and the status to store.
func Judge(status int) (Verdict, int) {
	switch {
	case status < 100 || status > 599 || status/100 == 3:
		return Error, 500
	}
	return Verdict(status / 100), status
}

// Codes that are stored with a job. They say why it last stopped.
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

// Code returns the name of a verdict.
func (v Verdict) Code() string {
	switch v {
	case Retry:
		return CodeRetry
	case OK:
		return CodeOK
	case Failed:
		return CodeFailed
	}
	return CodeError
}

// State is the state of a job.
type State string

// The states.
const (
	Waiting   State = "waiting"
	Deferred  State = "deferred"
	Running   State = "running"
	Succeeded State = "ok"
	Fault     State = "failed"
	Abandoned State = "abandoned"
	Expired   State = "expired"
)

// Ended returns the state of an ended job with this code.
func Ended(code string) State {
	switch code {
	case CodeOK:
		return Succeeded
	case CodeFailed:
		return Fault
	case CodeExpired:
		return Expired
	}
	return Abandoned
}
