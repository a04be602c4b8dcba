package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"gloom/cmd/internal/schedule"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

// scheduleKey returns the key of the schedule in the path. If the schedule exists, the token must
// cover the type of its jobs.
func (s *Web) scheduleKey(r *request) (key schedule.Key, err error) {
	key = schedule.Key{Client: r.client, Name: r.name}
	if err := schedule.CheckName(r.name); err != nil {
		return key, err
	}
	n, _, err := s.queue.Schedule(r.Context(), key)
	if err == nil {
		err = r.coversSchedule(n)
	}
	return key, err
}

func (r *request) coversSchedule(n store.NamedSchedule) error {
	name := "*" // nil if it cannot be read
	if n.Schedule != nil {
		if line, err := job.ParseScheduled(n.Job, 1<<30); err == nil {
			name = line.Type
		}
	}
	return r.covers(job.Jobtype(r.client, name))
}

func unknownSchedule(name string) error {
	return fail(http.StatusNotFound, "unknown_schedule", "name", "there is no schedule %.60q", name)
}

func (s *Web) putSchedule(r *request) error {
	key, err := s.scheduleKey(r)
	if err != nil && !errors.Is(err, store.ErrUnknown) {
		return err
	}
	body, releaseBuffer, err := s.read(r)
	if err != nil {
		return err
	}
	releaseBuffer() // do not keep the buffer while waiting for a store
	spec, err := schedule.Parse(body, func(text json.RawMessage) error {
		line, err := job.ParseScheduled(text, s.opt.MaxLineBytes)
		if err == nil {
			err = r.covers(job.Jobtype(r.client, line.Type))
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.queue.PutSchedule(r.Context(), key, spec); err != nil {
		return err
	}
	return s.showSchedule(r, key)
}

func (s *Web) getSchedule(r *request) error {
	key, err := s.scheduleKey(r)
	if err != nil && !errors.Is(err, store.ErrUnknown) {
		return err
	}
	return s.showSchedule(r, key)
}

func (s *Web) showSchedule(r *request, key schedule.Key) error {
	n, now, err := s.queue.Schedule(r.Context(), key)
	if errors.Is(err, store.ErrUnknown) {
		return unknownSchedule(key.Name)
	}
	if err == nil && n.Schedule == nil {
		err = fail(http.StatusInternalServerError, "internal", "name", "the store's schedule %.60q cannot be read; set it again, or delete it", key.Name)
	}
	if err != nil {
		return err
	}
	return answer(r.w, http.StatusOK, n.View(key.Name, now))
}

func (s *Web) deleteSchedule(r *request) error {
	key, err := s.scheduleKey(r)
	if err == nil {
		err = s.queue.DropSchedule(r.Context(), key)
	}
	if errors.Is(err, store.ErrUnknown) {
		return unknownSchedule(key.Name)
	}
	if err != nil {
		return err
	}
	return answer(r.w, http.StatusOK, map[string]any{"deleted": 1})
}

// scheduleView is a schedule as it is shown in a list. In a list for all clients, it also has the
// name of its client.
type scheduleView struct {
	Client string `json:"client,omitempty"`
	schedule.View
}

// schedules lists the schedules of a client, or of all clients. The cursor is NAME or, for all
// clients, CLIENT/NAME.
func (s *Web) schedules(r *request) error {
	after := schedule.Key{Client: r.client, Name: r.query.Get("cursor")}
	if r.client == "" {
		after.Client, after.Name, _ = strings.Cut(after.Name, "/")
	} else if !r.grant.Covers(job.Jobtype(r.client, "*")) {
		return fail(http.StatusForbidden, "forbidden", "type", "the token does not cover all types of client %s", r.client)
	}
	if r.client == "" && !r.grant.Covers("*") {
		return fail(http.StatusForbidden, "forbidden", "type", "the token does not cover all types; ask for the schedules of a client")
	}
	limit, err := r.limit()
	if err != nil {
		return err
	}
	list, now, err := s.queue.Schedules(r.Context(), r.client, after, limit)
	if err != nil {
		return err
	}
	out := struct {
		Items  []scheduleView `json:"items"`
		Cursor *string        `json:"cursor"`
	}{Items: make([]scheduleView, 0, len(list))}
	for _, n := range list {
		if n.Schedule == nil { // the log names the schedule
			continue
		}
		view := scheduleView{View: n.View(n.Name, now)}
		if r.client == "" {
			view.Client = n.Client
		}
		out.Items = append(out.Items, view)
	}
	if len(list) == limit {
		last := list[limit-1].Name
		if r.client == "" {
			last = list[limit-1].Client + "/" + last
		}
		out.Cursor = &last
	}
	return answer(r.w, http.StatusOK, out)
}

// limit returns how many rows of a list the request asks for.
func (r *request) limit() (int, error) { return r.number("limit", defaultList, 1, maxList) }

// number returns a number parameter from minimum to limit, or def if it is not given.
func (r *request) number(name string, def, minimum, limit int) (n int, err error) {
	text := r.query.Get(name)
	if text == "" {
		return def, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < minimum || n > limit {
		return 0, invalid(name, "%s=%.40q: must be from %d to %d", name, text, minimum, limit)
	}
	return n, nil
}
