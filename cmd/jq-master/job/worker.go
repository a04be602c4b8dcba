package job

import "crypto/subtle"

// These are the limits of a worker.
const (
	MaxWorkerJobs  = 10_000
	MaxWorkerNames = 499 // number of globs; each needs two of the 1,000 types that a worker may serve at the broker
)

// Worker is a worker as it is registered and stored.
type Worker struct {
	ID        ID       `json:"id"`
	Name      string   `json:"name"`
	MaxJobs   int      `json:"max_jobs"`
	URL       string   `json:"url"`               // where jobs are pushed to, without /worker-job; "" if it pulls
	Host      string   `json:"host"`              // address that it registered from; "" on a unix socket
	Names     []string `json:"names"`             // globs of the jobs' names, * for any characters; never empty
	Token     string   `json:"token"`             // the token in a push, "" for none
	Heartbeat bool     `json:"heartbeat"`         // the worker counts as lost when its requests stop
	Leaving   bool     `json:"leaving,omitempty"` // it has unregistered, but its runs may still be answered
	// Owner is the hash of the token with which the worker registered, as text; "" for none. The
	// worker's requests must carry the same token, because its id is not secret.
	Owner string `json:"owner"`
	// Replaced means that it leaves because another worker has registered with its URL. Its runs end
	// if it falls silent.
	Replaced bool  `json:"replaced,omitempty"`
	Since    int64 `json:"since"` // when it registered, in milliseconds since 1970
}

// Caller identifies the worker that sends a request.
type Caller struct {
	ID    ID
	Owner string
}

// IsOwnedBy reports, in constant time, whether owner owns the worker.
func (w *Worker) IsOwnedBy(owner string) bool {
	return subtle.ConstantTimeCompare([]byte(w.Owner), []byte(owner)) == 1
}

// Pulls reports whether the worker fetches its jobs; otherwise they are pushed to it.
func (w *Worker) Pulls() bool { return w.URL == "" }

// Mode returns how the worker gets its jobs, "push" or "pull".
func (w *Worker) Mode() string {
	if w.Pulls() {
		return "pull"
	}
	return "push"
}

// Handout is a job on its way to a worker.
type Handout struct {
	*Job           // as it is once the run has started
	Deadline int64 // end of the run's timeout, without the grace, in milliseconds since 1970
}
