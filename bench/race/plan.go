package race

import (
	"time"

	"gloom/bench/peers"
	"gloom/bench/shape"
)

// Names of the race's events.
const (
	Throughput = "throughput"
	One        = "one outstanding"
	Prefetch   = "prefetch"
	Backlog    = "backlog"
	Unix       = "unix sockets"
)

// Small returns the race that takes about two minutes, Full the one whose result is published.
func Small(kinds []*peers.Kind) *Plan {
	return plan(kinds, 5, 800*time.Millisecond, 300*time.Millisecond, 50_000)
}

// Full returns the race with long rounds and the full backlog.
func Full(kinds []*peers.Kind) *Plan {
	return plan(kinds, 9, 5*time.Second, time.Second, 200_000)
}

// Fleet returns a race with two events: one job at a time, and 256 jobs outstanding.
func Fleet(kinds []*peers.Kind, rounds int, duration time.Duration) *Plan {
	through := shape.Defaults()
	through.Submitters, through.Window, through.Workers, through.Prefetch = 4, 64, 8, 64
	through.Duration, through.Warmup = duration, duration/3
	one := through
	one.Submitters, one.Window, one.Workers, one.Prefetch = 1, 1, 1, 0
	return &Plan{Kinds: kinds, Rounds: rounds, Events: []*Event{
		{Name: One, Options: one, Run: shape.Steady},
		{Name: Throughput, Options: through, Run: shape.Steady},
	}}
}

func plan(kinds []*peers.Kind, rounds int, duration, warmup time.Duration, backlog int64) *Plan {
	through := shape.Defaults()
	through.Duration, through.Warmup = duration, warmup
	one := through
	one.Submitters, one.Window, one.Workers, one.OneCPU = 1, 1, 1, true
	one.Duration, one.Warmup = duration/2, warmup/2
	ahead := through
	ahead.Prefetch = 64
	local := through
	local.Unix = true
	queue := shape.Defaults()
	queue.Jobs = backlog
	return &Plan{Kinds: kinds, Rounds: rounds, Events: []*Event{
		{Name: Throughput, Options: through, Run: shape.Steady},
		{Name: One, Options: one, Run: shape.Steady},
		{Name: Prefetch, Options: ahead, Run: shape.Steady},
		{Name: Unix, Options: local, Run: shape.Steady},
		{Name: Backlog, Options: queue, Run: shape.Backlog},
	}}
}
