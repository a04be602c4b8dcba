package master

import (
	"context"
	"time"

	"gloom/cmd/jq-master/job"
)

// Master is the queue of one namespace.
type Master struct{}

var errStarting = job.Refuse(job.Starting, "", "the master is starting")

// Enqueue takes jobs in, all or none; their ids are in the same order. With a key
// that came before with the same body, ids are those of that time.
func (m *Master) Enqueue(ctx context.Context, jobs []*New, key *Key) (ids []job.ID, replayed bool, err error) {
	return nil, false, errStarting
}

// Status returns a job's status. Unless peek, a result goes to the first who asks.
func (m *Master) Status(id job.ID, peek bool) (*Status, error) { return nil, errStarting }

// Poll waits until a job has ended, or as long as wait says.
func (m *Master) Poll(ctx context.Context, id job.ID, wait time.Duration, peek bool) (st *Status, ended bool, err error) {
	return nil, false, errStarting
}
