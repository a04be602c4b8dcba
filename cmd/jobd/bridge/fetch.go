package bridge

import (
	"context"
	"fmt"
	"time"

	"gloom/cmd/internal/failpoint"
	"gloom/cmd/jobd/bridge/queue"
	"gloom/cmd/jobd/store"
)

// These constants bound the pause after which targets are fetched again if another transaction had
// locked some of their rows. The pause grows while rows stay locked.
const (
	minRereadPause = 50 * time.Millisecond
	maxRereadPause = 2 * time.Second
)

// fetchLoop accepts pages of rows as the machine asks for them.
func (b *Bridge) fetchLoop(ctx context.Context) {
	failures, busyRounds := 0, 0
	for {
		var queueWants []queue.FetchRequest
		select {
		case <-ctx.Done():
			return
		case queueWants = <-b.fetches:
		}
		requests, targets := make([]store.AcceptRequest, len(queueWants)), make([]string, len(queueWants))
		for i, want := range queueWants {
			requests[i], targets[i] = store.AcceptRequest(want), want.Target
		}
		start := time.Now()
		ended := b.watchFetch()
		page, err := b.store.Accept(ctx, requests, b.cfg.MySQL.FetchLimit)
		ended()
		elapsed := time.Since(start)
		b.metrics.observeFetch(elapsed, err)
		b.fetchHealth.record("fetch", err)
		if err == nil {
			failures = 0
			failpoint.Reach("bridge: accepted")
			b.queuePage(page, elapsed)
			if len(page.BusyTargets) == 0 {
				busyRounds = 0
				continue
			}
			busyRounds++
			time.AfterFunc(min(maxRereadPause, minRereadPause<<min(busyRounds, 10)), func() { b.withMachine(func() { b.machine.Poll(page.BusyTargets) }) })
			continue
		}
		if ctx.Err() != nil {
			return
		}
		failures++
		b.log.WithLevel(logLevelOf(err)).Err(err).Strs("targets", targets).Msg("rows cannot be fetched, trying again")
		if err == store.ErrFenced {
			select {
			case b.fenced <- struct{}{}:
			default:
			}
		}
		b.withMachine(func() { b.fetchInProgress = false; b.machine.FetchFailed(targets) })
		if !sleep(ctx, retryDelay(failures), nil) {
			return
		}
		b.withMachine(b.machine.Resume)
		if !b.isFetching() { // all targets are paused or full, so there may be no next fetch that could report success
			b.fetchHealth.record("fetch", nil)
		}
	}
}

// Rows count as not fetchable when a fetch has taken longer than slowFetch. The limit is far below
// the time limits of the statements; a locked table exhausts these one after the other.
const slowFetch = 5 * time.Second

var errSlowFetch = fmt.Errorf("the database has not answered a fetch within %s; perhaps a lock on the table holds it up", slowFetch)

// watchFetch notes that rows cannot be fetched if the returned function is not called within slowFetch.
// The outcome of the fetch, noted after that, replaces the note.
func (b *Bridge) watchFetch() (ended func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(slowFetch, func() {
		defer close(done)
		b.log.Warn().Err(errSlowFetch).Msg("rows cannot be fetched")
		b.fetchHealth.record("fetch", errSlowFetch)
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

func (b *Bridge) isFetching() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fetchInProgress
}

// pollLoop polls all targets at regular intervals.
func (b *Bridge) pollLoop(ctx context.Context) {
	for sleep(ctx, b.cfg.PollInterval, nil) {
		b.withMachine(func() { b.machine.Poll(nil) })
	}
}

// queuePage queues the rows of a page. elapsed is the time that reading the page took.
func (b *Bridge) queuePage(page store.Page, elapsed time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fetchInProgress = false
	b.fetchPace.observeFetch(elapsed)
	b.machine.Fetched(b.countAccepted(page.Rows, "poll"), page.MoreTargets)
	b.applyEffects()
}

// countAccepted counts accepted rows and keeps their fields; b.mu is held.
func (b *Bridge) countAccepted(rows []store.Row, source string) []queue.Row {
	list := make([]queue.Row, len(rows))
	for i, r := range rows {
		list[i] = queue.Row{ID: r.ID, Target: r.Target, Priority: r.Priority, StartedAt: r.StartedAt}
		if b.guard == nil {
			b.rowFields[r.ID] = r.Fields
		}
		b.metrics.acceptedRows.WithLabelValues(b.label(r.Target), source).Inc()
	}
	if e := b.log.Debug(); e.Enabled() && len(rows) > 0 {
		ids := make([]int64, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
		}
		e.Ints64("ids", ids).Str("by", source).Msg("accepted")
	}
	return list
}
