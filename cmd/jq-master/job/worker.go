package job

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"
)

// Limits of a worker.
const (
	MaxWorkerJobs  = 10_000
	MaxWorkerNames = 499 // globs; each needs two of the 1,000 types that a worker may serve at the broker
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
	Owner     Owner    `json:"owner"`             // owner of the token that registered the worker
	Since     int64    `json:"since"`             // when it registered, in milliseconds since 1970
}

// Owner is the hash of the token with which a worker registered; zero for none. The worker's
// requests must carry the same token, because its id is not secret.
type Owner [32]byte

// Equal reports whether two owners are equal, in constant time.
func (o *Owner) Equal(other *Owner) bool { return subtle.ConstantTimeCompare(o[:], other[:]) == 1 }

// MarshalText and UnmarshalText write and read an owner in base64; the zero Owner is "".
func (o Owner) MarshalText() ([]byte, error) {
	if o == (Owner{}) {
		return []byte{}, nil
	}
	return base64.RawStdEncoding.AppendEncode(nil, o[:]), nil
}

func (o *Owner) UnmarshalText(text []byte) error {
	*o = Owner{}
	if len(text) == 0 {
		return nil
	}
	b, err := base64.RawStdEncoding.DecodeString(string(text))
	if err == nil && len(b) != len(o) {
		err = fmt.Errorf("an owner has %d bytes, not %d", len(o), len(b))
	}
	copy(o[:], b)
	return err
}

// Caller identifies the worker that sends a request.
type Caller struct {
	ID    ID
	Owner Owner
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
	ID       ID
	Name     string
	Argument []byte // MessagePack
	Timeout  Span
	Attempt  int32
	Deadline int64 // end of the run's timeout, without the grace, in milliseconds since 1970
}
