package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"gloom/cmd/internal/schedule"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

// scheduleKey returns the key of the request's schedule. If the schedule exists, the token must
// cover its jobs.
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

func (r *request) coversSchedule(n store.Named) error {
	name := "*" // if it cannot be read
	if n.Schedule != nil {
		if line, err := job.ParseScheduled(n.Job, 1<<30); err == nil {
			name = line.Type
		}
	}
	_, err := r.covered(job.Jobtype(r.client, name))
	return err
}

func unknownSchedule(name string) error {
	return fail(http.StatusNotFound, "unknown_schedule", "name", "there is no schedule %.60q", name)
}

func (s *Web) putSchedule(r *request) error {
	key, err := s.scheduleKey(r)
	if err != nil && !errors.Is(err, store.ErrUnknown) {
		return err
	}
	body, leave, err := s.read(r)
	if err != nil {
		return err
	}
	leave() // do not keep the place while waiting for a store
	spec, err := schedule.Parse(body, func(text json.RawMessage) error {
		line, err := job.ParseScheduled(text, s.opt.MaxLine)
		if err == nil {
			_, err = r.covered(job.Jobtype(r.client, line.Type))
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
	answer(r.w, http.StatusOK, n.View(key.Name, now))
	return nil
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
	answer(r.w, http.StatusOK, map[string]any{"deleted": 1})
	return nil
}

func (s *Web) schedules(r *request) error {
	if !r.grant.Covers(job.Jobtype(r.client, "*")) {
		return fail(http.StatusForbidden, "forbidden", "type", "the token does not cover all types of client %s", r.client)
	}
	limit := listed
	if text := r.query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > listMost {
			return invalid("limit", "limit=%.40q: must be from 1 to %d", text, listMost)
		}
	}
	list, now, err := s.queue.Schedules(r.Context(), r.client, r.query.Get("cursor"), limit)
	if err != nil {
		return err
	}
	out := struct {
		Items  []schedule.View `json:"items"`
		Cursor *string         `json:"cursor"`
	}{Items: make([]schedule.View, 0, len(list))}
	for _, n := range list {
		if n.Schedule != nil { // otherwise the log names it
			out.Items = append(out.Items, n.View(n.Name, now))
		}
	}
	if len(list) == limit {
		out.Cursor = &list[limit-1].Name
	}
	answer(r.w, http.StatusOK, out)
	return nil
}
