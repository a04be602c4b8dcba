package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "gloom/cmd/serverlessd/journal"
)

func lanes(names ...string) func(*Options) {
	return func(o *Options) { o.Lanes = names }
}

func laneOf(t *testing.T, j *Journal, lane string, n int) *Reservation {
	t.Helper()
	r, err := j.Reserve(cancelled(t), lane, n, longTime)
	if err != nil {
		t.Fatalf("lane %s: %v", lane, err)
	}
	return r
}

// TestDamagedNotes: the error of notes that cannot be read names their file and a remedy, and the
// remedy works.
func TestDamagedNotes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "routes.json")
	for _, text := range []string{"", "{}", "[{", "\x00\x00"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := LoadLaneNotes(dir); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%q: %v", text, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, save, err := LoadLaneNotes(dir); err != nil || save([]LaneNote{{Lane: "a"}}) != nil {
			t.Error(err)
		}
		if notes, _, err := LoadLaneNotes(dir); err != nil || len(notes) != 1 || notes[0].Lane != "a" {
			t.Error(notes, err)
		}
	}
}

// TestLaneReadsOnlyItsPieces: only the lane to which a piece belongs reads it.
func TestLaneReadsOnlyItsPieces(t *testing.T) {
	var saved []LaneNote
	keep := func(o *Options) {
		o.Notes = saved
		o.SaveNotes = func(n []LaneNote) error {
			saved = slices.Clone(n)
			return nil
		}
	}
	d := newDisk()
	j := open(t, d, lanes("s", "t"), keep)
	for _, line := range []string{"1", "2", "3", "4"} {
		add(t, j, batch("a-x", line))
	}
	first, second := laneOf(t, j, "s", 1), laneOf(t, j, "t", 1)
	first.Cancel()
	equal(t, "t goes on", text(laneOf(t, j, "t", 1).Read()), "a-x:3")
	equal(t, "s again", text(laneOf(t, j, "s", 9).Read()), "a-x:1")
	if err := second.Sync(); err != nil {
		t.Fatal(err)
	}
	j.Close()

	j = open(t, d.restart(false, nil), lanes("s", "t"), keep)
	equal(t, "waiting", j.Stats().Jobs, 3)
	third := laneOf(t, j, "t", 9)
	equal(t, "t", text(third.Read()), "a-x:3")
	if err := third.Sync(); err != nil {
		t.Fatal(err)
	}
	equal(t, "nobody's", text(laneOf(t, j, "t", 9).Read()), "a-x:4")
	equal(t, "s", text(laneOf(t, j, "s", 9).Read()), "a-x:1")
	j.Close()

	j = open(t, d.restart(false, nil), lanes("t"), keep) // s is away
	equal(t, "t", text(laneOf(t, j, "t", 9).Read()), "a-x:4")
	if _, err := j.Reserve(cancelled(t), "t", 9, longTime); err == nil {
		t.Fatal("t gets what s may have")
	}
	add(t, j, batch("a-x", "5"))
	equal(t, "t", text(laneOf(t, j, "t", 9).Read()), "a-x:5")
	j.Close()

	j = open(t, d.restart(false, nil), lanes("s", "t"), keep)
	equal(t, "s", text(laneOf(t, j, "s", 9).Read()), "a-x:1")
	if _, err := j.Reserve(cancelled(t), "s", 9, longTime); err == nil {
		t.Fatal("s gets what t had when it was alone")
	}
}

// lanePartition is one of several stores that share a journal.
type lanePartition struct {
	naiveJournal
	away bool
}

// TestRandomLanes: each accepted line is in exactly one store, once, in spite of restarts with one
// store or several, power losses, and stores that are away.
func TestRandomLanes(t *testing.T) {
	for round := range 60 {
		seed := rand.Uint64()
		if s := os.Getenv("JOURNAL_SEED"); s != "" {
			fmt.Sscan(s, &seed)
		}
		if !t.Run(fmt.Sprint(round), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("JOURNAL_SEED=%d", seed)
				}
			}()
			testPartitions(t, rand.New(rand.NewPCG(seed, 2)))
		}) {
			return
		}
	}
}

func testPartitions(t *testing.T, r *rand.Rand) {
	stores := make(map[string]*lanePartition)
	names := []string{"s", "t", "u"}
	for _, name := range names {
		stores[name] = &lanePartition{naiveJournal: naiveJournal{points: make(map[string]int64)}}
	}
	var saved []LaneNote
	accepted := make(map[string]bool)
	d := newDisk()
	for life := range 8 {
		partitions := slices.Clone(names)
		r.Shuffle(3, func(i, k int) { partitions[i], partitions[k] = partitions[k], partitions[i] })
		partitions = partitions[:1+r.IntN(3)]
		if life == 7 {
			partitions = names
		}
		frail := life < 7
		j := open(t, d, lanes(partitions...), func(o *Options) {
			o.Notes, o.SegmentSize = saved, int64(500+r.IntN(3000))
			ready := false
			o.SaveNotes = func(n []LaneNote) error {
				if frail && ready && r.IntN(10) == 0 {
					return errors.New("cannot be saved")
				}
				ready = true
				saved = slices.Clone(n)
				return nil
			}
		})
		for _, name := range partitions {
			stores[name].away = frail && r.IntN(3) == 0
		}
		for i := range 40 {
			if i%3 == 0 && frail {
				line := fmt.Sprint(life, ".", i)
				add(t, j, batch("a-x", line))
				accepted[line] = true
			}
			step(t, r, j, partitions, stores, frail)
		}
		for life == 7 && j.Stats().Jobs > 0 {
			step(t, r, j, partitions, stores, frail)
		}
		j.Close()
		d = d.restart(r.IntN(2) == 0, r)
	}
	seen := make(map[string]bool)
	for _, name := range names {
		for _, line := range stores[name].stored {
			if seen[line] || !accepted[line] {
				t.Fatalf("%s is stored twice, or was never accepted", line)
			}
			seen[line] = true
		}
	}
	equal(t, "stored", len(seen), len(accepted))
}

// step stores a piece in a random store. If frail is set, the store may become away meanwhile.
func step(t *testing.T, r *rand.Rand, j *Journal, partitions []string, stores map[string]*lanePartition, frail bool) {
	name := partitions[r.IntN(len(partitions))]
	s := stores[name]
	if s.away {
		return
	}
	res, err := j.Reserve(cancelled(t), name, 1+r.IntN(3), longTime)
	if err != nil {
		return
	}
	if frail && r.IntN(8) == 0 {
		s.away = true
	}
	if !s.away || r.IntN(2) == 0 {
		s.ingest(res)
	}
	if s.away { // the store does not answer whether it has the piece
		res.Cancel()
	} else if err := res.Sync(); err != nil {
		t.Fatal(err)
	}
}
