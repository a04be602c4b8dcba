package journal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	. "gloom/cmd/serverlessd/journal"
)

// blockedAppends holds appends that wait while a sync is held up.
type blockedAppends struct {
	t       *testing.T
	j       *Journal
	block   chan struct{}
	results []chan error
}

// holdUp makes the next appends wait.
func holdUp(t *testing.T, d *disk, j *Journal) *blockedAppends {
	t.Helper()
	block, blocked := d.holdSync()
	w := &blockedAppends{t: t, j: j, block: block}
	w.start(t.Context(), "held up")
	<-blocked
	return w
}

func (w *blockedAppends) start(ctx context.Context, line string) {
	result := make(chan error, 1)
	w.results = append(w.results, result)
	go func() {
		_, err := w.j.Append(ctx, []Batch{batch("a-x", line)})
		result <- err
	}()
}

// append starts an append and returns when it waits.
func (w *blockedAppends) append(ctx context.Context, line string) {
	w.t.Helper()
	queued := w.j.Queued()
	w.start(ctx, line)
	await(w.t, func() bool { return w.j.Queued() == queued+1 })
}

// errors returns the results in the order of the appends.
func (w *blockedAppends) errors() (errs []error) {
	for _, result := range w.results {
		errs = append(errs, <-result)
	}
	return errs
}

// TestNoRoomForOne: if the disk has no room for one of several waiting appends, the other appends
// are accepted.
func TestNoRoomForOne(t *testing.T) {
	for _, reserve := range []bool{false, true} {
		t.Run(fmt.Sprint("reserve ", reserve), func(t *testing.T) {
			d := newDisk()
			s := &sharedDisk{d, 1 << 19}
			j := open(t, s, func(o *Options) {
				if reserve {
					o.ReserveBytes = 64 << 10
				}
			})
			add(t, j, batch("a-x", "first"))
			w := holdUp(t, d, j)
			for _, line := range []string{"one", strings.Repeat("x", 100_000), "two"} {
				w.append(t.Context(), line)
			}
			d.mu.Lock()
			if reserve {
				s.free = 80 << 10
			} else {
				d.free = d.used() + 20_000
			}
			d.mu.Unlock()
			close(w.block)
			errs := w.errors()
			if !errors.Is(errs[2], ErrNoSpace) {
				t.Errorf("large: %v", errs[2])
			}
			equal(t, "the others", slices.Delete(errs, 2, 3), []error{nil, nil, nil})
			equal(t, "full", j.LastRefusal(), nil)
			equal(t, "lines", text(readRest(t, j)), "a-x:first a-x:held up a-x:one a-x:two")
		})
	}
}

// TestLargeGroup: waiting appends are committed even if a group cannot hold all of them.
func TestLargeGroup(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	w := holdUp(t, d, j)
	for range 4 {
		w.append(t.Context(), strings.Repeat("x", 5<<20))
	}
	close(w.block)
	equal(t, "errors", w.errors(), make([]error, 5))
	equal(t, "lines", len(readRest(t, j)), 5)
}

// TestCancelledWait: an append whose context ends while the append waits returns at once. Other
// appends do not wait for it, and the journal drops its lines.
func TestCancelledWait(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	w := holdUp(t, d, j)
	ctx, cancel := context.WithCancel(t.Context())
	w.append(ctx, "cancelled")
	w.append(t.Context(), "one")
	w.append(ctx, "cancelled, too")
	w.append(t.Context(), "two")
	cancel()
	for _, i := range []int{1, 3} {
		if err := <-w.results[i]; !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		w.results[i] <- nil
	}
	queued := j.Queued()
	close(w.block)
	equal(t, "appends that wait", queued, 2)
	equal(t, "errors", w.errors(), make([]error, 5))
	equal(t, "lines", text(readRest(t, j)), "a-x:held up a-x:one a-x:two")
}

// TestCloseWhileAppendsWait: each append returns, and exactly the appends without an error are
// kept.
func TestCloseWhileAppendsWait(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	w := holdUp(t, d, j)
	for i := range 5 {
		w.append(t.Context(), fmt.Sprint(i))
	}
	closeErr := make(chan error)
	go func() { closeErr <- j.Close() }()
	await(t, func() bool {
		_, err := j.Append(cancelled(t), nil)
		return errors.Is(err, ErrClosed)
	})
	close(w.block)
	acceptedCount := 0
	for _, err := range w.errors() {
		if err == nil {
			acceptedCount++
		} else if !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	}
	equal(t, "close", <-closeErr, nil)
	equal(t, "lines", len(readRest(t, open(t, d.restart(true, rand.New(rand.NewPCG(1, 2)))))), acceptedCount)
}

// TestLossesOfGroups: whatever fails while many clients append, and whenever the power is lost,
// accepted lines are kept once and in each client's order. Refused lines are not kept.
func TestLossesOfGroups(t *testing.T) {
	for round := range 40 {
		r := rand.New(rand.NewPCG(uint64(round), 1))
		d := newDisk()
		j := open(t, d, func(o *Options) { o.SegmentSize = 4000 })
		stopAt, powerLost := 20+r.IntN(300), r.IntN(2) == 0
		changes, beginCounts := 0, make(map[string]int)
		d.mu.Lock()
		d.fail = func(op, name string) error {
			if changes++; changes > stopAt {
				d.poweredOff = true
				return errPowerLost
			}
			// The creation of a segment and its first write and sync never fail here, because a
			// segment begins with the end of the segment before it.
			if beginCounts[name]++; beginCounts[name] > 3 && (op == "write" || op == "sync") && r.IntN(8) == 0 {
				return []error{syscall.EIO, syscall.ENOSPC}[r.IntN(2)]
			}
			return nil
		}
		d.mu.Unlock()
		const clients = 8
		var accepted, refused [clients]map[string]bool
		var wg sync.WaitGroup
		for c := range clients {
			accepted[c], refused[c] = make(map[string]bool), make(map[string]bool)
			wg.Go(func() {
				for i := range 30 {
					line := fmt.Sprintf("%d %02d", c, i)
					_, err := j.Append(t.Context(), []Batch{batch("a-x", line)})
					d.mu.Lock()
					off := d.poweredOff
					d.mu.Unlock()
					if err == nil {
						accepted[c][line] = true
					} else if !off {
						refused[c][line] = true
					}
				}
			})
		}
		wg.Wait()
		j.Close()
		last := make(map[byte]string)
		for _, e := range readRest(t, open(t, d.restart(powerLost, r))) {
			line := string(e.Payload)
			c := line[0] - '0'
			if line <= last[c] || refused[c][line] {
				t.Fatalf("round %d: %q follows %q; refused: %v", round, line, last[c], refused[c][line])
			}
			last[c] = line
			delete(accepted[c], line)
		}
		for c := range clients {
			equal(t, fmt.Sprintf("round %d: lost", round), slices.Sorted(maps.Keys(accepted[c])), []string{})
		}
	}
}
