package master

import (
	"context"
	"errors"
	"sync"
	"time"

	gloom "gloom/clients/go"
)

// A master without its broker can take jobs, but hands out none. It goes on while no other master
// has a broker: it serves pushers, and the broker may come back. When a standby has a broker, that
// standby should have the lease. So masters that wait for the lease watch their brokers, and the
// store knows which of them have one. A master that has none leaves a free lease to a master that
// has one. The lease moves at most once per BrokerWait, however often brokers come and go.

// errForsaken ends the service of a master whose broker was away for BrokerWait while a standby had
// one.
var errForsaken = errors.New("the broker is away, and a standby has one")

// forsaken reports whether another master could serve now and this one could not.
func (m *Master) forsaken(line *brokerLine) bool {
	return m.opt.Shared && !line.b.Reached() && m.opt.Store.Awaited()
}

// loneliness is the time since which a master has been forsaken.
type loneliness struct {
	since time.Duration
	known bool
}

// lasts returns for how long the master has been forsaken without a break, -1 if it is
// not.
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
		first := sync.OnceFunc(func() { // without this the master would give way although its broker is there
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
