package master

import (
	"context"
	"errors"
	"sync"
	"time"

	gloom "gloom/clients/go"
)

// A master without its broker can take jobs and hand out none. While nobody could do better it goes
// on: pushers are served, and the broker may come back. When a standby has a broker, the lease is
// better there. Masters that wait for the lease therefore watch their brokers, the store knows which
// of them has one, and one that has none leaves a free lease to one that has. The lease moves at most
// once per BrokerWait, however often brokers come and go.

// errForsaken ends the service of a master whose broker was away for BrokerWait, while a standby had
// one.
var errForsaken = errors.New("the broker is away, and a standby has one")

// forsaken reports whether another master could serve now and this one could not.
func (m *Master) forsaken(line *brokerLine) bool {
	return m.opt.Shared && !line.b.Reached() && m.opt.Store.Awaited()
}

// loneliness is since when a master has been forsaken.
type loneliness struct {
	since time.Duration
	known bool
}

// lasts is for how long that has been so without a break, as of now.
func (l *loneliness) lasts(forsaken bool, now time.Duration) time.Duration {
	switch {
	case !forsaken:
		l.known = false
		return -1
	case !l.known:
		l.since, l.known = now, true
	}
	return now - l.since
}

// firstReach is how long a master first waits for its broker's answer.
const firstReach = 200 * time.Millisecond

// acquire waits for the lease, and watches the shared broker meanwhile.
func (m *Master) acquire(ctx context.Context) error {
	able := func() bool { return true }
	if m.opt.Shared {
		b, err := m.opt.Broker()
		if err != nil {
			return err
		}
		defer b.Close()
		watch, err := gloom.NewSubmitter(b.Submitter...)
		if err != nil {
			return err
		}
		defer watch.Close()
		first := sync.OnceFunc(func() { // else it would give way although its broker is well
			soon, cancel := context.WithTimeout(ctx, firstReach)
			defer cancel()
			_ = watch.Ping(soon)
		})
		able = func() bool { first(); return b.Reached() }
	}
	return m.opt.Store.Acquire(ctx, able, func(err error) {
		m.log.Info().Err(err).Msg("waiting for the lease of the namespace")
	})
}
