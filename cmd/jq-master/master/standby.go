package master

import (
	"context"
	"errors"
	"sync"
	"time"

	gloom "gloom/clients/go"
)

// A master that cannot reach its broker accepts jobs but hands out none. Such a master continues to
// serve pushers while no other master reaches a broker, because its own broker may come back. A
// standby that reaches its broker should have the lease instead. So masters that wait for the lease
// watch their brokers, and each notes in the store whether it reaches a broker. A master that does
// not reach its broker leaves a free lease to a master that does. The lease moves at most once per
// BrokerWait, however often brokers come and go.

// errYield is the error of a master that gives up its lease: for BrokerWait the master could not
// reach its broker, and a standby could reach a broker.
var errYield = errors.New("the broker is away, and a standby reaches one")

// shouldYield reports whether a standby reaches its broker now and this master does not.
func (m *Master) shouldYield(conn *brokerConn) bool {
	return m.opt.Shared && !conn.broker.IsReachable() && m.opt.Store.HasWaitingStandby()
}

// firstTryPause is the time that a master waits for its broker before it first competes for the
// lease.
const firstTryPause = 200 * time.Millisecond

// acquire waits for the lease, and meanwhile watches the shared broker.
func (m *Master) acquire(ctx context.Context) error {
	canServe := func() bool { return true }
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
		first := sync.OnceFunc(func() { // a master that has not connected yet must not leave the lease to others
			tryCtx, cancel := context.WithTimeout(ctx, firstTryPause)
			defer cancel()
			_ = watch.Ping(tryCtx)
		})
		canServe = func() bool { first(); return b.IsReachable() }
	}
	return m.opt.Store.Acquire(ctx, canServe, func(err error) {
		m.log.Info().Err(err).Msg("waiting for the lease of the namespace")
	})
}
