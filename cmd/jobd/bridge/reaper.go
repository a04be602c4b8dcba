package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/launch"
	"gloom/cmd/jobd/bridge/queue"
	"gloom/cmd/jobd/store"
)

// reaper settles the rows of dead incarnations, one pass at a time.
type reaper struct {
	mu          sync.Mutex // guards the fields below; held during a pass
	owners      ownerWatch
	knownOwners []store.Owner // incarnations that the last pass found
	strays      strayRows

	protectedMu     sync.Mutex        // guards the fields below
	protectedIDs    map[int64][]int64 // by token: rows whose results are spooled here and not written yet
	readableResults int               // how many results that could be read from the disk a start waits for
}

func (r *reaper) protect(c *change) {
	r.protectedMu.Lock()
	defer r.protectedMu.Unlock()
	if r.protectedIDs == nil {
		r.protectedIDs = make(map[int64][]int64)
	}
	r.protectedIDs[c.token] = append(r.protectedIDs[c.token], c.id)
	r.countReadable(c, +1)
}

// countReadable adds n to readableResults if the result could be read from the disk; protectedMu
// is held.
func (r *reaper) countReadable(c *change, n int) {
	if c.diskSize > 0 {
		r.readableResults += n
	}
}

// waitNoMore is called when a start need not wait for a result any more.
func (r *reaper) waitNoMore(c *change) {
	r.protectedMu.Lock()
	defer r.protectedMu.Unlock()
	r.countReadable(c, -1)
}

func (r *reaper) unprotect(c *change) {
	r.protectedMu.Lock()
	defer r.protectedMu.Unlock()
	r.protectedIDs[c.token] = slices.DeleteFunc(r.protectedIDs[c.token], func(id int64) bool { return id == c.id })
	if len(r.protectedIDs[c.token]) == 0 {
		delete(r.protectedIDs, c.token)
	}
}

// protectedRows returns the rows of an incarnation that the reaper must leave alone.
func (r *reaper) protectedRows(token int64) []int64 {
	r.protectedMu.Lock()
	defer r.protectedMu.Unlock()
	return slices.Clone(r.protectedIDs[token])
}

// spoolWritten reports whether all spooled results that could be read are written, or refused by the
// database for long. The others may take a minute.
func (r *reaper) spoolWritten() bool {
	r.protectedMu.Lock()
	defer r.protectedMu.Unlock()
	return r.readableResults == 0
}

const (
	maxReapInterval = 2 * time.Second
	minReapInterval = 100 * time.Millisecond
	// killTimeout limits the wait for the remaining processes of a dead daemon.
	killTimeout = 5 * time.Second
)

func (b *Bridge) reapInterval() time.Duration {
	return min(maxReapInterval, max(minReapInterval, b.cfg.Lease/5))
}

func (b *Bridge) reapLoop(ctx context.Context) {
	if !b.store.HasClaimsTable() {
		return
	}
	for sleep(ctx, b.reapInterval(), nil) {
		passCtx, cancel := context.WithTimeout(ctx, openTimeout)
		b.reap(passCtx)
		cancel()
	}
}

// reapResult is the result of one check of the other incarnations.
type reapResult struct {
	settledRows     int
	undecidedOwners int // expired leases of daemons that may still come back
}

// errNotRenewed means that other incarnations cannot be judged. If our own lease cannot be renewed,
// their leases may not be renewable either: a server may allow reads but not writes.
var errNotRenewed = errors.New("this daemon's own lease cannot be renewed at the moment")

// reap checks the other incarnations and settles the dead incarnations.
func (b *Bridge) reap(ctx context.Context) (result reapResult, err error) {
	b.reaper.mu.Lock()
	defer b.reaper.mu.Unlock()
	if deadline, _ := b.lease.expiry(); deadline-boot.Since() < b.cfg.Lease/2 {
		b.reaper.owners.reset()
		return result, errNotRenewed
	}
	owners, err := b.store.Owners(ctx)
	b.recordDatabase("reap", err)
	if err != nil {
		b.reaper.owners.reset()
		return result, err
	}
	// An incarnation that is no longer listed has left, or another daemon has settled it. In both
	// cases rows of it may be waiting now.
	if slices.ContainsFunc(b.reaper.knownOwners, func(o store.Owner) bool {
		return !slices.ContainsFunc(owners, func(other store.Owner) bool { return other.Token == o.Token })
	}) {
		b.withMachine(func() { b.machine.Poll(nil) })
	}
	b.reaper.knownOwners = owners
	var deadOwners []store.Owner
	deadOwners, result.undecidedOwners = b.reaper.owners.check(owners, time.Now(), store.Process.IsGone)
	for _, o := range deadOwners {
		n, settleErr := b.settleOwner(ctx, o)
		result.settledRows += n
		if settleErr != nil {
			err = settleErr
			result.undecidedOwners++
		}
	}
	if strayErr := b.settleStrays(ctx); err == nil {
		err = strayErr
	}
	return result, err
}

// settleOwner frees the rows of one dead incarnation.
func (b *Bridge) settleOwner(ctx context.Context, owner store.Owner) (int, error) {
	requeue := b.cfg.Orphans == requeueOrphans
	if owner.Process.IsGone() {
		// The kernel has killed the daemon's processes, but their children may still run.
		killCtx, cancel := context.WithTimeout(ctx, killTimeout)
		n, err := launch.KillOrphans(killCtx, ownerOf(owner.Process))
		cancel()
		if n > 0 {
			b.log.Warn().Err(err).Str("owner", owner.Name).Int("processes", n).Msg("killed processes that a dead daemon had left running")
		}
		if err != nil && requeue {
			return 0, fmt.Errorf("processes of %s do not end: %w", owner.Name, err)
		}
	}
	sum, err := b.store.Settle(ctx, owner, store.OrphanPolicy{
		Requeue: requeue, Reason: store.DeathReason(owner.Name), FinishedAt: time.Now().Unix(),
		Except: b.reaper.protectedRows(owner.Token),
	})
	b.metrics.countTransaction("settle", err)
	if b.cfg.Launcher == "" && owner.Name == b.cfg.Name {
		b.keepSlots(sum.FailedRows)
	}
	b.recordSettled(sum)
	if n := sum.RequeuedCount + len(sum.FailedRows); n > 0 {
		b.log.Warn().Str("owner", owner.Name).Int("returned", sum.RequeuedCount).Int("failed", len(sum.FailedRows)).Msg("settled the rows of a dead daemon")
	}
	if err != nil {
		b.log.WithLevel(logLevelOf(err)).Err(err).Str("owner", owner.Name).Msg("rows of a dead daemon cannot be settled yet")
	}
	if err != nil { // it is not known how many rows were settled before the error
		b.withMachine(func() { b.machine.Poll(nil) })
	}
	if err == nil && sum.Incomplete {
		err = fmt.Errorf("rows of %s are locked, missing, or have results in the spool", owner.Name)
	}
	return sum.RequeuedCount + len(sum.FailedRows), err
}

// keepSlots takes rows that count as failed because an earlier daemon of this name was killed. They
// keep their places in their targets for as long as workers may still run them.
func (b *Bridge) keepSlots(rows map[int64]string) {
	b.withMachine(func() {
		for id, target := range rows {
			if b.machine.HoldSlot(queue.Row{ID: id, Target: target}) {
				b.rowTasks.Go(func() { b.awaitStrayRun(&row{Row: store.Row{ID: id, Target: target}}) })
			}
		}
	})
}

// recordSettled counts settled rows, and polls the targets of those that wait again.
func (b *Bridge) recordSettled(sum store.SettleResult) {
	b.metrics.settledRows.WithLabelValues("returned").Add(float64(sum.RequeuedCount))
	b.metrics.settledRows.WithLabelValues("failed").Add(float64(len(sum.FailedRows)))
	if len(sum.Targets) > 0 {
		b.withMachine(func() { b.machine.Poll(sum.Targets) })
	}
}

// Recover implements control.Engine. If leases have expired but their daemons may still come back,
// it waits until that is decided.
func (b *Bridge) Recover(ctx context.Context) (int, error) {
	if !b.store.HasClaimsTable() {
		return 0, fmt.Errorf("there is no companion table: rows cannot be told from those of living daemons")
	}
	settled := 0
	for {
		p, err := b.reap(ctx)
		settled += p.settledRows
		if p.undecidedOwners == 0 || err != nil && ctx.Err() != nil {
			return settled, err
		}
		if !sleep(ctx, minReapInterval, nil) {
			return settled, ctx.Err()
		}
	}
}

// loadSpool gives the writer the results that earlier daemons of this name have spooled. The
// reaper leaves their rows alone until the results are written or the rows turn out to be
// lost.
func (b *Bridge) loadSpool(sp *spool) error {
	if sp == nil {
		return nil
	}
	sp.removeUnfinished()
	var remaining []*change
	err := sp.eachResult(func(e spoolEntry, size int64) {
		c := &change{kind: changeFinish, id: e.Final.ID, result: e.Final, token: e.Token, spoolToken: e.Token, diskSize: size, outputsDropped: true}
		c.result.Stdout, c.result.Stderr = "", ""
		remaining = append(remaining, c)
		b.reaper.protect(c)
	}, func(file string, err error) {
		b.log.Error().Err(err).Str("file", file).Msg("a spooled result cannot be read and is left in place")
	})
	if err != nil { // without these results, their rows would be settled as if they had none
		return fmt.Errorf("spool_dir: %w", err)
	}
	for _, c := range remaining {
		b.writer.enqueue(c)
	}
	// Results that cannot be read now come last, so that other results do not wait for them.
	slices.SortStableFunc(remaining, func(x, y *change) int { return cmp.Compare(min(y.diskSize, 1), min(x.diskSize, 1)) })
	b.loops.Go(func() {
		var refused []*change
		for _, c := range remaining {
			select {
			case v := <-c.done:
				b.recordSpooled(c, v)
			case <-c.setAside:
				refused = append(refused, c)
			}
			b.reaper.waitNoMore(c)
		}
		for _, c := range refused {
			b.recordSpooled(c, <-c.done)
		}
	})
	return nil
}

// recordSpooled records what became of a result of an earlier daemon.
func (b *Bridge) recordSpooled(c *change, v writeResult) {
	switch {
	case v.err != nil:
		return // the result stays in the spool for the next start
	case v.lostReason != "":
		b.log.Warn().Int64("id", c.id).Str("why", v.lostReason).Msg("spooled result came too late")
	default:
		b.log.Info().Int64("id", c.id).Msg("spooled result of an earlier daemon was written")
	}
	b.reaper.unprotect(c)
}
