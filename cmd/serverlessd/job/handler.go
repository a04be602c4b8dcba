package job

import "time"

// Languages of handlers.
const (
	HTTP   = "http"
	Node   = "node"
	PHP    = "php"
	Python = "python"
	Shell  = "sh"
	Gloom  = "gloom"
)

// Languages are all that there are.
var Languages = []string{HTTP, Node, PHP, Python, Shell, Gloom}

// Handler is how the jobs of a type are run, one version of it.
type Handler struct {
	ID      string // sorts by age, as job ids do
	Jobtype string
	Time    time.Time // by the store's clock
	Source
}

// Source is what a client says about a handler. Its JSON is what the store keeps.
type Source struct {
	Lang       string  `json:"lang"`
	EID        string  `json:"eid,omitempty"`
	Before     string  `json:"before,omitempty"`
	BeforeEach string  `json:"beforeEach,omitempty"`
	Body       string  `json:"body"`
	AfterEach  string  `json:"afterEach,omitempty"`
	Method     string  `json:"method,omitempty"` // of http: POST, PUT or PATCH; "" is POST
	Options    Options `json:"options"`
}

// Options are a handler's. Zero fields take the daemon's defaults.
type Options struct {
	Batch       bool     `json:"batch,omitempty"`       // http: one request with all lines
	BatchSize   int      `json:"batchSize,omitempty"`   // jobs taken at a time
	Concurrency int      `json:"concurrency,omitempty"` // jobs of the type at one moment, per daemon
	Timeout     Duration `json:"timeout,omitempty"`     // of a job, by the wall
	CPU         Duration `json:"cpu,omitempty"`         // of a job
	Next        string   `json:"next,omitempty"`        // type that gets the data of OK
	NextFailed  string   `json:"nextFailed,omitempty"`  // type that gets the data of FAILED and abandoned ones
}
