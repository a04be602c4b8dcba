package probe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// drainOrder lets one worker take n queued jobs of a type and returns their ids in the order of
// the hand-outs.
func drainOrder(t tb, d *daemon, typ string, n int) []string {
	t.Helper()
	w := d.servingWorker(t, typ)
	var got []string
	for range n {
		id, _ := w.nextJob()
		got = append(got, id)
		w.respond(`0`)
	}
	w.wantQuiet()
	w.retire()
	return got
}

func TestLargerPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, c := range []struct {
		name       string
		priorities []string // in JSON; "": absent
		order      []int    // the expected order, as indexes of priorities
	}{
		{"larger first", []string{"1", "3", "2"}, []int{1, 2, 0}},
		{"default is 0", []string{"-1", "", "1"}, []int{2, 1, 0}},
		{"0 and default are equals", []string{"", "0", "", "0"}, []int{0, 1, 2, 3}},
		{"minus zero is zero", []string{"0", "-0", ""}, []int{0, 1, 2}},
		{"ties by age", []string{"5", "5", "5", "5", "5"}, []int{0, 1, 2, 3, 4}},
		{"negative", []string{"-5", "-1", "-3", "-2", "-4"}, []int{1, 3, 2, 4, 0}},
		{"ends of int64", []string{"0", "-9223372036854775808", "9223372036854775807", "-9223372036854775807", "9223372036854775806"}, []int{2, 4, 0, 3, 1}},
		{"differences beyond float64", []string{"9007199254740992", "9007199254740993", "9007199254740994", "9007199254740993"}, []int{2, 1, 3, 0}},
		{"differences at the top", []string{"9223372036854775805", "9223372036854775807", "9223372036854775806"}, []int{1, 2, 0}},
		{"differences beyond int32", []string{"4294967296", "0", "4294967297", "1"}, []int{2, 0, 3, 1}},
		{"groups", []string{"1", "2", "1", "2", "1", "2"}, []int{1, 3, 5, 0, 2, 4}},
		{"rising", []string{"1", "2", "3", "4", "5", "6", "7"}, []int{6, 5, 4, 3, 2, 1, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			typ := freshName("prio")
			s := b.submitter(t)
			for i, p := range c.priorities {
				if p != "" {
					p = `,"priority":` + p
				}
				s.submitWith(fmt.Sprintf("%s-%d", typ, i), typ, `0`, p)
			}
			got := drainOrder(t, b, typ, len(c.order))
			for i, n := range c.order {
				if want := fmt.Sprintf("%s-%d", typ, n); got[i] != want {
					t.Fatalf("order %v, want indexes %v", got, c.order)
				}
			}
		})
	}
	t.Run("an idle worker takes what comes", func(t *testing.T) {
		typ := freshName("prio")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		lowID := s.submitFreshWith(typ, `0`, `,"priority":-1000`)
		highID := s.submitFreshWith(typ, `0`, `,"priority":1000`)
		w.wantJob(lowID)
		w.respond(`0`)
		w.wantJob(highID)
	})
	t.Run("a later one overtakes while the worker is busy", func(t *testing.T) {
		typ := freshName("prio")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		w.wantJob(s.submitFresh(typ, `0`))
		lowID := s.submitFresh(typ, `0`)
		highID := s.submitFreshWith(typ, `0`, `,"priority":1`)
		w.respond(`0`)
		w.wantJob(highID)
		w.respond(`0`)
		w.wantJob(lowID)
	})
	t.Run("age counts across submitters", func(t *testing.T) {
		typ := freshName("prio")
		s1, s2 := b.submitter(t), b.submitter(t)
		var want []string
		for i := range 20 {
			s := s1
			if i%3 == 0 {
				s = s2
			}
			want = append(want, s.submitFresh(typ, `0`))
		}
		if got := drainOrder(t, b, typ, len(want)); !slices.Equal(got, want) {
			t.Fatalf("order %v, want %v", got, want)
		}
	})
}

// 5,000 jobs are handed out in exactly the order of priority, then age.
func TestThousandsOfJobsKeepOrder(t *testing.T) {
	t.Parallel()
	b := shared(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, c := range []struct {
		name   string
		choose func(r *rand.Rand) int64
	}{
		{"few priorities", func(r *rand.Rand) int64 { return r.Int64N(5) - 2 }},
		{"distinct priorities", func(r *rand.Rand) int64 { return int64(r.Uint64()) }},
		{"one priority", func(*rand.Rand) int64 { return 7 }},
		{"ends of the range", func(r *rand.Rand) int64 {
			return []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}[r.IntN(7)]
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 3))
			jobs := scaledCount(5000)
			typ := freshName("order")
			s := b.submitter(t)
			type entry struct {
				id       string
				priority int64
			}
			var entries []entry
			var batch []byte
			for i := range jobs {
				e := entry{fmt.Sprintf("%s-%d", typ, i), c.choose(r)}
				entries = append(entries, e)
				batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":%d,"priority":%d}`, e.id, typ, i, e.priority))...)
			}
			s.writeRaw(batch)
			for _, e := range entries {
				s.wantAck(e.id)
			}
			slices.SortStableFunc(entries, func(a, b entry) int {
				switch {
				case a.priority > b.priority:
					return -1
				case a.priority < b.priority:
					return 1
				}
				return 0
			})
			for i, id := range drainOrder(t, b, typ, jobs) {
				if id != entries[i].id {
					t.Fatalf("place %d: job %s, want %s of priority %d (seed %d)", i, id, entries[i].id, entries[i].priority, seed)
				}
			}
			for _, e := range entries {
				s.wantResult(e.id, `0`)
			}
		})
	}
}

// Submits and answers alternate at random, and the order is compared with a sorted list.
func TestInterleavedJobsKeepOrder(t *testing.T) {
	t.Parallel()
	b := shared(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	typ := freshName("mix")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	type entry struct {
		id       string
		priority int64
	}
	var queue []entry
	running := ""
	take := func() {
		if len(queue) == 0 {
			return
		}
		best := 0
		for i := range queue {
			if queue[i].priority > queue[best].priority {
				best = i
			}
		}
		running = queue[best].id
		queue = slices.Delete(queue, best, best+1)
		w.wantJob(running)
	}
	for range 3000 {
		if r.IntN(2) == 0 {
			e := entry{freshName(typ), r.Int64N(7) - 3}
			s.submitWith(e.id, typ, `0`, fmt.Sprintf(`,"priority":%d`, e.priority))
			queue = append(queue, e)
			if running == "" {
				take()
			}
		} else if running != "" {
			w.respond(`1`)
			s.wantResult(running, `1`)
			running = ""
			take()
		}
	}
}
