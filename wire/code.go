package wire

// Code is the kind of an error, with a stable name. The zero Code means no error.
type Code uint8

// The codes. The comments say when a peer sees them.
const (
	MissingField  Code = iota + 1 // a required key is missing
	InvalidType                   // a value of the wrong kind
	InvalidValue                  // a value of the right kind, but out of range
	InvalidAction                 // a verb of the other port
	UnknownAction                 // a verb that does not exist
	InvalidState                  // not allowed in this state, such as a respond without a job
	IDExists                      // the id is held by a job that has not ended
	UnknownID                     // there is no such job, or it is not this peer's
	InvalidJSON                   // not JSON, not UTF-8, or nested too deep
	SizeError                     // a frame longer than the limit
	Forbidden                     // the token lacks the scope or the type
	Unauthorized                  // no token, or a wrong one
	Overloaded                    // a limit on jobs, bytes or connections
	Draining                      // the broker is stopping
	JobFailed                     // an accepted job ended without an answer
	Expired                       // an accepted job passed its deadline
	Cancelled                     // an accepted job was cancelled by another client
	TakenOver                     // another connection attached to this job
)

// ConnEffect says what an error does to the connection on which it is sent.
type ConnEffect uint8

const (
	// StaysOpen leaves the connection as it was.
	StaysOpen ConnEffect = iota
	// MayClose leaves the connection open, or closes it once the error is written; a
	// client must handle both.
	MayClose
	// Closes closes the connection once the error is written.
	Closes
)

// codeInfo says what an error with a code means for its connection and its job.
type codeInfo struct {
	name       string
	connEffect ConnEffect
	namesJob   bool // the error is always about one job, whose id it carries
	endsJob    bool // the error ends the accepted job whose id it carries
}

// codes is the table of errors, which the broker and clients share.
var codes = [...]codeInfo{
	0:             {name: "none"},
	MissingField:  {name: "missing_field"},
	InvalidType:   {name: "invalid_type"},
	InvalidValue:  {name: "invalid_value"},
	InvalidAction: {name: "invalid_action"},
	UnknownAction: {name: "unknown_action"},
	InvalidState:  {name: "invalid_state"},
	IDExists:      {name: "id_exists", namesJob: true},
	UnknownID:     {name: "unknown_id", namesJob: true},
	InvalidJSON:   {name: "invalid_json", connEffect: MayClose},
	SizeError:     {name: "size_error", connEffect: Closes},
	Forbidden:     {name: "forbidden"},
	Unauthorized:  {name: "unauthorized", connEffect: Closes},
	Overloaded:    {name: "overloaded", connEffect: MayClose},
	Draining:      {name: "draining", endsJob: true},
	JobFailed:     {name: "job_failed", namesJob: true, endsJob: true},
	Expired:       {name: "expired", namesJob: true, endsJob: true},
	Cancelled:     {name: "cancelled", namesJob: true, endsJob: true},
	TakenOver:     {name: "taken_over", namesJob: true},
}

func (c Code) info() *codeInfo {
	if int(c) < len(codes) {
		return &codes[c]
	}
	return &codes[0]
}

// String returns the code's name on the wire, such as "missing_field".
func (c Code) String() string { return c.info().name }

// ConnEffect returns what the error does to the connection.
func (c Code) ConnEffect() ConnEffect { return c.info().connEffect }

// NamesJob reports whether the error is always about one job and carries its
// id. Other codes carry an id when the refused request had a readable one.
func (c Code) NamesJob() bool { return c.info().namesJob }

// EndsJob reports whether the error, sent with the id of an accepted job, is
// that job's last frame. Draining also refuses submits that were never accepted.
func (c Code) EndsJob() bool { return c.info().endsJob }

// Codes returns every code, in the order of the table.
func Codes() []Code {
	list := make([]Code, 0, len(codes)-1)
	for c := range codes[1:] {
		list = append(list, Code(c+1))
	}
	return list
}

// ParseCode finds a code by its name on the wire. It returns zero and
// false for an unknown name: later brokers may have more codes.
func ParseCode(name string) (Code, bool) {
	for c := range codes[1:] {
		if codes[c+1].name == name {
			return Code(c + 1), true
		}
	}
	return 0, false
}

// Error is why a message is refused. It is sent as {"error":…,"reason":…,"id":…}.
type Error struct {
	Code   Code
	Reason string // for people: lower case, never empty, valid UTF-8, unescaped
	ID     []byte // canonical id of the job concerned, nil if there is none
}

func (e *Error) Error() string { return e.Code.String() + ": " + e.Reason }
