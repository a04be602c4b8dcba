package result

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gloom/broker/guard"
)

// Format is the version of the file format that this package writes and reads.
const Format = 1

// File is the content of a result file: what one command has measured.
type File struct {
	Format  int       `json:"format"`
	Started time.Time `json:"started"`
	Command []string  `json:"command"`
	Host    Host      `json:"host"`
	Build   Build     `json:"build"`
	Sweep   string    `json:"sweep,omitempty"` // the parameter that was varied from run to run
	Runs    []*Run    `json:"runs"`
}

// Run is one shape of load on one server, repeated in rounds.
type Run struct {
	Shape  string   `json:"shape"` // a name, unique within a file together with the server's
	Server Server   `json:"server"`
	Params Params   `json:"params"`
	Rounds []*Round `json:"rounds"`
	// Skipped says why rounds are missing: the server does not support the load, or it failed.
	Skipped string `json:"skipped,omitempty"`
}

// Server describes the server that was measured.
type Server struct {
	Kind    string `json:"kind"`
	Title   string `json:"title"`
	Version string `json:"version,omitempty"`
	Command string `json:"command,omitempty"` // how it was started; empty when it was already running
	Build   *Build `json:"build,omitempty"`   // how a gloomd that was started by the run was built
}

// Params describes the load; its fields have the names of the flags.
type Params struct {
	Submitters int     `json:"submitters"`
	Window     int     `json:"window,omitempty"`
	Workers    int     `json:"workers"`
	Idle       int     `json:"idle_workers,omitempty"`
	Types      int     `json:"types"`
	Versatile  bool    `json:"versatile,omitempty"` // workers serve all types
	Groups     int     `json:"groups,omitempty"`
	Priorities int     `json:"priorities"`
	BodySize   int     `json:"body_bytes"`
	WorkTimeUS int64   `json:"work_time_us,omitempty"`
	Prefetch   int     `json:"prefetch,omitempty"`
	Rate       float64 `json:"rate_per_s,omitempty"` // open loop
	Arrivals   string  `json:"arrivals,omitempty"`
	Jobs       int64   `json:"jobs,omitempty"`
	Seconds    float64 `json:"seconds,omitempty"`
	OneCPU     bool    `json:"one_cpu,omitempty"`
	Unix       bool    `json:"unix,omitempty"`
	Loops      int     `json:"generator_loops"`
	Seed       uint64  `json:"seed"`
	Churn      *Churn  `json:"churn,omitempty"`
}

// Churn says how often peers disconnect and connect again.
type Churn struct {
	Workers    float64 `json:"workers_per_s"`
	Submitters float64 `json:"submitters_per_s"`
	Steady     int     `json:"steady_submitters"`
	AwayMS     int64   `json:"away_ms"`
}

// Value returns the value of a parameter that a sweep may vary.
func (p *Params) Value(name string) (float64, bool) {
	x, ok := map[string]float64{
		"submitters": float64(p.Submitters), "window": float64(p.Window), "workers": float64(p.Workers), "idle-workers": float64(p.Idle),
		"types": float64(p.Types), "priorities": float64(p.Priorities), "body": float64(p.BodySize), "prefetch": float64(p.Prefetch),
		"backlog": float64(p.Jobs), "rate": p.Rate,
	}[name]
	return x, ok
}

// Find returns the run of a shape on a server.
func (f *File) Find(shape, kind string) *Run {
	for _, r := range f.Runs {
		if r.Shape == shape && r.Server.Kind == kind {
			return r
		}
	}
	return nil
}

// Read reads a file, and refuses one of another format or without runs.
func Read(path string) (*File, error) {
	text, err := guard.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f File
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Format != Format {
		return nil, fmt.Errorf("%s: format is %d, want %d", path, f.Format, Format)
	}
	if len(f.Runs) == 0 {
		return nil, fmt.Errorf("%s: the file has no runs", path)
	}
	return &f, nil
}

// Write writes a complete file, or none if it fails.
func (f *File) Write(path string) error { return WriteJSON(path, f) }

// WriteJSON writes figures of any form as a complete file, or none if it fails. Without a path it
// writes nothing.
func WriteJSON(path string, v any) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text = append(text, '\n')
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return os.WriteFile(path, text, 0o644) // for example to /dev/stdout
	}
	part := path + ".part"
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}
