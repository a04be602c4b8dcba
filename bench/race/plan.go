package race

import (
	"time"

	"gloom/bench/brokers"
	"gloom/bench/shape"
)

// These are the names of the race's events.
const (
	Throughput = "throughput"
	OneJob     = "one outstanding"
	Prefetch   = "prefetch"
	Backlog    = "backlog"
	Unix       = "unix sockets"
)

// ShortPlan returns the plan of a race that takes about two minutes.
func ShortPlan(kinds []*brokers.Kind) *Plan {
	return plan(kinds, 5, 800*time.Millisecond, 300*time.Millisecond, 50_000)
}

// FullPlan returns the plan of the race whose result is published, with long rounds and a large backlog.
func FullPlan(kinds []*brokers.Kind) *Plan {
	return plan(kinds, 9, 5*time.Second, time.Second, 200_000)
}

// FleetPlan returns the plan of a race with two events: one job at a time, and 256 jobs outstanding.
func FleetPlan(kinds []*brokers.Kind, rounds int, duration time.Duration) *Plan {
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
