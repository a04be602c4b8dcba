package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

// These are limits on a handler's options.
const (
	maxBatch   = 10_000
	maxTimeout = 24 * time.Hour
)

func (s *Web) putHandler(r *request) error {
	h := &job.Handler{Jobtype: r.jobtype}
	var err error
	if h.Method, err = method(r.query.Get("method")); err != nil {
		return err
	}
	body, releaseBuffer, err := s.read(r)
	if err != nil {
		return err
	}
	releaseBuffer() // the body must not occupy a buffer while the request waits for a store
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		if r.query.Has("lang") {
			return invalid("lang", "a handler in JSON has its language in lang, not in the query")
		}
		err = readSource(body, &h.Source)
	} else if h.Lang, h.Body = r.query.Get("lang"), string(body); h.Lang == "" {
		err = missing("lang", "the language is missing: send ?lang=, or a JSON object as application/json")
	}
	if err != nil {
		return err
	}
	if err := checkSource(&h.Source); err != nil {
		return err
	}
	if err := s.queue.PutHandler(r.Context(), h); err != nil {
		return err
	}
	return answer(r.w, http.StatusOK, map[string]any{"ok": true, "id": h.ID})
}

func method(name string) (string, error) {
	switch name {
	case "", "*":
		return "", nil
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return name, nil
	}
	return "", invalid("method", "method=%.40q: must be POST, PUT, PATCH or *", name)
}

// readSource parses a handler in JSON. Its error names the wrong field.
func readSource(body []byte, to *job.Source) error {
	var fields map[string]json.RawMessage
	err := json.Unmarshal(body, &fields)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fail(http.StatusBadRequest, "invalid_json", "body", "the handler is not JSON: %v at byte %d", err, syntax.Offset)
	} else if err != nil || fields == nil {
		return fail(http.StatusBadRequest, "invalid_json", "body", "the handler is JSON, but not an object: %s", shortText(bytes.TrimSpace(body)))
	}
	for name := range fields {
		if name == "method" {
			return invalid(name, "the method of an http handler must be in the query: ?method=PUT")
		}
		if !slices.Contains(sourceNames, name) {
			return invalid(shortText([]byte(name)), "a handler has no key %.60q; its keys are %s", name, strings.Join(sourceNames, ", "))
		}
	}
	for i, to := range []*string{&to.Lang, &to.Body, &to.Before, &to.BeforeEach, &to.AfterEach, &to.EID} { // in the order of sourceNames
		name := sourceNames[i]
		value := fields[name]
		switch required := i < 2; {
		case value != nil && string(value) != "null":
			if err := json.Unmarshal(value, to); err != nil {
				return invalid(name, "%q must be a string", name)
			}
		case required:
			return missing(name, "the handler needs %q", name)
		}
	}
	return readOptions(fields["options"], &to.Options)
}

// sourceNames holds the keys of a handler, and optionNames those of its options.
var sourceNames = []string{"lang", "body", "before", "beforeEach", "afterEach", "eid", "options"}

var optionNames = []string{"batch", "batchSize", "concurrency", "timeout", "cpu", "next", "nextFailed"}

func readOptions(value json.RawMessage, o *job.Options) error {
	if value == nil || string(value) == "null" {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil {
		return invalid("options", "options must be an object")
	}
	targets := []any{&o.Batch, &o.BatchSize, &o.Concurrency, &o.Timeout, &o.CPU, &o.Next, &o.NextFailed} // in the order of optionNames
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		// A json.Decoder would also accept keys in another case.
		i := slices.Index(optionNames, name)
		if i < 0 {
			return invalid("options", "there is no option %.60q; the options are %s", name, strings.Join(optionNames, ", "))
		}
		if err := readOption(name, fields[name], targets[i]); err != nil {
			return err
		}
	}
	return nil
}

func readOption(name string, value json.RawMessage, to any) error {
	field := "options." + name
	if err := json.Unmarshal(value, to); errors.As(err, new(*json.UnmarshalTypeError)) {
		return invalid(field, "%s: %s has the wrong type", field, shortText(value))
	} else if err != nil {
		return invalid(field, "%s: %v", field, err)
	}
	switch v := to.(type) {
	case *int:
		if *v < 1 || *v > maxBatch {
			return invalid(field, "%s %d: must be from 1 to %d", field, *v, maxBatch)
		}
	case *job.Duration:
		if *v <= 0 || time.Duration(*v) > maxTimeout {
			return invalid(field, "%s %s: must be from 1ms to 1d", field, *v)
		}
	case *string:
		if err := job.CheckType(*v); err != nil {
			return invalid(field, "%s: %v", field, err)
		}
	}
	return nil
}

// checkSource returns an error if no store could keep a source unchanged.
func checkSource(s *job.Source) error {
	for name, text := range map[string]string{"body": s.Body, "before": s.Before, "beforeEach": s.BeforeEach, "afterEach": s.AfterEach, "eid": s.EID} {
		if !utf8.ValidString(text) {
			return invalid(name, "%s is not valid UTF-8", name)
		}
	}
	if len(s.EID) > job.MaxType {
		return invalid("eid", "eid has %d bytes; at most %d are allowed", len(s.EID), job.MaxType)
	}
	return nil
}

func shortText(b []byte) string {
	if len(b) > 40 {
		return string(b[:40]) + "…"
	}
	return string(b)
}

func (s *Web) deleteHandler(r *request) error {
	n, err := s.queue.DeleteHandler(r.Context(), r.jobtype)
	if err != nil {
		return err
	}
	if n == 0 {
		return unknownHandler(r.jobtype)
	}
	return answer(r.w, http.StatusOK, map[string]any{"ok": true, "deleted": n})
}

func unknownHandler(jobtype string) error {
	return fail(http.StatusNotFound, "unknown_handler", "type", "there is no handler for %s", jobtype)
}

// handlerView is a handler as it is shown in an answer.
type handlerView struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	DT   string `json:"dt"`
	job.Source
}

func (s *Web) getHandler(r *request) error {
	h, err := s.queue.Handler(r.Context(), r.jobtype, r.query.Get("id"))
	if errors.Is(err, store.ErrUnknown) {
		return unknownHandler(r.jobtype)
	}
	if err != nil {
		return err
	}
	view := handlerView{h.ID, r.name, formatTime(h.Time), h.Source}
	view.Method = cmp.Or(view.Method, http.MethodPost)
	return answer(r.w, http.StatusOK, view)
}

// versionView is a version of a handler without its source, as it is shown in an answer.
type versionView struct {
	Type  string `json:"type,omitempty"` // client-type, in lists of all types
	ID    string `json:"id"`
	DT    string `json:"dt"`
	Lang  string `json:"lang"`
	Bytes int64  `json:"bytes"`
}

// versions lists the kept versions of a type's handler, newest first.
func (s *Web) versions(r *request) error {
	list, err := s.queue.Versions(r.Context(), r.jobtype)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return unknownHandler(r.jobtype)
	}
	out := make([]versionView, 0, len(list))
	for _, v := range list {
		out = append(out, versionView{ID: v.ID, DT: formatTime(v.Time), Lang: v.Lang, Bytes: v.Bytes})
	}
	return answer(r.w, http.StatusOK, map[string]any{"versions": out})
}

// handlers lists the newest handler of each type, by type, as far as this daemon knows.
func (s *Web) handlers(r *request) error {
	limit, err := r.limit()
	if err != nil {
		return err
	}
	handlers := s.queue.Handlers()
	out := struct {
		Items  []versionView `json:"items"`
		Cursor *string       `json:"cursor"`
	}{Items: []versionView{}}
	for _, jobtype := range slices.Sorted(maps.Keys(handlers)) {
		if jobtype <= r.query.Get("cursor") || !strings.Contains(jobtype, r.query.Get("part")) || !r.grant.Covers(jobtype) {
			continue
		}
		if len(out.Items) == limit {
			out.Cursor = &out.Items[limit-1].Type
			break
		}
		h := handlers[jobtype]
		out.Items = append(out.Items, versionView{Type: jobtype, ID: h.ID, DT: formatTime(h.Time), Lang: h.Lang, Bytes: int64(len(h.Body))})
	}
	return answer(r.w, http.StatusOK, out)
}
