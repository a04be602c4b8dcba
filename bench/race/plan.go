package race

import (
	"time"

	"gloom/bench/brokers"
	"gloom/bench/shape"
)

// Names of the race's events.
const (
	Throughput = "throughput"
	OneJob     = "one outstanding"
	Prefetch   = "prefetch"
	Backlog    = "backlog"
	Unix       = "unix sockets"
)

// Small returns the race that takes about two minutes, Full the one whose result is published.
func Small(kinds []*brokers.Kind) *Plan {
	return plan(kinds, 5, 800*time.Millisecond, 300*time.Millisecond, 50_000)
}

// Full returns the race with long rounds and the full backlog.
func Full(kinds []*brokers.Kind) *Plan {
	return plan(kinds, 9, 5*time.Second, time.Second, 200_000)
}

// Fleet returns a race with two events: one job at a time, and 256 jobs outstanding.
func Fleet(kinds []*brokers.Kind, rounds int, duration time.Duration) *Plan {
	relayed := shape.Defaults()
	relayed.Submitters, relayed.Window, relayed.Workers, relayed.Prefetch = 4, 64, 8, 64
	relayed.Duration, relayed.Warmup = duration, duration/3
	single := relayed
	single.Submitters, single.Window, single.Workers, single.Prefetch = 1, 1, 1, 0
	return &Plan{Kinds: kinds, Rounds: rounds, Events: []*Event{
		{Name: OneJob, Options: single, Run: shape.Steady},
		{Name: Throughput, Options: relayed, Run: shape.Steady},
	}}
}

func plan(kinds []*brokers.Kind, rounds int, duration, warmup time.Duration, backlog int64) *Plan {
	relayed := shape.Defaults()
	relayed.Duration, relayed.Warmup = duration, warmup
	single := relayed
	single.Submitters, single.Window, single.Workers, single.OneCPU = 1, 1, 1, true
	single.Duration, single.Warmup = duration/2, warmup/2
	prefetching := relayed
	prefetching.Prefetch = 64
	local := relayed
	local.Unix = true
	queue := shape.Defaults()
	queue.Jobs = backlog
	return &Plan{Kinds: kinds, Rounds: rounds, Events: []*Event{
		{Name: Throughput, Options: relayed, Run: shape.Steady},
		{Name: OneJob, Options: single, Run: shape.Steady},
		{Name: Prefetch, Options: prefetching, Run: shape.Steady},
		{Name: Unix, Options: local, Run: shape.Steady},
		{Name: Backlog, Options: queue, Run: shape.Backlog},
	}}
}
