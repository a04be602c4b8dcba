package gloom

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Code is the name of an error on the wire. errors.Is matches the constants with a *RefusedError
// and a *JobError.
type Code string

// The codes of the protocol.
const (
	ErrMissingField  Code = "missing_field"  // a required key is missing
	ErrInvalidType   Code = "invalid_type"   // a value has the wrong JSON type
	ErrInvalidValue  Code = "invalid_value"  // a value is out of its range
	ErrInvalidAction Code = "invalid_action" // a verb of the other port
	ErrUnknownAction Code = "unknown_action" // the broker does not know the verb
	ErrInvalidState  Code = "invalid_state"  // not allowed now
	ErrIDExists      Code = "id_exists"      // the id is held by a job that has not ended
	ErrUnknownID     Code = "unknown_id"     // there is no such job, or it is not this connection's
	ErrInvalidJSON   Code = "invalid_json"   // not JSON, not UTF-8, or nested too deep
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

// Error returns the code's name.
func (c Code) Error() string { return string(c) }

var (
	// ErrLost matches every *LostError.
	ErrLost = errors.New("connection lost")
	// ErrClosed is returned after Close, Drain or Stop.
	ErrClosed = errors.New("gloom: closed")
	// ErrWindowFull is returned by TrySubmit and TrySubmitFunc when the window is full or too
	// many bytes wait to be sent.
	ErrWindowFull = errors.New("gloom: window is full")
	// ErrNotConnected is returned by TrySubmit and TrySubmitFunc without a connection.
	ErrNotConnected = errors.New("gloom: not connected")
)

// RefusedError reports that the broker did not accept a request: nothing has changed. Jobs with
// an invalid id, body or size are refused before they are sent.
type RefusedError struct {
	Code   Code
	Reason string // for people
	ID     string // the job's id, empty if the error is not about a single job
}

func (e *RefusedError) Error() string { return describeError("refused", e.Code, e.Reason, e.ID) }

// Unwrap returns the code.
func (e *RefusedError) Unwrap() error { return e.Code }

// JobError reports that a job that the broker had accepted ended without an answer. Its Code is
// ErrJobFailed, ErrExpired, ErrCancelled, ErrDraining or ErrTakenOver (another connection
// attached to the kept job); later brokers may add more.
//
// A job with NoAck that is sent to a draining broker also gets a JobError, although it may never
// have been accepted: without an ack that cannot be known.
type JobError struct {
	Code   Code
	Reason string // for people; the worker's reason if it reported the failure
	ID     string
	// Lost: the worker of the last run was lost, so the job may have been done.
	Lost bool
	// Final: the worker asked for no retry. Later: it asked for one after Delay, but no
	// retries were left.
	Final, Later bool
	Delay        time.Duration
}

func (e *JobError) Error() string { return describeError("job ended", e.Code, e.Reason, e.ID) }

// Unwrap returns the code.
func (e *JobError) Unwrap() error { return e.Code }

func describeError(problem string, code Code, reason, id string) string {
	s := "gloom: " + problem + ": " + string(code)
	if reason != "" {
		s += ": " + reason
	}
	if id != "" {
		s += " (id " + strconv.Quote(id) + ")"
	}
	return s
}

// LostError reports that the connection was lost while a job was pending on it. Unless the job
// has Detach or Keep, the broker removes it if it was queued, and discards its answer if it
// was running.
type LostError struct {
	ID    string // the job's id, empty if the error is not about a job
	Addr  string // of the broker
	Acked bool   // the broker had accepted the job
	Sent  bool   // part of the submit may have been sent; if false, the job never ran
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

// ProtocolError reports that a broker violated the protocol. The connection is closed.
type ProtocolError struct {
	Reason string
}

func (e *ProtocolError) Error() string { return "gloom: broker violated the protocol: " + e.Reason }

// PanicError is in the Notice about a handler that panicked. The run has failed with the
// panic's value as the reason.
type PanicError struct {
	ID    string // the job's id
	Value any    // what the handler panicked with
	Stack []byte
}

// Error returns a text that ends with the stack, so that every log has it.
func (e *PanicError) Error() string {
	s := fmt.Sprintf("gloom: handler panicked on job %q: %v", e.ID, e.Value)
	if len(e.Stack) > 0 {
		s += "\n" + strings.TrimRight(string(e.Stack), "\n")
	}
	return s
}
