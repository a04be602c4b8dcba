package job

import (
	"fmt"
	"time"
)

// Code is the stable name of an error, and the HTTP status of the replies that have it.
type Code struct {
	Name   string
	Status int
}

func (c Code) String() string { return c.Name }

// Each Fault has one of these codes.
var (
	InvalidBody  = Code{"invalid_body", 400}
	InvalidType  = Code{"invalid_type", 400}
	MissingField = Code{"missing_field", 400}
	InvalidValue = Code{"invalid_value", 400}

	Unauthorized = Code{"unauthorized", 401}
	Forbidden    = Code{"forbidden", 403}

	NotFound          = Code{"not_found", 404} // no such path
	UnknownJob        = Code{"unknown_job", 404}
	UnknownWorker     = Code{"unknown_worker", 404}
	UnknownConstraint = Code{"unknown_constraint", 404}
	UnknownSchedule   = Code{"unknown_schedule", 404}

	MethodNotAllowed = Code{"method_not_allowed", 405}
	NotAcceptable    = Code{"not_acceptable", 406}
	PollTimeout      = Code{"timeout", 408} // the body has the job's status

	NotCancelable = Code{"not_cancelable", 409}
	NotAssigned   = Code{"not_assigned", 409}
	WrongState    = Code{"wrong_state", 409} // of the operators' actions
	FromFile      = Code{"from_file", 409}   // a schedule from a file can only be changed in the file

	PreconditionFailed = Code{"precondition_failed", 412}
	TooLarge           = Code{"too_large", 413}
	UnsupportedMedia   = Code{"unsupported_media_type", 415}
	KeyReused          = Code{"idempotency_key_reused", 422}

	Overloaded       = Code{"overloaded", 503}
	StoreUnavailable = Code{"store_unavailable", 503}
	Standby          = Code{"standby", 503}
	Starting         = Code{"starting", 503}
	Draining         = Code{"draining", 503}
)

// Fault is an error for the sender of a request.
type Fault struct {
	Code       Code
	Reason     string        // a text for people, which names the offending value and the limit
	Field      string        // the field concerned, "" for none
	RetryAfter time.Duration // when to try again after a 503; 0: not given
}

func (f *Fault) Error() string {
	if f.Field != "" {
		return f.Code.Name + ": " + f.Field + ": " + f.Reason
	}
	return f.Code.Name + ": " + f.Reason
}

// Refuse returns a Fault whose reason is formatted as by fmt.Sprintf.
func Refuse(code Code, field, format string, args ...any) *Fault {
	return &Fault{Code: code, Field: field, Reason: fmt.Sprintf(format, args...)}
}
