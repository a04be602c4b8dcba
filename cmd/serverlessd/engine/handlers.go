package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/runner"
	"gloom/cmd/serverlessd/store"
)

// handlerEvery is the interval at which the stores are asked for handlers that other daemons have
// changed.
const handlerEvery = 300 * time.Millisecond

// handlers holds the newest version of each handler, as far as this daemon knows. All stores have
// the same versions, except a store that is new or was away when a handler changed.
type handlers struct {
	engine    *Engine
	refreshMu sync.Mutex // one refresh at a time

	mu        sync.Mutex // guards the following; the maps of handlers are by jobtype, and are never changed
	version   map[*backend]int64
	byBackend map[*backend]map[string]*job.Handler
	byType    map[string]*job.Handler // the newest of those in byBackend
}

func newHandlers(e *Engine) *handlers {
	return &handlers{engine: e, version: make(map[*backend]int64), byBackend: make(map[*backend]map[string]*job.Handler)}
}

// newest returns a jobtype's handler, or nil if there is none.
func (h *handlers) newest(jobtype string) *job.Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byType[jobtype]
}

// newer returns the newer of two versions. Each version may be nil.
func newer(a, b *job.Handler) *job.Handler {
	if a == nil || b != nil && cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.ID, b.ID)) < 0 {
		return b
	}
	return a
}

func (h *handlers) contains(jobtype string) bool { return h.newest(jobtype) != nil }

// needsBroker reports whether a handler is for Gloom workers.
func (e *Engine) needsBroker() bool {
	for _, handler := range e.Handlers() {
		if handler.Lang == job.Gloom {
			return true
		}
	}
	return false
}

// wereRead reports whether the handlers of a store have been read.
func (h *handlers) wereRead(b *backend) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byBackend[b] != nil
}

// handledFunc returns a function that reports whether a jobtype has a handler, or nil until the
// handlers of all stores have been read.
func (h *handlers) handledFunc() func(jobtype string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.byBackend) < len(h.engine.backends) {
		return nil
	}
	return h.contains
}

// IsUnhandled reports whether a jobtype has no handler. It returns false until the handlers of all
// stores have been read.
func (e *Engine) IsUnhandled(jobtype string) bool {
	handled := e.handlers.handledFunc()
	return handled != nil && !handled(jobtype)
}

// nextFailed returns the jobtype that gets a job for each abandoned job of jobtype, or "".
func (h *handlers) nextFailed(jobtype string) string {
	handler := h.newest(jobtype)
	if handler == nil || handler.Options.NextFailed == "" {
		return ""
	}
	client, _, _ := job.SplitJobtype(jobtype)
	return job.Jobtype(client, handler.Options.NextFailed)
}

// watch reads the handlers that have changed, at intervals, until the engine ends.
func (h *handlers) watch() {
	for {
		for _, b := range h.engine.backends {
			if b.checkReachable() == nil {
				_ = h.refresh(b)
			}
		}
		if !h.engine.sleep(handlerEvery) {
			return
		}
	}
}

// refresh reads the handlers that have changed in a store, and records whether this succeeded.
func (h *handlers) refresh(b *backend) error { return b.noteCall("read handlers", h.read(b)) }

func (h *handlers) read(b *backend) error {
	h.refreshMu.Lock()
	defer h.refreshMu.Unlock()
	h.mu.Lock()
	since, asked := h.version[b]
	before := h.byBackend[b]
	h.mu.Unlock()
	if !asked {
		since = -1
	}
	ids, version, err := b.store.Handlers(h.engine.ctx, since)
	if err != nil || ids == nil {
		return err
	}
	newHandlers := make(map[string]*job.Handler, len(ids))
	for jobtype, id := range ids {
		if known := before[jobtype]; known != nil && known.ID == id {
			newHandlers[jobtype] = known
			continue
		}
		handler, err := b.store.Handler(h.engine.ctx, jobtype, id)
		if errors.Is(err, store.ErrUnknown) {
			continue // the version was deleted meanwhile
		}
		if err != nil {
			return err
		}
		newHandlers[jobtype] = handler
	}
	h.mu.Lock()
	h.byBackend[b], h.version[b], h.byType = newHandlers, version, make(map[string]*job.Handler)
	for _, known := range h.byBackend {
		for jobtype, handler := range known {
			h.byType[jobtype] = newer(h.byType[jobtype], handler)
		}
	}
	h.mu.Unlock()
	b.wakePick()
	return nil
}

// PutHandler adds a version of a jobtype's handler, and sets its id and time.
func (e *Engine) PutHandler(ctx context.Context, h *job.Handler) error {
	if err := e.runner.Check(ctx, &h.Source); err != nil {
		if errors.Is(err, runner.ErrCheckBusy) { // once no store has been reachable for a ttl, the guard kills the compiler
			for _, b := range e.backends {
				err = cmp.Or(b.checkReachable(), err)
			}
		}
		return err
	}
	h.ID = e.ids.Next(1).String()
	for _, b := range e.backends { // if one of the stores is away, the caller gets an error and can repeat the call
		if err := b.noteRequest(ctx, b.store.PutHandler(ctx, h)); err != nil {
			return err
		}
	}
	return e.handlers.refreshAll()
}

// DeleteHandler removes all versions and returns how many there were.
func (e *Engine) DeleteHandler(ctx context.Context, jobtype string) (n int, err error) {
	for _, b := range e.backends {
		deleted, err := b.store.DeleteHandler(ctx, jobtype)
		if err := b.noteRequest(ctx, err); err != nil {
			return n, err
		}
		n = max(n, deleted)
	}
	return n, e.handlers.refreshAll()
}

func (h *handlers) refreshAll() error {
	for _, b := range h.engine.backends {
		if err := h.refresh(b); err != nil {
			return err
		}
	}
	return nil
}

// Handler returns a version of a jobtype's handler, the newest one if id is "".
func (e *Engine) Handler(ctx context.Context, jobtype, id string) (*job.Handler, error) {
	var newest *job.Handler
	for _, b := range e.backends {
		h, err := b.store.Handler(ctx, jobtype, id)
		if err := b.noteRequest(ctx, err); err != nil && !errors.Is(err, store.ErrUnknown) {
			return nil, err
		}
		newest = newer(newest, h)
	}
	if newest == nil {
		return nil, store.ErrUnknown
	}
	return newest, nil
}

// Versions returns the versions of a jobtype's handler that are kept, newest first.
func (e *Engine) Versions(ctx context.Context, jobtype string) (versions []store.Version, err error) {
	for _, b := range e.backends {
		list, err := b.store.Versions(ctx, jobtype)
		if err := b.noteRequest(ctx, err); err != nil {
			return nil, err
		}
		for _, v := range list {
			if !slices.ContainsFunc(versions, func(known store.Version) bool { return known.ID == v.ID }) {
				versions = append(versions, v)
			}
		}
	}
	slices.SortFunc(versions, func(a, b store.Version) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.ID, a.ID)) })
	return versions, nil
}

// Handlers returns the newest version of each handler, by jobtype, as far as this daemon knows. It
// queries no store. The map must not be changed.
func (e *Engine) Handlers() map[string]*job.Handler {
	e.handlers.mu.Lock()
	defer e.handlers.mu.Unlock()
	return e.handlers.byType
}
