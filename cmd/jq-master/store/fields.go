package store

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/goccy/go-json"

	"gloom/cmd/internal/unique"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

// fieldNames holds the fields of a job's hash, in the order in which decode expects them. Numbers
// are decimal, times are milliseconds since 1970, the timeout is in seconds with up to three
// decimals, and MessagePack is raw. A field that is missing or empty is zero; if a pusher can set
// it, it has its default.
var fieldNames = []string{
	"name", "argument", "priority", "max_retry", "timeout", "keep_result", "enqueued",
	"seq", "state", "rev", "attempt", "retries", "due", "worker", "started", "deadline", "finished",
	"result", "error", "message", "reason", "told", "attempts", "forget", "drop",
	"unique", "while", "until", "replaces", "replaces_rev",
}

// defaultJob has the values of the fields that the hash of a new job lacks.
var defaultJob = job.Job{Attributes: job.Attributes{MaxRetry: job.DefaultMaxRetry, Timeout: job.Seconds(job.DefaultTimeout)}}

// appendChanges appends the fields in which j differs from old. It leaves out seq, and it leaves
// out state, rev and attempt, because each transition writes these.
func appendChanges(args []any, old, j *job.Job) []any {
	args = appendChange(args, "name", old.Name, j.Name)
	args = appendBytes(args, "argument", old.Argument, j.Argument)
	args = appendChange(args, "priority", old.Priority, j.Priority)
	args = appendChange(args, "max_retry", old.MaxRetry, j.MaxRetry)
	if old.Timeout != j.Timeout {
		args = append(args, "timeout", strconv.FormatFloat(j.Timeout.Seconds(), 'f', -1, 64))
	}
	args = appendChange(args, "keep_result", old.KeepResult, j.KeepResult)
	args = appendChange(args, "enqueued", old.Enqueued, j.Enqueued)
	if old.Due != 0 || j.Due != 0 { // not only if it differs: the master may have corrected it when it read the job
		args = append(args, "due", j.Due)
	}
	args = appendChange(args, "retries", old.Retries, j.Retries)
	if old.Worker != j.Worker {
		args = append(args, "worker", j.Worker.String())
	}
	args = appendChange(args, "started", old.Started, j.Started)
	args = appendChange(args, "deadline", old.Deadline, j.Deadline)
	args = appendChange(args, "finished", old.Finished, j.Finished)
	args = appendBytes(args, "result", old.Result, j.Result)
	args = appendBytes(args, "error", old.Error, j.Error)
	args = appendChange(args, "message", old.Message, j.Message)
	args = appendChange(args, "reason", old.Reason.String(), j.Reason.String())
	args = appendChange(args, "told", old.ReportedAt, j.ReportedAt)
	if !slices.Equal(old.Attempts, j.Attempts) {
		text, err := json.Marshal(j.Attempts)
		if err != nil {
			panic(err) // numbers and strings
		}
		args = append(args, "attempts", text)
	}
	if u := j.Unique; u != nil && old.Unique == nil {
		args = append(args, "unique", u.Key, "while", u.Period.String(), "until", u.Until)
		if !u.Replaces.IsZero() {
			args = append(args, "replaces", u.Replaces.String(), "replaces_rev", u.ReplacesRev)
		}
	}
	return args
}

func appendChange[T comparable](args []any, name string, old, value T) []any {
	if old == value {
		return args
	}
	return append(args, name, value)
}

func appendBytes(args []any, name string, old, value []byte) []any {
	if bytes.Equal(old, value) {
		return args
	}
	return append(args, name, value)
}

// decode returns the job with these values of fieldNames.
func decode(id job.ID, values []any) (j *job.Job, forgetAt, dropAt int64, err error) {
	text := make([]string, len(fieldNames))
	for i, v := range values {
		text[i], _ = v.(string)
	}
	next := 0
	word := func() string { next++; return text[next-1] }
	raw := func() []byte {
		if s := word(); s != "" {
			return []byte(s)
		}
		return nil
	}
	orNumber := func(bits int, missing int64) int64 {
		s := word()
		if s == "" {
			return missing
		}
		n, e := strconv.ParseInt(s, 10, bits)
		if e != nil && err == nil {
			err = fmt.Errorf("job %s: %s: %w", id, fieldNames[next-1], e)
		}
		return n
	}
	number := func(bits int) int64 { return orNumber(bits, 0) }
	noteFault := func(s string) {
		if err == nil {
			err = fmt.Errorf("job %s: %s: %q", id, fieldNames[next-1], s)
		}
	}
	j = &job.Job{ID: id}
	j.Name, j.Argument = word(), raw()
	j.Priority = int32(number(32))
	j.MaxRetry, j.Timeout = int32(orNumber(32, job.DefaultMaxRetry)), defaultJob.Timeout
	if s := word(); s != "" {
		n, e := strconv.ParseFloat(s, 64)
		if e != nil || !(n > 0 && n <= job.MaxTimeout) {
			noteFault(s)
		} else {
			j.Timeout = job.Seconds(n)
		}
	}
	j.KeepResult, j.Enqueued, j.Seq = word() == "1", number(64), uint64(number(64))
	var ok bool
	if s := word(); s != "" {
		if j.State, ok = job.ParseState(s); !ok {
			noteFault(s)
		}
	} else {
		noteFault(s)
	}
	j.Rev = uint32(number(33))
	j.Attempt, j.Retries, j.Due = int32(number(32)), int32(number(32)), number(64)
	if s := word(); s != "" {
		if j.Worker, ok = job.ParseID(s); !ok {
			noteFault(s)
		}
	}
	j.Started, j.Deadline, j.Finished = number(64), number(64), number(64)
	j.Result, j.Error, j.Message = raw(), raw(), word()
	if s := word(); s != "" {
		if j.Reason, ok = job.ParseReason(s); !ok {
			noteFault(s)
		}
	}
	j.ReportedAt = number(64)
	if s := word(); s != "" {
		if e := json.Unmarshal([]byte(s), &j.Attempts); e != nil {
			noteFault(s)
		}
	}
	forgetAt, dropAt = number(64), number(64)
	key, period, until, replaces, rev := word(), word(), number(64), word(), number(33)
	if key != "" {
		u := &job.Unique{Key: key, Until: until, ReplacesRev: uint32(rev)}
		j.Unique = u
		if u.Period, ok = unique.ParsePeriod(period); !ok {
			noteFault(period)
		}
		if replaces != "" {
			if u.Replaces, ok = job.ParseID(replaces); !ok {
				noteFault(replaces)
			}
		}
	}
	switch fault := pack.Check(j.Argument); {
	case err != nil:
	case j.Name == "" || len(j.Name) > job.MaxNameBytes:
		err = fmt.Errorf("job %s: name: %q", id, j.Name)
	case fault != nil || pack.Value(j.Argument).Kind() != pack.Map:
		err = fmt.Errorf("job %s: argument: %d bytes that are not a map", id, len(j.Argument))
	case j.Seq == 0 || j.Seq > 1<<53 || j.Timeout <= 0 || j.Retries < 0 || j.Attempt < 0:
		err = fmt.Errorf("job %s: seq %d, timeout %d, retries %d, attempt %d: one of them is invalid", id, j.Seq, j.Timeout, j.Retries, j.Attempt)
	}
	for _, raw := range [][]byte{j.Result, j.Error} {
		if err == nil && raw != nil {
			if fault := pack.Check(raw); fault != nil {
				err = fmt.Errorf("job %s: result or error: %w", id, fault)
			}
		}
	}
	return j, forgetAt, dropAt, err
}

// keyValue returns the value that is stored for an idempotency key: the body's hash and the ids.
func keyValue(k *Key, jobs []*job.Job) string {
	b := append(make([]byte, 0, len(k.Body)+16*len(jobs)), k.Body[:]...)
	for _, j := range jobs {
		b = append(b, j.ID[:]...)
	}
	return string(b)
}

// isKeyValue reports whether a text may be a value that keyValue has made.
func isKeyValue(text string) bool { return len(text) >= 32+16 && len(text)%16 == 0 }

// parseKeyValue returns the ids in a value that keyValue has made, or ErrKeyReused if the value was
// made for another body.
func parseKeyValue(k *Key, text string) ([]job.ID, error) {
	n := len(k.Body)
	if text[:n] != string(k.Body[:]) {
		return nil, ErrKeyReused
	}
	ids := make([]job.ID, (len(text)-n)/16)
	for i := range ids {
		copy(ids[i][:], text[n+16*i:])
	}
	return ids, nil
}
