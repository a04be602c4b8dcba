package store

import (
	"github.com/goccy/go-json"

	"gloom/cmd/jq-master/job"
)

// PutWorker implements Store.
func (r *Redis) PutWorker(w *job.Worker, f func(error)) {
	r.putField(r.keys.workers, w.ID.String(), w, f)
}

// DropWorker implements Store.
func (r *Redis) DropWorker(id job.ID, f func(error)) { r.putField(r.keys.workers, id.String(), nil, f) }

// PutConstraint implements Store.
func (r *Redis) PutConstraint(c *job.Constraint, f func(error)) {
	r.putField(r.keys.constraints, c.ID, c, f)
}

// DropConstraint implements Store.
func (r *Redis) DropConstraint(id string, f func(error)) { r.putField(r.keys.constraints, id, nil, f) }

// PutSchedule implements Store.
func (r *Redis) PutSchedule(name string, text []byte, jobs []*job.Job, f func(error)) {
	if len(jobs) == 0 {
		r.putField(r.keys.schedules, name, json.RawMessage(text), f)
		return
	}
	names, args := r.addJobs([]string{r.keys.schedules, r.keys.live}, []any{name, text}, jobs)
	r.add(&op{transition: settleScript, keys: names, args: args, done: ignoreAnswer(f)})
}

// DropSchedule implements Store.
func (r *Redis) DropSchedule(name string, f func(error)) { r.putField(r.keys.schedules, name, nil, f) }

// putField writes one field of a hash as JSON; nil removes it.
func (r *Redis) putField(hash, field string, value any, f func(error)) {
	var text []byte
	if value != nil {
		var err error
		if text, err = json.Marshal(value); err != nil {
			f(err)
			return
		}
	}
	which := putScript
	if hash != r.keys.workers && value != nil {
		which = putNewScript
	}
	r.add(&op{transition: which, keys: []string{hash}, args: []any{field, text}, done: ignoreAnswer(f)})
}
