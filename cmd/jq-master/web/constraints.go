package web

import (
	"bytes"
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/matcher"
	"gloom/cmd/jq-master/pack"
)

const maxPointer = 1000 // bytes

// ReadConstraint reads a constraint from a map. The map may also have the keys of replies.
func ReadConstraint(v pack.Value, id string) (*job.Constraint, *job.Fault) {
	return readConstraint(v, id, slices.Concat(constraintFields, []string{"id", "matching", "blocked", "running", "persisted"}))
}

var constraintFields = []string{"match", "rate", "burst", "concurrency", "per", "enabled"}

func readConstraint(v pack.Value, id string, fields []string) (*job.Constraint, *job.Fault) {
	f := readStrict(v, "", fields...)
	match, _ := matcherOf(&f, "match")
	constraint := &job.Constraint{
		ID: id, Match: bytes.Clone(match),
		Rate:        f.numberAbove("rate", broker.MaxRate, 0),
		Burst:       f.integer("burst", 1, broker.MaxBurst, 0),
		Concurrency: f.integer("concurrency", 0, broker.MaxConcurrency, -1),
		Enabled:     f.boolean("enabled", true),
	}
	switch rate := f.value("rate"); {
	case rate == nil && constraint.Concurrency < 0:
		f.refuse(job.MissingField, "rate", "or concurrency is required, or both")
	case rate == nil && constraint.Burst > 0:
		f.refuse(job.InvalidValue, "burst", "needs a rate")
	case constraint.Rate > 0 && constraint.Burst == 0:
		constraint.Burst = int64(min(max(1, math.Ceil(constraint.Rate)), broker.MaxBurst))
	}
	if per := f.checkKind("per", f.value("per"), pack.String); per != nil {
		constraint.Per = string(per.Bytes())
		if len(constraint.Per) > maxPointer {
			f.refuse(job.InvalidValue, "per", "must have at most %d bytes, but has %d", maxPointer, len(constraint.Per))
		} else if _, fault := matcher.ParsePointer(constraint.Per); fault != nil && f.fault == nil {
			f.fault = fault
			f.fault.Field = "per"
			f.fault.Reason = "per " + fault.Reason
		}
	}
	return constraint, f.fault
}

// constraintID returns the id of the constraint in the path.
func (x *exchange) constraintID() string {
	id := cmp.Or(api.Name(x.r.PathValue("id")), "test") // the path of "test" has no id
	if reason := nameError(id, job.MaxConstraintID); reason != "" {
		x.noteFault(job.InvalidValue, "id", "the id of a constraint %s", reason)
	}
	return id
}

// ifMatch returns the version in the If-Match header, 0 for any version. mustExist says that the
// constraint must exist.
func (x *exchange) ifMatch() (version uint64, mustExist bool) {
	text := strings.TrimSpace(x.r.Header.Get("If-Match"))
	if text == "" || text == "*" {
		return 0, text != ""
	}
	version, err := strconv.ParseUint(strings.Trim(text, `"`), 10, 64)
	if err != nil || version == 0 {
		x.noteFault(job.PreconditionFailed, "If-Match", "If-Match must be * or an ETag of the constraint, not %.40q", text)
	}
	return version, true
}

func constraintObject(v *master.ConstraintView) object {
	var concurrency, blocked any
	if v.Concurrency >= 0 {
		concurrency = v.Concurrency
	}
	if v.Blocked >= 0 {
		blocked = v.Blocked
	}
	return object{
		"id", v.ID, "match", v.Match, "rate", orNull(v.Rate), "burst", orNull(v.Burst), "concurrency", concurrency, "per", orNull(v.Per),
		"enabled", v.Enabled, "matching", v.Matching, "blocked", blocked, "running", v.Running, "persisted", v.Persisted,
	}
}

func (x *exchange) sendConstraint(status int, v *master.ConstraintView, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	x.w.Header().Set("ETag", strconv.Quote(strconv.FormatUint(v.Version, 10)))
	x.object(constraintObject(v)...)
	return status, nil
}

func getConstraints(x *exchange) (int, error) {
	return answer(x, x.Master.Constraints, func(views []*master.ConstraintView) object {
		return object{"constraints", objectsOf(views, constraintObject)}
	})
}

func getConstraint(x *exchange) (int, error) {
	id := x.constraintID()
	if x.fault != nil {
		return 0, x.fault
	}
	v, err := x.Master.Constraint(id)
	return x.sendConstraint(http.StatusOK, v, err)
}

func putConstraint(x *exchange) (int, error) {
	id := x.constraintID()
	version, must := x.ifMatch()
	body := x.value()
	if x.fault != nil {
		return 0, x.fault
	}
	c, fault := readConstraint(body, id, constraintFields)
	if fault != nil {
		return 0, fault
	}
	v, created, err := x.Master.PutConstraint(x.r.Context(), c, version, must)
	if created {
		return x.sendConstraint(http.StatusCreated, v, err)
	}
	return x.sendConstraint(http.StatusOK, v, err)
}

func deleteConstraint(x *exchange) (int, error) {
	id := x.constraintID()
	version, _ := x.ifMatch()
	return x.act(func() error { return x.Master.DropConstraint(x.r.Context(), id, version) })
}

func testConstraint(x *exchange) (int, error) {
	f := x.form("match", "job")
	_, m := matcherOf(&f, "match")
	job := f.required("job", pack.Map)
	if f.fault != nil {
		return 0, f.fault
	}
	j := readStrict(job, "job.", jobFields...)
	a := readAttributes(&j).Attributes
	if a.Argument = j.checkKind("argument", j.value("argument"), pack.Map); a.Argument == nil {
		a.Argument = []byte{0x80}
	}
	if j.fault != nil {
		return 0, j.fault
	}
	x.object("matches", m.Match(&a))
	return http.StatusOK, nil
}
