package race

import (
	"fmt"
	"slices"
	"strings"

	"gloom/bench/brokers"
	"gloom/bench/shape"
)

type sweepParameter struct {
	name string
	set  func(o *shape.Options, v int)
}

// sweepParameters holds the parameters that a sweep may vary.
var sweepParameters = []sweepParameter{
	{"submitters", func(o *shape.Options, v int) { o.Submitters = v }},
	{"window", func(o *shape.Options, v int) { o.Window = v }},
	{"workers", func(o *shape.Options, v int) { o.Workers = v }},
	{"idle-workers", func(o *shape.Options, v int) { o.IdleWorkers = v }},
	{"types", func(o *shape.Options, v int) { o.Types, o.Workers = v, max(v, o.Workers) }},
	{"priorities", func(o *shape.Options, v int) { o.Priorities = v }},
	{"body", func(o *shape.Options, v int) { o.BodySize = v }},
	{"prefetch", func(o *shape.Options, v int) { o.Prefetch = v }},
	{"rate", func(o *shape.Options, v int) { o.Rate = float64(v) }},
	{"backlog", func(o *shape.Options, v int) { o.Jobs = int64(v) }},
}

// SweepParameterNames returns the names of the parameters that a sweep may vary.
func SweepParameterNames() string {
	var names []string
	for _, s := range sweepParameters {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

// Sweep returns the plan of a race whose events differ in one parameter.
func Sweep(kinds []*brokers.Kind, param string, values []int, base shape.Options) (*Plan, error) {
	i := slices.IndexFunc(sweepParameters, func(s sweepParameter) bool { return s.name == param })
	if i < 0 {
		return nil, fmt.Errorf("over %q: must be one of %s", param, SweepParameterNames())
	}
	if len(values) < 2 {
		return nil, fmt.Errorf("values: got %d, a sweep needs at least 2", len(values))
	}
	run := shape.Steady
	if param == "backlog" {
		run = shape.Backlog
	}
	p := &Plan{Kinds: kinds}
	for _, v := range values {
		o := base
		sweepParameters[i].set(&o, v)
		p.Events = append(p.Events, &Event{Name: fmt.Sprintf("%s %d", param, v), Options: o, Run: run})
	}
	return p, nil
}
