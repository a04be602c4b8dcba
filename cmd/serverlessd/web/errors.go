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

// apiError is an error as it is shown in an answer.
type apiError struct {
	Code   string `json:"error"`
	Reason string `json:"reason"`
	Field  string `json:"field,omitempty"`
	status int
	after  int // Retry-After in seconds; 0: none
}

func (f *apiError) Error() string { return f.Code + ": " + f.Reason }

func fail(status int, code, field, format string, args ...any) *apiError {
	return &apiError{Code: code, Reason: fmt.Sprintf(format, args...), Field: field, status: status}
}

// busy returns an error that will pass.
func busy(code, format string, args ...any) *apiError {
	f := fail(http.StatusServiceUnavailable, code, "", format, args...)
	f.after = 1
	return f
}

func invalid(field, format string, args ...any) *apiError {
	return fail(http.StatusBadRequest, "invalid_value", field, format, args...)
}

func missing(field, format string, args ...any) *apiError {
	return fail(http.StatusBadRequest, "missing_field", field, format, args...)
}

// errorOf returns the answer for an error of the queue.
func errorOf(err error) *apiError {
	var f *apiError
	var check *runner.CheckError
	var refusal *door.Refusal
	var wrong *schedule.Fault
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &refusal):
		f = fail(refusal.Status, refusal.Code, refusal.Field, "%s", refusal.Reason)
		if f.status == http.StatusServiceUnavailable {
			f.after = 1
		}
		return f
	case errors.As(err, &check):
		return fail(http.StatusBadRequest, check.Code, check.Field, "%s", check.Reason)
	case errors.As(err, &wrong) && wrong.Missing:
		return missing(wrong.Field, "%s", wrong.Reason)
	case errors.As(err, &wrong):
		return invalid(wrong.Field, "%s", wrong.Reason)
	case errors.Is(err, store.ErrFromFile):
		return fail(http.StatusConflict, "from_file", "name", "%v", err)
	case errors.Is(err, store.ErrSchedules):
		return busy("overloaded", "%v", err)
	case errors.Is(err, runner.ErrCheckBusy):
		return busy("overloaded", "%v", err)
	case errors.Is(err, store.ErrRunning):
		return fail(http.StatusConflict, "running", "", "%v", err)
	case errors.Is(err, store.ErrDone):
		return fail(http.StatusConflict, "done", "", "%v", err)
	case errors.Is(err, store.ErrNotDone):
		return fail(http.StatusConflict, "not_done", "", "%v", err)
	case errors.Is(err, store.ErrHeld):
		return fail(http.StatusConflict, "key_held", "", "%v", err)
	case errors.Is(err, journal.ErrNoAside):
		return fail(http.StatusNotFound, "unknown_file", "file", "%v", err)
	case errors.Is(err, engine.ErrDamaged):
		return fail(http.StatusConflict, "damaged", "file", "%v", err)
	case errors.As(err, new(*store.RefusedError)):
		return fail(http.StatusConflict, "refused", "file", "%v", err)
	case errors.Is(err, store.ErrAway):
		return busy("store_unavailable", "%v", err)
	case errors.Is(err, journal.ErrNoSpace):
		f := busy("journal_full", "%v", err)
		f.status = http.StatusInsufficientStorage
		return f
	case errors.Is(err, journal.ErrFull):
		return busy("journal_full", "%v", err)
	case errors.Is(err, journal.ErrFailed):
		return busy("journal_failed", "%v", err)
	case errors.Is(err, engine.ErrDraining), errors.Is(err, journal.ErrClosed):
		return busy("draining", "the daemon is stopping and takes no more jobs")
	}
	return fail(http.StatusInternalServerError, "internal", "", "%v", err)
}

func reply(w http.ResponseWriter, err error) {
	f := errorOf(err)
	if f.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.after))
	}
	answer(w, f.status, f)
}

// answer writes JSON.
func answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal","reason":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

func text(w http.ResponseWriter, s string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(s + "\n"))
	return nil
}
