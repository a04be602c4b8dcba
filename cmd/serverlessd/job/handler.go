package job

import "time"

// A handler is written in one of these languages.
const (
	HTTP   = "http"
	Node   = "node"
	PHP    = "php"
	Python = "python"
	Shell  = "sh"
	Gloom  = "gloom"
)

// Languages holds all languages of handlers.
var Languages = []string{HTTP, Node, PHP, Python, Shell, Gloom}

// Handler is a version of a handler, which says how the jobs of a type are run.
type Handler struct {
	ID      string // later versions have larger ids, as with jobs
	Jobtype string
	Time    time.Time // when the version was added, by the store's clock
	Source
}

// Source is a handler as a client sends it. Answers and the store contain it as JSON.
type Source struct {
	Lang       string  `json:"lang"`
	EID        string  `json:"eid"`
	Before     string  `json:"before"`
	BeforeEach string  `json:"beforeEach"`
	Body       string  `json:"body"`
	AfterEach  string  `json:"afterEach"`
	Method     string  `json:"method"` // of http: POST, PUT or PATCH; "" is POST
	Options    Options `json:"options"`
}

// Options holds the options of a handler. A zero field stands for the daemon's default.
type Options struct {
	Batch       bool     `json:"batch,omitempty"`       // for http: send all lines in one request
	BatchSize   int      `json:"batchSize,omitempty"`   // number of jobs taken at a time
	Concurrency int      `json:"concurrency,omitempty"` // jobs of the type at a time, per daemon
	Timeout     Duration `json:"timeout,omitempty"`     // maximum run time of a job
	CPU         Duration `json:"cpu,omitempty"`         // maximum processor time of a job
	Next        string   `json:"next,omitempty"`        // the type that gets the data of jobs that are OK
	NextFailed  string   `json:"nextFailed,omitempty"`  // the type that gets the data of failed and abandoned jobs
}
