package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"gloom/cmd/internal/door"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/runner"
	"gloom/cmd/serverlessd/store"
)

func fail(status int, code, field, format string, args ...any) *door.Refusal {
	return &door.Refusal{Status: status, Code: code, Reason: fmt.Sprintf(format, args...), Field: field}
}

// unavailable returns an error for a state that will pass, so that the client can try again.
func unavailable(code, format string, args ...any) *door.Refusal {
	return fail(http.StatusServiceUnavailable, code, "", format, args...)
}

func invalid(field, format string, args ...any) *door.Refusal {
	return fail(http.StatusBadRequest, "invalid_value", field, format, args...)
}

func missing(field, format string, args ...any) *door.Refusal {
	return fail(http.StatusBadRequest, "missing_field", field, format, args...)
}

// errorOf returns the answer for an error of the queue.
func errorOf(err error) *door.Refusal {
	var refusal *door.Refusal
	var check *runner.CheckError
	var fieldErr *schedule.FieldError
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &check):
		return fail(http.StatusBadRequest, check.Code, check.Field, "%s", check.Reason)
	case errors.As(err, &fieldErr) && fieldErr.IsMissing:
		return missing(fieldErr.Field, "%s", fieldErr.Reason)
	case errors.As(err, &fieldErr):
		return invalid(fieldErr.Field, "%s", fieldErr.Reason)
	case errors.As(err, new(*journal.AsideError)):
		return fail(http.StatusConflict, "set_aside", "id", "%v", err)
	case errors.As(err, new(*store.RefusedError)):
		return fail(http.StatusConflict, "refused", "file", "%v", err)
	}
	for _, e := range queueErrors {
		if errors.Is(err, e.err) {
			return fail(e.status, e.code, e.field, "%v", err)
		}
	}
	return fail(http.StatusInternalServerError, "internal", "", "%v", err)
}

// queueErrors holds the answers for errors of the queue. An error may wrap several of them: the
// first one counts.
var queueErrors = []struct {
	err         error
	status      int
	code, field string
}{
	{store.ErrFromFile, http.StatusConflict, "from_file", "name"},
	{store.ErrSchedules, http.StatusServiceUnavailable, "overloaded", ""},
	{runner.ErrCheckBusy, http.StatusServiceUnavailable, "overloaded", ""},
	{store.ErrRunning, http.StatusConflict, "running", ""},
	{store.ErrDone, http.StatusConflict, "done", ""},
	{store.ErrNotDone, http.StatusConflict, "not_done", ""},
	{store.ErrHeld, http.StatusConflict, "key_held", ""},
	{journal.ErrNoAsideFile, http.StatusNotFound, "unknown_file", "file"},
	{engine.ErrDamaged, http.StatusConflict, "damaged", "file"},
	{store.ErrBusy, http.StatusServiceUnavailable, "overloaded", ""},
	{store.ErrAway, http.StatusServiceUnavailable, "store_unavailable", ""},
	{journal.ErrNoSpace, http.StatusInsufficientStorage, "journal_full", ""},
	{journal.ErrFull, http.StatusServiceUnavailable, "journal_full", ""},
	{journal.ErrFailed, http.StatusServiceUnavailable, "journal_failed", ""},
	{engine.ErrDraining, http.StatusServiceUnavailable, "draining", ""},
}

func reply(w http.ResponseWriter, err error) {
	f := errorOf(err)
	if f.Status == http.StatusServiceUnavailable || f.Status == http.StatusInsufficientStorage { // these states will pass
		w.Header().Set("Retry-After", "1")
	}
	_ = answer(w, f.Status, f)
}

var jsonType = []string{"application/json"}

// answer writes JSON. It returns nil, as every method of Web does once it has answered.
func answer(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal","reason":"the answer cannot be encoded"}`)
	}
	w.Header()["Content-Type"] = jsonType
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
	return nil
}

func text(w http.ResponseWriter, s string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(s + "\n"))
	return nil
}
