package gloom

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Code is the stable name of an error on the wire. The constants are the one
// table of this package: errors.Is finds them in a *RefusedError and a *JobError.
type Code string

// The codes of the protocol.
const (
	ErrMissingField  Code = "missing_field"  // a required key is not there
	ErrInvalidType   Code = "invalid_type"   // a value of the wrong kind
	ErrInvalidValue  Code = "invalid_value"  // the right kind, out of its range
	ErrInvalidAction Code = "invalid_action" // a verb of the other port
	ErrUnknownAction Code = "unknown_action" // the broker does not know the verb
	ErrInvalidState  Code = "invalid_state"  // not now
	ErrIDExists      Code = "id_exists"      // the id is held by a job that has not ended
	ErrUnknownID     Code = "unknown_id"     // no such job, or not this connection's
	ErrInvalidJSON   Code = "invalid_json"   // no JSON, no UTF-8, or nested too deep
	ErrSizeError     Code = "size_error"     // larger than the broker's largest frame
	ErrForbidden     Code = "forbidden"      // the token lacks the scope or the type
	ErrUnauthorized  Code = "unauthorized"   // no token, or a wrong one
	ErrOverloaded    Code = "overloaded"     // a limit of the broker, named in the reason
	ErrDraining      Code = "draining"       // the broker is stopping
	ErrJobFailed     Code = "job_failed"     // the job's runs have all failed
	ErrExpired       Code = "expired"        // the job passed its deadline
	ErrCancelled     Code = "cancelled"      // the job was cancelled
	ErrTakenOver     Code = "taken_over"     // another connection attached to the job
)

// Error is the code's name.
func (c Code) Error() string { return string(c) }

var (
	// ErrLost is matched by every *LostError.
	ErrLost = errors.New("connection lost")
	// ErrClosed is returned after Close, Drain or Stop.
	ErrClosed = errors.New("gloom: closed")
	// ErrWindowFull is returned by TrySubmit and TrySubmitFunc when as many jobs
	// are outstanding as the window allows, or too many bytes wait to be sent.
	ErrWindowFull = errors.New("gloom: window is full")
	// ErrNotConnected is returned by TrySubmit and TrySubmitFunc while there is
	// no connection to a broker.
	ErrNotConnected = errors.New("gloom: not connected")
	// ErrUnsupported is returned for what a broker of the Compat kind lacks.
	ErrUnsupported = errors.New("gloom: not supported by this broker")
)

// RefusedError says that the broker did not take a request: nothing changed.
// Jobs with an impossible id, body or size are refused with it before they are
// sent.
type RefusedError struct {
	Code   Code
	Reason string // for people
	ID     string // the job's id, empty when no single job is meant
}

func (e *RefusedError) Error() string { return describe("refused", e.Code, e.Reason, e.ID) }

// Unwrap returns the code.
func (e *RefusedError) Unwrap() error { return e.Code }

// of is the refusal with the id that the caller knows.
func (e *RefusedError) of(p *Pending) error {
	return &RefusedError{Code: e.Code, Reason: e.Reason, ID: p.id}
}

// JobError says that a job which the broker had taken ended without an answer.
// Its Code is ErrJobFailed, ErrExpired, ErrCancelled, ErrDraining or, for a kept
// job that another connection has now, ErrTakenOver; brokers to come may have more.
//
// A job with NoAck that meets a draining broker gets a JobError too, though it
// may never have been taken: without an ack nobody can tell.
type JobError struct {
	Code   Code
	Reason string // for people; of a worker's fail, what the worker said
	ID     string
	// Lost says that the last run went with its worker: it may have been done.
	Lost bool
	// Final says that the worker wanted no retry; Later that it would have had one
	// wait for Delay, had a run been left.
	Final, Later bool
	Delay        time.Duration
}

func (e *JobError) Error() string { return describe("job ended", e.Code, e.Reason, e.ID) }

// Unwrap returns the code.
func (e *JobError) Unwrap() error { return e.Code }

func describe(what string, code Code, reason, id string) string {
	s := "gloom: " + what + ": " + string(code)
	if reason != "" {
		s += ": " + reason
	}
	if id != "" {
		s += " (id " + strconv.Quote(id) + ")"
	}
	return s
}

// LostError says that the connection went while a job was pending on it. The
// broker clears such a job when it was queued, and discards its answer when it
// was running, unless it was submitted with Detach or Keep.
type LostError struct {
	ID    string // the job's id, empty when no job is meant
	Addr  string // of the broker
	Acked bool   // the broker had taken the job
	Sent  bool   // some of the submit may have left this process; false: it never ran
	Cause error
}

func (e *LostError) Error() string {
	s := "gloom: connection to " + e.Addr + " lost"
	if e.ID != "" {
		s += " with job " + strconv.Quote(e.ID)
		switch {
		case e.Acked:
			s += " acked"
		case e.Sent:
			s += " sent, not acked"
		default:
			s += " not sent"
		}
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Is matches ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// ProtocolError says that a broker sent what the protocol does not allow. The
// connection is dropped.
type ProtocolError struct {
	Reason string
}

func (e *ProtocolError) Error() string { return "gloom: broker broke the protocol: " + e.Reason }

// PanicError is what a Notice reports when a handler panicked. The job has
// failed, its reason being the panic's value.
type PanicError struct {
	ID    string // the job's id
	Value any    // what the handler panicked with
	Stack []byte
}

// Error ends with the stack, so that every log has it.
func (e *PanicError) Error() string {
	s := fmt.Sprintf("gloom: handler panicked on job %q: %v", e.ID, e.Value)
	if len(e.Stack) > 0 {
		s += "\n" + strings.TrimRight(string(e.Stack), "\n")
	}
	return s
}
