package store

import (
	"github.com/goccy/go-json"

	"gloom/cmd/jq-master/job"
)

// PutWorker implements Store.
func (r *Redis) PutWorker(id job.ID, w *job.Worker, f func(error)) {
	putField(r, r.keys.workers, id.String(), w, f)
}

// PutConstraint implements Store.
func (r *Redis) PutConstraint(id string, c *job.Constraint, f func(error)) {
	putField(r, r.keys.constraints, id, c, f)
}

// PutSchedule implements Store.
func (r *Redis) PutSchedule(name string, text []byte, jobs []*job.Job, f func(error)) {
	if len(jobs) == 0 {
		r.putText(r.keys.schedules, name, text, f)
		return
	}
	names, args := r.addJobs([]string{r.keys.schedules, r.keys.live}, []any{name, text}, jobs)
	r.add(&op{transition: settleScript, keys: names, args: args, done: ignoreAnswer(f)})
}

// putField writes one field of a hash as JSON; nil removes it.
func putField[T any](r *Redis, hash, field string, value *T, f func(error)) {
	var text []byte
	if value != nil {
		var err error
		if text, err = json.Marshal(value); err != nil {
			f(err)
			return
		}
	}
	r.putText(hash, field, text, f)
}

// putText writes one field of a hash; nil removes it.
func (r *Redis) putText(hash, field string, text []byte, f func(error)) {
	call := putScript
	if hash != r.keys.workers && text != nil {
		call = putNewScript
	}
	r.add(&op{transition: call, keys: []string{hash}, args: []any{field, text}, done: ignoreAnswer(f)})
}
