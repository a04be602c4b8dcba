package web

import (
	"context"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
)

// Master is what requests are about: a *master.Master.
type Master interface {
	Enqueue(ctx context.Context, jobs []*master.New, key *master.Key) (ids []job.ID, replayed bool, err error)
	Status(id job.ID, peek bool) (*master.Status, error)
	Poll(ctx context.Context, id job.ID, wait time.Duration, peek bool) (st *master.Status, ended bool, err error)
	Cancel(ctx context.Context, id job.ID, force bool) error

	Register(ctx context.Context, r *master.Registration) (*master.Registered, error)
	Unregister(ctx context.Context, worker job.ID) error
	Known(worker job.ID) error
	Done(ctx context.Context, worker job.ID, r *master.Report) error
	Heartbeat(worker job.ID) (cancel []job.ID, err error)
	Pull(ctx context.Context, worker job.ID, max int, wait time.Duration) ([]job.Handout, error)

	List(f *master.Filter, limit int, cursor uint64) (*master.Page, error)
	Detail(ctx context.Context, id job.ID) (*master.Detail, error)
	Retry(ctx context.Context, id job.ID) error
	CancelAny(ctx context.Context, id job.ID) error
	Bulk(ctx context.Context, action string, f *master.Filter, limit int) (affected int, more bool, err error)
	Stats() (*master.Stats, error)
	Workers() ([]*master.WorkerView, error)
	DropWorker(ctx context.Context, id job.ID) error

	Constraints() ([]*master.ConstraintView, error)
	Constraint(id string) (*master.ConstraintView, error)
	PutConstraint(ctx context.Context, c *job.Constraint, ifMatch uint64, must bool) (v *master.ConstraintView, created bool, err error)
	DropConstraint(ctx context.Context, id string, ifMatch uint64) error

	Ready() error
}
