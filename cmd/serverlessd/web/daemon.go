package web

import (
	"net/http"
	"strings"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/page"
	"gloom/cmd/serverlessd/store"
)

// hello serves the page to clients that accept HTML, and the name and version to others. The page
// has no secret; it only says whether a token is needed.
func (s *Web) hello(r *request) error {
	r.w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		if s.door.IsGuarded() {
			page.Site.Index(r.w, r.Request, []byte(`{"guarded":true}`))
		} else {
			page.Site.Visit(r.w, r.Request, s, map[string]string{"status": "/v1/status", "look": "/v1/stats", "history": "/v1/moments"})
		}
		return nil
	}
	return answer(r.w, http.StatusOK, map[string]string{"name": "serverlessd", "version": s.opt.Version})
}

// file serves a file of the page.
func (s *Web) file(r *request) error {
	page.Site.ServeHTTP(r.w, r.Request)
	return nil
}

func (s *Web) healthz(r *request) error { return text(r.w, "ok") }

func (s *Web) readyz(r *request) error {
	if err := s.queue.Health(); err != nil {
		return unavailable("not_ready", "%v", err)
	}
	if err := s.queue.Degraded(); err != nil {
		return text(r.w, "ok, but not all stores work: "+err.Error())
	}
	return text(r.w, "ok")
}

func (s *Web) metrics(r *request) error {
	s.opt.Metrics.ServeHTTP(r.w, r.Request)
	return nil
}

func (s *Web) start(r *request) error {
	s.queue.Start()
	return text(r.w, "Started.")
}

func (s *Web) stop(r *request) error {
	s.queue.Stop()
	return text(r.w, "Stopped.")
}

func (s *Web) quit(r *request) error {
	err := text(r.w, "Quit.")
	s.opt.Quit()
	return err
}

// state returns the counts by type: by the bare types of one client, or by the jobtypes of all
// clients.
func (s *Web) state(r *request) error {
	types, err := s.queue.State(r.Context(), r.client)
	if err != nil {
		return err
	}
	out := make(map[string]store.Counts, len(types))
	for jobtype, c := range types {
		if !r.grant.Covers(jobtype) {
			continue
		}
		name := jobtype
		if r.client != "" {
			_, name, _ = job.SplitJobtype(jobtype)
		}
		out[name] = c
	}
	return answer(r.w, http.StatusOK, map[string]any{"types": out})
}
