package job

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// These are limits and defaults of a job's attributes.
const (
	MaxNameBytes    = 200 // bytes
	MaxRetries      = 1000
	MaxTimeout      = 30 * 86_400 // seconds
	MaxDelay        = 365 * 86400 // seconds
	MaxBatch        = 1000        // jobs in one request
	DefaultMaxRetry = 10
	DefaultTimeout  = 30      // seconds
	MaxMessage      = 4 << 10 // bytes of a message; longer ones are cut
	MaxKeptAttempts = 16      // how many ended runs of a job are kept; older ones are dropped
)

// Span is a length of time in milliseconds.
type Span uint32

// Seconds returns the span of n seconds, rounded to milliseconds, at least 1. n must be above 0 and
// at most MaxTimeout.
func Seconds(n float64) Span { return max(1, Span(math.Round(n*1000))) }

// Seconds returns the span in seconds.
func (s Span) Seconds() float64 { return float64(s) / 1000 }

// Duration returns the span as a Duration.
func (s Span) Duration() time.Duration { return time.Duration(s) * time.Millisecond }

// Attributes holds what the pusher sets for a job. Only Priority ever changes. All packages share
// the bytes of Argument, so none may change them.
type Attributes struct {
	Name       string
	Argument   []byte // one MessagePack map, as it was sent
	Priority   int32  // smaller first
	MaxRetry   int32  // 0 … MaxRetries
	Timeout    Span   // the longest time of a run: above 0, at most MaxTimeout
	KeepResult bool
	Unique     *Unique // nil: the job has no unique key
}

// State is the state of a job.
type State uint8

// A job has one of these states.
const (
	Queued    State = iota // never run
	Running                // at a worker
	Retrying               // the job has failed, and waits for its backoff or for a worker
	Done                   // ended with success
	Failed                 // ended for good with a failure; shown as "error"
	Cancelled              // ended without an outcome
)

var stateNames = [...]string{"queued", "running", "retrying", "done", "error", "cancelled"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// ParseState returns the state with this name.
func ParseState(name string) (State, bool) {
	i := slices.Index(stateNames[:], name)
	return State(max(i, 0)), i >= 0
}

// Waits reports whether the job is queued or retrying.
func (s State) Waits() bool { return s == Queued || s == Retrying }

// Ended reports whether the job has ended: only an operator can make it run again.
func (s State) Ended() bool { return s >= Done }

// Job is a job as it is stored. Times are in milliseconds since 1970, 0 for none. A Job is a value:
// no package changes a Job that another package holds.
type Job struct {
	ID ID
	Attributes
	Seq      uint64 // order of enqueueing
	Enqueued int64
	Rev      uint32 // revision: the number of transitions written since it was enqueued
	State    State
	Retries  int32 // retries scheduled so far; "retry_count" in replies
	Attempt  int32 // number of the last run, from 1; not reset when a job is revived
	Due      int64 // the job is not handed out before this time
	Worker   ID    // worker of the last run
	Started  int64 // when the last run was handed out
	Deadline int64 // deadline of the current run, including the grace
	Finished int64 // when the last run, or the job, ended

	Result     []byte // MessagePack; nil if there is none, or it was dropped
	Error      []byte // error of the last failure, in MessagePack; nil stands for null
	Message    string // message of the last failure
	Reason     Reason // reason of the last failure
	ReportedAt int64  // finished_at as the worker reported it; 0 if it did not report one

	// Attempts holds the last MaxKeptAttempts runs that have ended, the oldest first.
	Attempts []Attempt
}

// Attempt is a run that has ended.
type Attempt struct {
	Number   int32  `json:"number"`
	Worker   ID     `json:"worker"`
	Started  int64  `json:"started"`
	Finished int64  `json:"finished"`
	Success  bool   `json:"success,omitempty"`
	Reported bool   `json:"reported,omitempty"` // the worker reported the end; otherwise the master itself ended the run
	Reason   Reason `json:"reason,omitempty"`   // of a failure
	Message  string `json:"message,omitempty"`  // of a failure
	// Lost means that the worker was lost, Cancelled that the job was cancelled during the run.
	Lost      bool `json:"lost,omitempty"`
	Cancelled bool `json:"cancelled,omitempty"`
}

// Outcome returns how the run ended, in the broker's terms.
func (a *Attempt) Outcome() string {
	switch {
	case a.Success:
		return "answered"
	case a.Cancelled:
		return "cancelled"
	case a.Lost:
		return "lost"
	case a.Reason == Timeout:
		return "timed_out"
	}
	return "failed"
}

// Reason says why a run failed.
type Reason uint8

// These are the reasons for a failure.
const (
	NoReason Reason = iota // the run did not fail
	Other
	Timeout
)

var reasonNames = [...]string{"", "other", "timeout"}

func (r Reason) String() string { return reasonNames[r] }

// ParseReason returns the reason with this name.
func ParseReason(name string) (Reason, bool) {
	i := slices.Index(reasonNames[:], name)
	return Reason(max(i, 0)), i > 0
}

// Outcome says how a run ended: as its worker reported, or as the master decided.
type Outcome struct {
	Success bool
	Result  []byte // result of a success, in MessagePack; nil stands for null
	// The following are set for a failure.
	Reason     Reason
	Retry      bool
	Error      []byte // MessagePack; nil is null
	Message    string
	ReportedAt int64 // finished_at, in milliseconds since 1970; 0: not reported
	Lost       bool  // its worker was lost
	// A Gloom worker may ask for a retry after Delay; 0: it did not. Retried is how often the job has
	// been retried if the broker has used up its retries.
	Delay   time.Duration
	Retried int32
}
