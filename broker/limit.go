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

// Pause keeps jobs of a type from being handed out, whether or not it is known
// yet; Resume lets them go on.
func (b *Broker) Pause(now int64, name []byte, pause bool) ([]Effect, error) {
	b.begin(now)
	if b.tooMany(b.typesByName[string(name)]) {
		return b.end(), &TypeError{name, b.manyTypes()}
	}
	k := b.typeNamed(name)
	b.wake(k)
	k.paused = pause
	b.touch(k)
	return b.end(), nil
}

// Limit sets how much of a type may run.
func (b *Broker) Limit(now int64, name []byte, l TypeLimits) ([]Effect, error) {
	return b.Configure(now, &Settings{Types: []TypeSetting{{Name: name, Limits: &l}}})
}
