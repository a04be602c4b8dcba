package master

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/goccy/go-json"

	"gloom/broker/admin/api"
)

// Rules is a client for a broker's operator interface.
type Rules struct {
	HTTP  *http.Client
	Base  string // "http://host:port"
	Token string
}

// set sets the rule of a pattern of groups, or drops it.
func (r *Rules) set(ctx context.Context, change *ruleChange) error {
	path := "/v1/groups/" + api.Segment(change.pattern)
	if change.drop {
		return r.call(ctx, http.MethodDelete, path, nil, nil)
	}
	var rule struct {
		Concurrency *int64   `json:"concurrency,omitempty"`
		Rate        *float64 `json:"rate,omitempty"`
		Burst       *int64   `json:"burst,omitempty"`
	}
	if change.concurrency >= 0 {
		rule.Concurrency = &change.concurrency
	}
	if change.rate > 0 {
		rule.Rate, rule.Burst = &change.rate, &change.burst
	}
	return r.call(ctx, http.MethodPut, path, &rule, nil)
}

// Explain returns what the broker knows about a job, or an error if the broker does not have the
// job.
func (r *Rules) Explain(ctx context.Context, id string) (*api.Job, error) {
	var j api.Job
	if err := r.call(ctx, http.MethodGet, "/v1/jobs/"+id, nil, &j); err != nil {
		return nil, err
	}
	return &j, nil
}

// errRefused means that repeating the request would be useless.
var errRefused = errors.New("the broker refuses")

// manyGroups is the number of groups that are requested from the broker. The broker returns the
// busiest groups.
const manyGroups = 10_000

// Groups returns groups that have jobs in them.
func (r *Rules) Groups(ctx context.Context) ([]api.Group, error) {
	var list api.Groups
	err := r.call(ctx, http.MethodGet, fmt.Sprintf("/v1/groups?limit=%d", manyGroups), nil, &list)
	return list.Groups, err
}

// Served reports whether the broker has a worker for a type, or does not say. It does not know the
// busy workers of other brokers in its fleet.
func (r *Rules) Served(ctx context.Context, typ string) bool {
	var t api.Type
	if err := r.call(ctx, http.MethodGet, "/v1/types/"+api.Segment(typ), nil, &t); err != nil || t.Workers > 0 {
		return !errors.Is(err, errRefused)
	}
	var fleet api.Fleet
	if err := r.call(ctx, http.MethodGet, "/v1/fleet", nil, &fleet); err != nil {
		return !errors.Is(err, errRefused)
	}
	return slices.ContainsFunc(fleet.Brokers, func(b api.FleetBroker) bool { return b.State == "up" })
}

func (r *Rules) call(ctx context.Context, method, path string, in, out any) error {
	req, err := api.NewRequest(ctx, method, r.Base+path, r.Token, in)
	if err != nil {
		return err
	}
	resp, err := r.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return err
	case method == http.MethodDelete && resp.StatusCode == http.StatusNotFound:
		return nil
	case resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden: // the token's rights may change
		return fmt.Errorf("%w: %s: %s", errRefused, resp.Status, bytes.TrimSpace(body))
	case resp.StatusCode >= 300:
		return fmt.Errorf("the broker answers %s: %s", resp.Status, bytes.TrimSpace(body))
	case out != nil:
		return json.Unmarshal(body, out)
	}
	return nil
}
