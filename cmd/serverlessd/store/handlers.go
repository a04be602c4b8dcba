package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"gloom/cmd/serverlessd/job"
)

// maxVersions is the number of versions of a handler that are kept.
const maxVersions = 10

// PutHandler implements Store.
func (s *SQL) PutHandler(ctx context.Context, h *job.Handler) error {
	data, err := json.Marshal(h.Source)
	if err != nil {
		return err
	}
	return s.transact(ctx, "put handler", func(t *tx) error {
		var versions []string
		var newest sqlTime
		err := t.eachRow("SELECT id, dt FROM sq_handlers WHERE type = ? ORDER BY dt DESC, id DESC"+s.forUpdate(), []any{h.Jobtype}, func(r *sql.Rows) error {
			var id string
			var dt sqlTime
			err := r.Scan(&id, &dt)
			if versions = append(versions, id); len(versions) == 1 {
				newest = dt
			}
			return err
		})
		if err != nil {
			return err
		}
		// It must be the newest version, even if the clock was set back.
		h.Time = t.now.Truncate(time.Millisecond)
		if !h.Time.After(newest.time()) {
			h.Time = newest.time().Add(time.Millisecond)
		}
		t.runAtEnd("INSERT INTO sq_handlers (id, type, dt, lang, data) VALUES "+placeholders(5), h.ID, h.Jobtype, formatTime(h.Time), h.Lang, data)
		for _, id := range versions[min(len(versions), maxVersions-1):] {
			t.runAtEnd("DELETE FROM sq_handlers WHERE id = ?", id)
		}
		t.handlersChanged()
		return nil
	})
}

func (t *tx) handlersChanged() { t.add("sq_meta", "name", "value", "handlers", 1) }

// DeleteHandler implements Store.
func (s *SQL) DeleteHandler(ctx context.Context, jobtype string) (n int, err error) {
	err = s.transact(ctx, "delete handler", func(t *tx) error {
		n, err = t.delete("sq_handlers", "type = ?", jobtype)
		if err != nil || n == 0 {
			return err
		}
		t.handlersChanged()
		return t.settleRemainder(jobtype)
	})
	return n, err
}

// Handler implements Store.
func (s *SQL) Handler(ctx context.Context, jobtype, id string) (h *job.Handler, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, _ time.Time) error {
		h = nil
		err := eachRow(ctx, q, "SELECT id, dt, data FROM sq_handlers WHERE type = ? AND (? = '' OR id = ?) ORDER BY dt DESC, id DESC LIMIT 1", []any{jobtype, id, id}, func(r *sql.Rows) error {
			var dt sqlTime
			var data []byte
			h = &job.Handler{Jobtype: jobtype}
			if err := r.Scan(&h.ID, &dt, &data); err != nil {
				return err
			}
			h.Time = dt.time()
			return json.Unmarshal(data, &h.Source)
		})
		if err == nil && h == nil {
			err = ErrUnknown
		}
		return err
	})
	return h, err
}

// Version is a version of a handler, without its source.
type Version struct {
	ID, Lang string
	Time     time.Time
	Bytes    int64 // size of the stored source
}

// Versions implements Store.
func (s *SQL) Versions(ctx context.Context, jobtype string) (list []Version, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, _ time.Time) error {
		list = nil
		return eachRow(ctx, q, "SELECT id, dt, lang, LENGTH(data) FROM sq_handlers WHERE type = ? ORDER BY dt DESC, id DESC", []any{jobtype}, func(r *sql.Rows) error {
			var dt sqlTime
			var v Version
			err := r.Scan(&v.ID, &dt, &v.Lang, &v.Bytes)
			v.Time = dt.time()
			list = append(list, v)
			return err
		})
	})
	return list, err
}

// Handlers implements Store.
func (s *SQL) Handlers(ctx context.Context, since int64) (ids map[string]string, version int64, err error) {
	err = s.read(ctx, func(ctx context.Context, q querier, _ time.Time) error {
		ids, version = nil, 0
		err := queryOne(ctx, q, "SELECT value FROM sq_meta WHERE name = 'handlers'", nil, &version)
		if err != nil || version == since {
			return err
		}
		ids = make(map[string]string)
		return eachRow(ctx, q, "SELECT type, id FROM sq_handlers ORDER BY type, dt, id", nil, func(r *sql.Rows) error {
			var jobtype, id string
			err := r.Scan(&jobtype, &id)
			ids[jobtype] = id // the last row of a type is its newest version
			return err
		})
	})
	return ids, version, err
}
