package broker

import (
	"fmt"
	"math"
)

// step is the time between two jobs at a rate. Beyond 30 years the clock would
// overflow.
func step(rate float64) int64 { return int64(min(max(1, 1e9/rate), 1e18)) }

// burst is how many may go at once at a rate.
func burst(rate float64, said int64) float64 {
	if said > 0 {
		return float64(said)
	}
	return max(1, math.Floor(rate))
}

// tolerance is how much earlier than evenly spaced a job may go.
func tolerance(rate float64, said int64) int64 {
	return int64(min((burst(rate, said)-1)*float64(step(rate)), 4e18))
}

// pace tells whether the rate limit of a type lets a job go now. When it does
// not, the type's timer is set. (GCRA, the generic cell rate algorithm of ATM,
// with a tolerance of a burst or of a tenth of a second.)
func (b *Broker) pace(k *jobType) bool {
	if wait := k.tat - k.early() - b.now; wait > 0 {
		b.startRateTimer(k, b.now+wait)
		return false
	}
	return true
}

// early is how much earlier than evenly spaced a job of the type may go.
func (k *jobType) early() int64 {
	if n := k.limits.Burst; n > 0 {
		return tolerance(k.limits.Rate, int64(n))
	}
	return max(0, int64(1e8)-step(k.limits.Rate))
}

// tokens is how many jobs the rate limit of a type lets go at once.
func (b *Broker) tokens(k *jobType) int {
	room := k.early() - max(0, k.tat-b.now)
	if room < 0 {
		return 0
	}
	return int(min(room/step(k.limits.Rate), math.MaxInt32)) + 1
}

// unpace gives back what one job took of a type's rate.
func (b *Broker) unpace(k *jobType) {
	if k.limits.Rate > 0 {
		k.tat -= step(k.limits.Rate)
	}
}

// TypeError says why a type cannot be configured.
type TypeError struct {
	Type   []byte
	Reason string
}

func (e *TypeError) Error() string { return fmt.Sprintf("type %q: %s", e.Type, e.Reason) }

// configure returns a type to be configured, made if there is room.
func (b *Broker) configure(name []byte) (*jobType, error) {
	if b.tooMany(b.typesByName[string(name)]) {
		return nil, &TypeError{name, fmt.Sprintf("the broker holds %d types (max-types)", b.cfg.MaxTypes)}
	}
	k := b.typeNamed(name)
	b.wake(k)
	return k, nil
}

// Pause keeps jobs of a type from being handed out, whether or not it is known
// yet; Resume lets them go on.
func (b *Broker) Pause(now int64, name []byte, pause bool) ([]Effect, error) {
	b.begin(now)
	k, err := b.configure(name)
	if err != nil {
		return b.end(), err
	}
	k.paused = pause
	b.touch(k)
	return b.end(), nil
}

// Limit sets how much of a type may run.
func (b *Broker) Limit(now int64, name []byte, l TypeLimits) ([]Effect, error) {
	b.begin(now)
	if l.Concurrency < 0 || l.Concurrency > MaxConcurrency || !(l.Rate >= 0 && l.Rate <= MaxRate) {
		return b.end(), &TypeError{name, fmt.Sprintf("limits of %d jobs at a time and %g a second are out of range (from 0; at most %d at a time, and %g a second)", l.Concurrency, l.Rate, int64(MaxConcurrency), float64(MaxRate))}
	}
	if l.Burst < 0 || l.Burst > MaxBurst || l.Burst > 0 && l.Rate == 0 {
		return b.end(), &TypeError{name, fmt.Sprintf("a burst of %d is out of range (from 1 to %d, beside a rate)", l.Burst, int64(MaxBurst))}
	}
	k, err := b.configure(name)
	if err != nil {
		return b.end(), err
	}
	k.limits = l
	k.tat = 0
	b.stopRateTimer(k)
	b.touch(k)
	return b.end(), nil
}
