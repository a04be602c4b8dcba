package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/pack"
)

const (
	defaultSchedules = 100 // default limit of a list
	maxSchedules     = 1000
)

// scheduledFields holds the fields that the job of a schedule may have.
var scheduledFields = []string{"name", "argument", "priority", "max_retry", "keep_result", "timeout", "delay"}

// ReadScheduledJob reads the job of a schedule from JSON. An error is a *job.Fault.
func ReadScheduledJob(text json.RawMessage) (*master.NewJob, error) {
	v, fault := pack.FromJSON(text)
	if fault != nil {
		return nil, fault
	}
	n, fault := readJob(v, "job.", scheduledFields)
	if fault != nil {
		return nil, fault
	}
	return n, nil
}

// scheduleFault converts the error for an invalid schedule to a *job.Fault.
func scheduleFault(err error) error {
	var f *schedule.FieldError
	switch {
	case !errors.As(err, &f):
		return err
	case f.IsMissing:
		return job.Refuse(job.MissingField, f.Field, "%s", f.Reason)
	}
	return job.Refuse(job.InvalidValue, f.Field, "%s", f.Reason)
}

// scheduleName returns the name of the schedule in the path.
func (x *exchange) scheduleName() string {
	name := api.Name(x.r.PathValue("name"))
	var fault *job.Fault
	if errors.As(scheduleFault(schedule.CheckName(name)), &fault) {
		x.note(fault)
	}
	return name
}

// sendJSON writes a Go value, which has n bytes of schedules' jobs, as encoding/json would write it.
func (x *exchange) sendJSON(v any, n int) (int, error) {
	if err := x.reserve(n); err != nil {
		return 0, err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	packed, fault := pack.ReplyFromJSON(text)
	if fault != nil {
		return 0, fault
	}
	x.buf = append(x.buf, packed...)
	return http.StatusOK, nil
}

func (x *exchange) sendSchedule(name string) (int, error) {
	if x.fault != nil {
		return 0, x.fault
	}
	s, err := x.Master.Schedule(name)
	if err != nil {
		return 0, err
	}
	return x.sendJSON(s.View(name, time.Now()), len(s.Job))
}

func getSchedule(x *exchange) (int, error) { return x.sendSchedule(x.scheduleName()) }

func getSchedules(x *exchange) (int, error) {
	limit := x.intParam("limit", defaultSchedules, 1, maxSchedules)
	if x.fault != nil {
		return 0, x.fault
	}
	list, err := x.Master.Schedules(x.query.Get("cursor"), limit)
	if err != nil {
		return 0, err
	}
	out := struct {
		Items  []schedule.View `json:"items"`
		Cursor *string         `json:"cursor"`
	}{Items: make([]schedule.View, 0, len(list))}
	now, n := time.Now(), 0
	for _, s := range list {
		out.Items = append(out.Items, s.View(s.Name, now))
		n += len(s.Job)
	}
	if len(list) == limit {
		out.Cursor = &list[limit-1].Name
	}
	return x.sendJSON(out, n)
}

func putSchedule(x *exchange) (int, error) {
	name, body := x.scheduleName(), x.value()
	if x.fault != nil {
		return 0, x.fault
	}
	spec, err := schedule.Parse(pack.AppendJSON(nil, body), func(text json.RawMessage) error {
		_, err := ReadScheduledJob(text)
		return err
	})
	if err == nil {
		err = x.Master.PutSchedule(x.r.Context(), name, spec, false)
	}
	if err != nil {
		return 0, scheduleFault(err)
	}
	return x.sendSchedule(name)
}

func deleteSchedule(x *exchange) (int, error) {
	name := x.scheduleName()
	return answer(x, func() (int, error) { return 1, x.Master.DropSchedule(x.r.Context(), name, false) }, func(n int) object { return object{"deleted", n} })
}
