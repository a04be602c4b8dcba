package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/goccy/go-json"

	"gloom/broker/guard"
	"gloom/cmd/internal/durable"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/pack"
	"gloom/cmd/jq-master/store"
	"gloom/cmd/jq-master/web"
)

// constraintFile adds a file of constraints to a store that does not keep them.
type constraintFile struct {
	store.Store
	path string

	mu   sync.Mutex // guards byID, and the file
	byID map[string]*job.Constraint
}

// fileConstraint is a constraint in the file, which has the form {"constraints": […]}, as in the
// reply of GET /v1/constraints.
type fileConstraint struct {
	ID          string          `json:"id"`
	Match       json.RawMessage `json:"match"`
	Rate        float64         `json:"rate,omitempty"`
	Burst       int64           `json:"burst,omitempty"`
	Concurrency *int64          `json:"concurrency,omitempty"`
	Per         string          `json:"per,omitempty"`
	Enabled     bool            `json:"enabled"`
}

// openConstraintFile reads the file, if it exists.
func openConstraintFile(s store.Store, path string) (*constraintFile, error) {
	file := &constraintFile{Store: s, path: path, byID: make(map[string]*job.Constraint)}
	data, err := guard.ReadFile(path)
	switch {
	case os.IsNotExist(err):
		return file, file.write()
	case err != nil:
		return nil, fmt.Errorf("--constraints: %w", err)
	}
	v, fault := pack.FromJSON(data)
	if fault != nil {
		return nil, fmt.Errorf("--constraints %s: %w", path, fault)
	}
	list := pack.Value(v).Field("constraints")
	if list.Kind() != pack.Array {
		return nil, fmt.Errorf(`--constraints %s: must be {"constraints": [...]}`, path)
	}
	n := 0
	for item := range list.Items() {
		id := item.Field("id")
		if id.Kind() != pack.String {
			return nil, fmt.Errorf("--constraints %s: constraint %d has no id", path, n)
		}
		c, fault := web.ReadConstraint(item, string(id.Bytes()))
		if fault != nil {
			return nil, fmt.Errorf("--constraints %s: constraint %q: %w", path, id.Bytes(), fault)
		}
		c.Version = master.FirstVersion(time.Now().UnixMilli())
		file.byID[c.ID] = c
		n++
	}
	return file, nil
}

// write replaces the file as a whole. It is called with mu held.
func (f *constraintFile) write() error {
	file := struct {
		Constraints []fileConstraint `json:"constraints"`
	}{[]fileConstraint{}}
	for _, id := range slices.Sorted(maps.Keys(f.byID)) {
		c := f.byID[id]
		e := fileConstraint{ID: c.ID, Match: pack.AppendJSON(nil, c.Match), Rate: c.Rate, Burst: c.Burst, Per: c.Per, Enabled: c.Enabled}
		if c.Concurrency >= 0 {
			e.Concurrency = &c.Concurrency
		}
		file.Constraints = append(file.Constraints, e)
	}
	data, err := json.MarshalIndent(&file, "", "  ")
	if err != nil {
		return err
	}
	if len(data) >= guard.MaxFileBytes {
		return fmt.Errorf("--constraints: %s would have %d bytes; the limit is %d", f.path, len(data)+1, guard.MaxFileBytes)
	}
	if err := durable.WriteFile(f.path, append(data, '\n')); err != nil {
		return fmt.Errorf("--constraints: %w", err)
	}
	return nil
}

// PutConstraint implements store.Store. It writes the file first. If that fails, nothing changes.
func (f *constraintFile) PutConstraint(id string, c *job.Constraint, done func(error)) {
	go func() { // in a goroutine, so that the caller does not wait for the disk
		f.mu.Lock()
		old := f.byID[id]
		f.put(id, c)
		err := f.write()
		if err != nil {
			f.put(id, old)
		}
		f.mu.Unlock()
		if err != nil {
			done(&master.UnwritableError{Err: err})
			return
		}
		f.Store.PutConstraint(id, c, done)
	}()
}

func (f *constraintFile) put(id string, c *job.Constraint) {
	if c == nil {
		delete(f.byID, id)
	} else {
		f.byID[id] = c
	}
}

// Load implements store.Store.
func (f *constraintFile) Load(ctx context.Context, load store.LoadHandlers) error {
	onConstraint := load.Constraint
	load.Constraint = func(*job.Constraint) error { return nil }
	f.mu.Lock()
	for _, c := range f.byID {
		_ = onConstraint(c) // openConstraintFile has checked the constraint
	}
	f.mu.Unlock()
	return f.Store.Load(ctx, load)
}
