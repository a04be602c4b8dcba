package web

import (
	"errors"
	"net/http"

	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// asideView is a file of jobs that were set aside, as it is shown in an answer.
type asideView struct {
	File     string   `json:"file"`
	Jobs     int      `json:"jobs"`
	IDs      []string `json:"ids,omitempty"` // the ids of the first jobs
	Bytes    int64    `json:"bytes"`
	Reason   string   `json:"reason"` // refused, damaged
	Accepted *string  `json:"accepted,omitempty"`
}

// maxAsideIDs is the maximum number of ids that are shown for a file.
const maxAsideIDs = 100

// listAside lists the files that were set aside: with jobs that no store accepted, and with damaged
// parts of the journal.
func (s *Web) listAside(r *request) error {
	files, err := s.queue.AsideFiles()
	if err != nil {
		return err
	}
	out := make([]asideView, 0, len(files))
	for i := range files {
		out = append(out, viewAside(&files[i]))
	}
	return answer(r.w, http.StatusOK, map[string]any{"items": out})
}

func viewAside(a *journal.AsideFile) asideView {
	view := asideView{File: a.File, Jobs: len(a.Jobs), Bytes: a.Bytes, Reason: "damaged", Accepted: timeOrNull(a.Accepted)}
	if len(a.Jobs) > 0 {
		view.Reason = "refused"
	}
	for _, e := range a.Jobs[:min(len(a.Jobs), maxAsideIDs)] {
		view.IDs = append(view.IDs, string(e.ID))
	}
	return view
}

// putBack gives jobs that no store has accepted to a store again: those of one file, or those of
// all files.
func (s *Web) putBack(r *request) error {
	file := r.query.Get("file")
	all, err := r.flag("all")
	if err != nil {
		return err
	}
	if (file != "") == all {
		return missing("file", "put-back needs file=NAME, with a name from GET /aside, or all=true")
	}
	files := []string{file}
	if file == "" {
		asideFiles, err := s.queue.AsideFiles()
		if err != nil {
			return err
		}
		files = files[:0]
		for i := range asideFiles {
			if len(asideFiles[i].Jobs) > 0 {
				files = append(files, asideFiles[i].File)
			}
		}
	}
	jobs := 0
	refused := make(map[string]string)
	for _, name := range files {
		n, err := s.queue.PutBack(r.Context(), name)
		jobs += n
		if err == nil || file == "" && errors.Is(err, journal.ErrNoAsideFile) {
			continue // with all=true, another request may have put the file back meanwhile
		}
		if file != "" || !errors.As(err, new(*store.RefusedError)) {
			return err
		}
		refused[name] = err.Error() // the other files are still put back, because their jobs may be accepted
	}
	return answer(r.w, http.StatusOK, map[string]any{"ok": len(refused) == 0, "jobs": jobs, "refused": refused})
}
