package bridge

import (
	"context"
	"sync"
	"syscall"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/jobd/store"
)

// lease holds what this daemon knows about its own lease. The time counts from the moment when the
// renewing statement was sent, so the real lease lasts at least as long. It expires while this host
// is suspended, too.
type lease struct {
	mu        sync.Mutex // guards the fields below
	term      time.Duration
	expiresAt time.Duration // by boot.Since
	renewedCh chan struct{} // closed and replaced with every renewal
}

func (l *lease) start(term time.Duration, sendTime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.expiresAt, l.renewedCh = term, sendTime+term, make(chan struct{})
}

func (l *lease) recordRenewal(sendTime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expiresAt = sendTime + l.term
	close(l.renewedCh)
	l.renewedCh = make(chan struct{})
}

// expiry returns the time, by boot.Since, at which the lease expires, and a channel that is closed
// when the lease is renewed.
func (l *lease) expiry() (expiresAt time.Duration, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expiresAt, l.renewedCh
}

// renewInterval returns the interval of renewals. It is so short that some renewals may fail before
// the lease expires.
func (b *Bridge) renewInterval() time.Duration { return b.cfg.Lease / 4 }

// leaseLoop renews the lease, begins a new incarnation when it was lost, and queues
// rows whose acceptance was in doubt.
func (b *Bridge) leaseLoop(ctx context.Context) {
	failures := 0
	for {
		wait := b.renewInterval()
		if err := b.renewLease(ctx); err != nil {
			failures++
			wait = min(wait, retryDelay(failures)/2)
		} else {
			failures = 0
		}
		if !sleep(ctx, wait, b.fenced) {
			return
		}
	}
}

func (b *Bridge) renewLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Lease/2)
	defer cancel()
	sendTime := boot.Since()
	err := b.store.Renew(ctx)
	b.metrics.countTransaction("renew", err)
	b.recordDatabase("renew", err)
	if err == store.ErrFenced {
		return b.newIncarnation(ctx)
	}
	if err != nil {
		return err
	}
	b.onLeaseRenewed(sendTime)
	adoptedRows, err := b.store.Resolve(ctx)
	if len(adoptedRows) > 0 {
		b.log.Info().Int("rows", len(adoptedRows)).Msg("rows were accepted by a transaction that seemed lost")
		b.withMachine(func() { b.machine.Accept(b.countAccepted(adoptedRows, "poll")) })
	}
	return err
}

// newIncarnation begins a new incarnation after others considered this daemon dead and settled its
// rows. Running processes are killed, and queued rows will not start, because their claims are
// gone.
func (b *Bridge) newIncarnation(ctx context.Context) error {
	b.log.Error().Msg("the lease was lost: another daemon has settled this daemon's rows, and their processes are killed")
	b.killAll(syscall.SIGKILL)
	sendTime := boot.Since()
	err := b.store.Register(ctx)
	b.recordDatabase("renew", err)
	if err != nil {
		return err
	}
	b.onLeaseRenewed(sendTime)
	b.withMachine(func() { b.machine.Poll(nil) })
	return nil
}

// onLeaseRenewed notes a renewal, and gives the guard its new limit.
func (b *Bridge) onLeaseRenewed(sendTime time.Duration) {
	b.lease.recordRenewal(sendTime)
	b.setGuardDeadline()
}

// setGuardDeadline tells the guard until when processes may run. The guard kills them in time even
// if this daemon is stopped.
func (b *Bridge) setGuardDeadline() {
	if b.guardsProcesses() {
		deadline, _ := b.lease.expiry()
		b.guard.SetDeadline(time.Now().Add(deadline - b.killMargin() - boot.Since()))
	}
}

// guardsProcesses reports whether processes must not outlive the lease.
func (b *Bridge) guardsProcesses() bool {
	return b.guard != nil && b.cfg.Orphans == requeueOrphans && b.store.HasClaimsTable()
}

// killAll signals all processes, because their rows no longer belong to this daemon, or soon will
// not.
func (b *Bridge) killAll(signal syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rowsInBroker {
		if r.process != nil {
			r.isRevoked = true
			r.process.SignalGroup(signal)
		}
	}
}

// The processes must have ended killMargin before the lease expires.
func (b *Bridge) killMargin() time.Duration { return b.cfg.Lease / 10 }

// guardLoop ends the processes before the lease expires, because other daemons may then run the
// rows again.
func (b *Bridge) guardLoop(ctx context.Context) {
	for {
		deadline, moved := b.lease.expiry()
		for _, step := range []struct {
			at     time.Duration
			signal syscall.Signal
		}{
			{deadline - 2*b.killMargin(), syscall.SIGTERM},
			{deadline - b.killMargin(), syscall.SIGKILL},
		} {
			if !sleepUntil(ctx, step.at, moved) {
				return
			}
			select {
			case <-moved:
			default:
				b.log.Error().Stringer("signal", step.signal).Msg("the lease cannot be renewed: running processes are killed, and their rows will run again")
				b.killAll(step.signal)
				continue
			}
			break
		}
		select {
		case <-moved:
		default:
			if !sleep(ctx, -1, moved) {
				return
			}
		}
	}
}

// sleepUntil waits until a time by boot.Since, or until wake. It returns false if ctx has ended. It
// reads the clock once a second, because timers stand still while this host is suspended.
func sleepUntil(ctx context.Context, at time.Duration, wake <-chan struct{}) bool {
	for left := at - boot.Since(); left > 0; left = at - boot.Since() {
		if !sleep(ctx, min(left, time.Second), wake) {
			return false
		}
		select {
		case <-wake:
			return true
		default:
		}
	}
	return ctx.Err() == nil
}

// mayLaunch reports whether a process may be started. It returns false if others may soon consider
// this daemon dead and run its rows again.
func (b *Bridge) mayLaunch() bool {
	if !b.guardsProcesses() {
		return true
	}
	deadline, _ := b.lease.expiry()
	return deadline-boot.Since() > 2*b.killMargin()
}
