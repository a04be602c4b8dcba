package container

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// indexTwin is an index of numbered ids and a map with the same content.
type indexTwin struct {
	index   Index
	ids     map[uint32]string
	records map[string]uint32
	hash    func(id string) uint64
}

func newIndexTwin(hash func(id string) uint64) *indexTwin {
	x := &indexTwin{ids: map[uint32]string{}, records: map[string]uint32{}, hash: hash}
	x.index.Equal = func(r uint32, id []byte) bool { return x.ids[r] == string(id) }
	return x
}

func (tw *indexTwin) check(t *testing.T, id string) {
	t.Helper()
	tw.index.Prefetch(tw.hash(id))
	if got := tw.index.Find(tw.hash(id), []byte(id)); got != tw.records[id] {
		t.Fatalf("id %q: record %d, want %d", id, got, tw.records[id])
	}
}

func (tw *indexTwin) add(id string, rec uint32) {
	tw.ids[rec], tw.records[id] = id, rec
	tw.index.Insert(tw.hash(id), rec)
}

func (tw *indexTwin) remove(id string) {
	rec := tw.records[id]
	tw.index.Remove(tw.hash(id), rec)
	delete(tw.records, id)
	delete(tw.ids, rec)
}

// TestIndexAgainstMap adds, finds, replaces and removes ids, with hashes that
// collide in every way: as a whole, by tag, by home slot, around the end of a
// segment.
func TestIndexAgainstMap(t *testing.T) {
	sum := func(id string) uint64 {
		h := uint64(14695981039346656037)
		for i := range len(id) {
			h = (h ^ uint64(id[i])) * 1099511628211
		}
		return h ^ h>>29
	}
	// withHome returns two tags for each of these slots, whose probes begin at that slot of a
	// segment.
	withHome := func(slots ...int) (tags []uint64) {
		for _, slot := range slots {
			for tag, found := uint32(1), 0; found < 2; tag++ {
				if homeSlot(tag) == slot {
					tags = append(tags, uint64(tag))
					found++
				}
			}
		}
		return tags
	}
	atEnd, wrapping := withHome(segmentSlots-1), withHome(segmentSlots-2, segmentSlots-1, 0, 1)
	hashes := map[string]func(id string) uint64{
		"spread":          sum,
		"one segment":     func(id string) uint64 { return sum(id) >> 10 },
		"one hash":        func(string) uint64 { return 42 },
		"one tag":         func(id string) uint64 { return sum(id) & 0xffffffff },
		"few tags":        func(id string) uint64 { return sum(id) % 7 << 61 },
		"last slot":       func(id string) uint64 { return atEnd[sum(id)%uint64(len(atEnd))] << 32 },
		"around the end":  func(id string) uint64 { return wrapping[sum(id)%uint64(len(wrapping))] << 32 },
		"all bits chosen": func(id string) uint64 { return sum(id) % 4 << 32 },
	}
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			n := 400
			if name == "spread" || name == "one segment" {
				n = 20000
			}
			for seed := range repeats(20) {
				r := rand.New(rand.NewPCG(seed, 2))
				x := newIndexTwin(hash)
				rec := uint32(0)
				for step := range n {
					id := fmt.Sprint("id", r.IntN(n/3))
					x.check(t, id)
					oldRecord, known := x.records[id]
					switch {
					case !known && (step < n/2 || r.IntN(3) == 0):
						rec++
						x.add(id, rec)
					case known && r.IntN(4) == 0:
						rec++
						x.remove(id)
						x.add(id, rec)
						// Removing the old record again changes nothing.
						x.index.Remove(hash(id), oldRecord)
					case known:
						x.remove(id)
					}
					x.check(t, id)
				}
				for i := range n / 3 {
					x.check(t, fmt.Sprint("id", i))
				}
				for id := range x.records {
					x.remove(id)
				}
				if x.index.bits != 0 || len(x.index.directory) > 1 {
					t.Fatalf("seed %d: the empty index has a directory of %d segments", seed, len(x.index.directory))
				}
				x.index.eachSegment(func(g *segment) {
					if g.n != 0 {
						t.Fatalf("seed %d: a segment of the empty index has %d entries", seed, g.n)
					}
				})
			}
		})
	}
}

// TestIndexGrowsInPieces: the memory of the index is proportional to its entries. (As all
// segments have the same size, no insertion moves more than one segment.)
func TestIndexGrowsInPieces(t *testing.T) {
	x := newIndexTwin(nil)
	for i := range uint64(1 << 17) {
		x.index.Insert((i+1)*0x9e3779b97f4a7c15, uint32(i+1))
		if i < 1000 || i&(i+1) != 0 {
			continue
		}
		slots := 0
		x.index.eachSegment(func(g *segment) {
			slots += len(g.slots)
		})
		if slots > 5*int(i+1)/2 {
			t.Errorf("%d slots for %d entries", slots, i+1)
		}
	}
}
