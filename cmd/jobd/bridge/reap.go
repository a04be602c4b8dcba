package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gloom/cmd/internal/launch"
	"gloom/cmd/jobd/store"
)

// reaper settles the rows of dead incarnations, one pass at a time.
type reaper struct {
	mu    sync.Mutex // guards the following; held during a pass
	watch watch
}

const (
	reapMost  = 2 * time.Second
	reapLeast = 100 * time.Millisecond
	// killTimeout bounds the wait for what a dead daemon's processes have left.
	killTimeout = 5 * time.Second
)

func (b *Bridge) reapEvery() time.Duration { return min(reapMost, max(reapLeast, b.cfg.Lease/5)) }

func (b *Bridge) reapLoop(ctx context.Context) {
	if !b.store.Claims() {
		return
	}
	for sleep(ctx, b.reapEvery(), nil) {
		pass, cancel := context.WithTimeout(ctx, openTimeout)
		b.reap(pass)
		cancel()
	}
}

// pass is what one look at the other incarnations came to.
type pass struct {
	settled   int
	undecided int // leases that are over, of daemons that may still come back
}

// reap looks at the other incarnations and settles the dead.
func (b *Bridge) reap(ctx context.Context) (p pass, err error) {
	b.reaper.mu.Lock()
	defer b.reaper.mu.Unlock()
	owners, err := b.store.Owners(ctx)
	b.noteDatabase(err)
	if err != nil {
		b.reaper.watch.blind()
		return p, err
	}
	var dead []store.Owner
	dead, p.undecided = b.reaper.watch.look(owners, time.Now(), store.Place.Gone)
	for _, o := range dead {
		n, settleErr := b.settle(ctx, o)
		p.settled += n
		if settleErr != nil {
			err = settleErr
			p.undecided++
		}
	}
	return p, err
}

// settle frees the rows of one dead incarnation.
func (b *Bridge) settle(ctx context.Context, o store.Owner) (int, error) {
	requeue := b.cfg.Orphans == requeueOrphans
	if o.Place.Host == store.Here().Host && o.Place.Gone() {
		// The kernel has killed its processes; their own may be left.
		killing, cancel := context.WithTimeout(ctx, killTimeout)
		n, err := launch.KillOrphans(killing, ownerOf(o.Place))
		cancel()
		if n > 0 {
			b.log.Warn().Err(err).Str("owner", o.Name).Int("processes", n).Msg("killed what a dead daemon had left running")
		}
		if err != nil && requeue {
			return 0, fmt.Errorf("processes of %s do not end: %w", o.Name, err)
		}
	}
	sum, err := b.store.Settle(ctx, o, store.Orphans{
		Requeue: requeue, Reason: fmt.Sprintf("jobd '%s' died while the job was running", o.Name), At: time.Now().Unix(),
	})
	b.m.transaction("settle", err)
	b.m.settled.WithLabelValues("returned").Add(float64(sum.Returned))
	b.m.settled.WithLabelValues("failed").Add(float64(sum.Failed))
	if n := sum.Returned + sum.Failed; n > 0 || err != nil {
		b.log.Warn().Err(err).Str("owner", o.Name).Int("returned", sum.Returned).Int("failed", sum.Failed).Msg("settled the rows of a dead daemon")
	}
	switch {
	case err != nil: // what was settled until then is not known
		b.do(func() { b.machine.Poll(nil) })
	case len(sum.Targets) > 0:
		b.do(func() { b.machine.Poll(sum.Targets) })
	}
	if err == nil && sum.Left {
		err = fmt.Errorf("rows of %s are locked or missing", o.Name)
	}
	return sum.Returned + sum.Failed, err
}

// Recover implements control.Engine. It waits for leases that are over, but
// whose daemons may still come back, to be decided.
func (b *Bridge) Recover(ctx context.Context) (int, error) {
	if !b.store.Claims() {
		return 0, fmt.Errorf("there is no companion table: rows cannot be told from those of living daemons")
	}
	settled := 0
	for {
		p, err := b.reap(ctx)
		settled += p.settled
		if p.undecided == 0 || err != nil && ctx.Err() != nil {
			return settled, err
		}
		if !sleep(ctx, reapLeast, nil) {
			return settled, ctx.Err()
		}
	}
}

// redeem writes what earlier daemons of this name have spooled, as far as the
// rows are still theirs.
func (b *Bridge) redeem(ctx context.Context, sp *spool) {
	if sp == nil {
		return
	}
	err := sp.left(func(e spooled) {
		w, err := b.store.Write(ctx, store.Batch{Token: e.Token, Finish: []store.Final{e.Final}})
		if err != nil || len(w.Busy)+len(w.Failed) > 0 {
			b.log.Error().Err(err).Int64("id", e.Final.ID).Msg("spooled result cannot be written, left for the next start")
			return
		}
		sp.remove(e.Token, e.Final.ID)
		if why, lost := w.Lost[e.Final.ID]; lost {
			b.log.Warn().Int64("id", e.Final.ID).Str("why", why).Msg("spooled result came too late")
			return
		}
		b.log.Info().Int64("id", e.Final.ID).Msg("spooled result of an earlier daemon was written")
	})
	if err != nil {
		b.log.Error().Err(err).Msg("spool cannot be read")
	}
}
