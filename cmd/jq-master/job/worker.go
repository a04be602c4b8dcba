package job

// Limits of a worker.
const (
	MaxWorkerJobs  = 10_000
	MaxWorkerNames = 499 // globs; each is two of the 1,000 types that a broker's worker may have
)

// Worker is a worker as it is registered and stored.
type Worker struct {
	ID        ID       `json:"id"`
	Name      string   `json:"name"`
	MaxJobs   int      `json:"max_jobs"`
	URL       string   `json:"url"`               // where jobs are pushed to, without /worker-job; "" when it pulls
	Host      string   `json:"host"`              // address that it registered from; "" on a unix socket
	Names     []string `json:"names"`             // globs of the jobs' names, * for any characters; never empty
	Token     string   `json:"token"`             // what a push carries, "" for none
	Heartbeat bool     `json:"heartbeat"`         // it is lost when nothing comes from it
	Leaving   bool     `json:"leaving,omitempty"` // unregistered, with runs that may still be answered
	Since     int64    `json:"since"`             // registered, in milliseconds since 1970
}

// Pulls reports whether the worker asks for its jobs.
func (w *Worker) Pulls() bool { return w.URL == "" }

// Handout is a job on its way to a worker.
type Handout struct {
	ID       ID
	Name     string
	Argument []byte // MessagePack
	Timeout  Span
	Attempt  int32
	Deadline int64 // of the run, grace left out, in milliseconds since 1970
}
