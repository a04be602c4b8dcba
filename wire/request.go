package wire

// Port is one of the two ports of a broker.
type Port uint8

const (
	SubmitPort Port = iota // of submitters, 9998 by default ("master")
	WorkerPort             // of workers, 9999 by default ("slave")
)

func (p Port) String() string {
	if p == WorkerPort {
		return "worker port"
	}
	return "submitter port"
}

// Verb says what a request asks for. The zero Verb asks for nothing.
type Verb uint8

const (
	Submit   Verb = iota + 1 // submitter: a new job
	Cancel                   // submitter: cancel a job
	Join                     // worker: serve a type
	Respond                  // worker: the answer to a job
	Fail                     // worker: the run has failed
	Progress                 // worker: progress of a run
	Leave                    // worker: get no more jobs
	Release                  // worker: give a job back as if never handed out
	Change                   // submitter: change a waiting job
	Attach                   // submitter: get a kept job's frames from now on
	Hello                    // both: token, name, heartbeat
	Ping                     // both
	Pong                     // both: the answer to a broker's ping
)

var verbNames = [...]string{
	"none", "submit", "cancel", "join", "respond", "fail", "progress", "leave",
	"release", "change", "attach", "hello", "ping", "pong",
}

// String returns the verb's action on the wire.
func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return verbNames[0]
}

// AllowedOn reports whether a port accepts the verb.
func (v Verb) AllowedOn(p Port) bool {
	switch v {
	case Submit, Cancel, Change, Attach:
		return p == SubmitPort
	case Join, Respond, Fail, Progress, Leave, Release:
		return p == WorkerPort
	}
	return v >= Hello && v <= Pong
}

func lookupVerb(action []byte) Verb {
	switch string(action) {
	case "submit":
		return Submit
	case "cancel":
		return Cancel
	case "join":
		return Join
	case "respond":
		return Respond
	case "fail":
		return Fail
	case "progress":
		return Progress
	case "leave":
		return Leave
	case "release":
		return Release
	case "change":
		return Change
	case "attach":
		return Attach
	case "hello":
		return Hello
	case "ping":
		return Ping
	case "pong":
		return Pong
	}
	return 0
}

// These are the limits of integers and lists. Ranges of integers begin at 0 if no minimum is given
// here; lists have at least one element.
const (
	MaxDurationMS  = 31_536_000_000 // a year: delay_ms, timeout_ms, expires_ms, age_ms
	MaxBackoffMS   = 86_400_000     // a day
	MaxKeepMS      = 86_400_000
	MaxRetries     = 1000
	MinHeartbeatMS = 100 // 0 is allowed, too: no heartbeat
	MaxHeartbeatMS = 3_600_000
	MinPrefetch    = 1
	// DefaultMaxPrefetch is the largest prefetch that a zero Decoder accepts.
	DefaultMaxPrefetch = 1000
	MaxTypes           = 1000    // the longest list types or except of a join
	MaxGroups          = 16      // of one job
	MaxHeaders         = 4 << 10 // bytes of headers as sent
)

// DefaultFailReason is the reason of a fail without one.
const DefaultFailReason = "failed by the worker"

// Request is a request of a peer. Its slices point into the payload or into the
// decoder's scratch and are valid until the next Decode. Fields that do not belong to
// Verb have the values of ResetRequest.
type Request struct {
	Verb     Verb
	ID       []byte // canonical; nil if the id of a worker's request is ignored
	Type     []byte // the type of a submit or a join, in canonical form
	Body     []byte // the body of a submit, respond or progress, as verbatim JSON
	Priority int64

	DelayMS      int64 // 0 for none, like the other durations
	TimeoutMS    int64
	BackoffMS    int64
	ExpiresMS    int64
	Retries      int // -1: absent
	Detach       bool
	NoAck        bool     // "ack":false
	WantProgress bool     // asks for progress frames; also of an attach
	AgeMS        int64    // the job is ordered as if it had been submitted that long ago
	KeepMS       int64    // how long the last frame is kept; 0 if the job is bound to its connection
	Groups       [][]byte // canonical, all different; also of a change
	Headers      []byte   // verbatim JSON object; nil: absent

	Prefetch    int  // the prefetch of a join; 0 if absent
	WantCancels bool // a join asks for cancel frames
	// Types replaces Type in a join of several types: names, and patterns in which *
	// stands for any characters. Except has names and patterns of types that the worker does
	// not serve. Both are canonical and without duplicates, or nil if absent.
	Types, Except [][]byte
	WantHeaders   bool // a join asks for headers in job frames

	// HasPriority and HasGroups report whether a change has these keys. An empty list
	// of groups removes all.
	HasPriority, HasGroups bool

	Reason  []byte // the reason of a fail, in canonical form; nil if absent
	NoRetry bool   // "retry":false
	AfterMS int64  // delay_ms of fail, release and change; -1: absent

	Token       []byte // by value, without escapes; nil if a hello has none
	Client      []byte // by value, without escapes; nil if a hello has none
	HeartbeatMS int64  // the heartbeat that a hello asks for; 0 for none
}

// emptyRequest has every key absent.
var emptyRequest = Request{Retries: -1, AfterMS: -1}

// ResetRequest makes every field of the request absent.
func ResetRequest(req *Request) { *req = emptyRequest }
