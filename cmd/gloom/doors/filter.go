package doors

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

// filter selects jobs, with the parameters of the broker's interface.
type filter struct {
	typ            string // "" for all
	state, outcome string
	id, reason     string
	older          time.Duration // minimum time since its submission or, of an ended job, since its end
	since          time.Time     // earliest end of a job; zero for any
}

// parseFilter parses the filter of a listing.
func (d *Door) parseFilter(r *http.Request) (*filter, error) {
	q := r.URL.Query()
	f := &filter{typ: api.Name(r.PathValue("type")), state: q.Get("state"), outcome: q.Get("outcome"), id: q.Get("id"), reason: q.Get("reason")}
	f.older, _ = time.ParseDuration(cmp.Or(q.Get("older"), "0") + "ms") // the value is always a number
	if text := q.Get("since"); text != "" {
		span, err := time.ParseDuration(text)
		f.since = time.Now().Add(-span)
		if err != nil {
			if f.since, err = time.Parse(time.RFC3339, text); err != nil {
				return nil, cli.Usagef("--since %q: must be a duration such as 90s or 24h, or a time such as 2026-01-31T08:00:00Z", text)
			}
		}
	}
	return f, d.check(q.Get("group"), q.Get("submitter"))
}

// parseBulk parses a change to many jobs: their filter, whether to count them only, and the largest
// number to change, 0 for all.
func (d *Door) parseBulk(r *http.Request) (f *filter, count bool, limit int, err error) {
	var in struct {
		api.JobFilter
		Reason string `json:"reason"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, false, 0, err
	}
	f = &filter{typ: api.Name(r.PathValue("type")), state: in.State, id: in.ID, reason: in.Reason, older: time.Duration(in.Older) * time.Millisecond}
	if f.state == "running" {
		err = d.unsupportedError("way to cancel all running jobs", "gloom cancel ID... --running, where there is one for a single job")
	}
	return f, r.URL.Query().Has("count"), in.Most, cmp.Or(err, d.check(in.Group, ""))
}

// parseChange reads a change of one job.
func parseChange(r *http.Request) (c api.Change, err error) {
	err = json.NewDecoder(r.Body).Decode(&c)
	return c, err
}

// check refuses filters that only a broker knows.
func (d *Door) check(group, submitter string) error {
	switch {
	case group != "":
		return d.unsupportedError("groups", "leave --group out")
	case submitter != "":
		return d.unsupportedError("submitters with a connection", "leave --submitter out")
	}
	return nil
}

// matches reports whether a job passes the parts of the filter that the daemon cannot apply itself.
func (f *filter) matches(j *job) bool {
	return strings.Contains(j.ID, f.id) && strings.Contains(j.Reason, f.reason) &&
		secondsSince(cmp.Or(j.finished, j.created)) >= f.older.Seconds() &&
		(f.since.IsZero() || j.finished != nil && j.finished.After(f.since))
}
