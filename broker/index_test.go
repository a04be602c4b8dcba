package broker

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// indexTwin is an index of numbered ids beside a map.
type indexTwin struct {
	index index
	ids   map[uint32]string
	recs  map[string]uint32
	hash  func(id string) uint64
}

func newIndexTwin(hash func(id string) uint64) *indexTwin {
	x := &indexTwin{ids: map[uint32]string{}, recs: map[string]uint32{}, hash: hash}
	x.index.equal = func(r uint32, id []byte) bool { return x.ids[r] == string(id) }
	return x
}

func (x *indexTwin) check(t *testing.T, id string) {
	t.Helper()
	if got := x.index.find(x.hash(id), []byte(id)); got != x.recs[id] {
		t.Fatalf("id %q: record %d, want %d", id, got, x.recs[id])
	}
}

func (x *indexTwin) add(id string, rec uint32) {
	x.ids[rec], x.recs[id] = id, rec
	x.index.insert(x.hash(id), rec)
}

func (x *indexTwin) remove(id string) {
	rec := x.recs[id]
	x.index.remove(x.hash(id), rec)
	delete(x.recs, id)
	delete(x.ids, rec)
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
	hashes := map[string]func(id string) uint64{
		"spread":       sum,
		"one segment":  func(id string) uint64 { return sum(id) >> indexBits },
		"one hash":     func(string) uint64 { return 42 },
		"one tag":      func(id string) uint64 { return sum(id) << 32 },
		"few tags":     func(id string) uint64 { return sum(id) % 7 << 29 },
		"last slot":    func(id string) uint64 { return 0xffffffff - sum(id)%3 },
		"first, last":  func(id string) uint64 { return uint64(uint32(-(sum(id) % 2))) },
		"neighbouring": func(id string) uint64 { return 1<<31 + sum(id)%5<<27 },
	}
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			n := 400
			if name == "spread" || name == "one segment" {
				n = 20000
			}
			for seed := range times(20) {
				r := rand.New(rand.NewPCG(seed, 2))
				x := newIndexTwin(hash)
				rec := uint32(0)
				for step := range n {
					id := fmt.Sprint("id", r.IntN(n/3))
					x.check(t, id)
					old, known := x.recs[id]
					switch {
					case !known && (step < n/2 || r.IntN(3) == 0):
						rec++
						x.add(id, rec)
					case known && r.IntN(4) == 0:
						rec++
						x.index.replace(hash(id), old, rec)
						delete(x.ids, old)
						x.ids[rec], x.recs[id] = id, rec
						// The old record no longer owns the slot.
						x.index.remove(hash(id), old)
					case known:
						x.remove(id)
					}
					x.check(t, id)
				}
				for i := range n / 3 {
					x.check(t, fmt.Sprint("id", i))
				}
				for id := range x.recs {
					x.remove(id)
				}
				for i := range x.index.seg {
					if s := &x.index.seg[i]; s.n != 0 || len(s.slot) > 4*indexMin*2 {
						t.Fatalf("seed %d: segment %d of an empty index has %d entries, %d slots", seed, i, s.n, len(s.slot))
					}
				}
			}
		})
	}
}

// TestIndexGrowsInPieces: no insertion moves more than a small part of it.
func TestIndexGrowsInPieces(t *testing.T) {
	const n = 1 << 17
	x := newIndexTwin(nil)
	for i := range uint64(n) {
		h := (i + 1) * 0x9e3779b97f4a7c15
		g := &x.index.seg[h>>(64-indexBits)]
		before, held := len(g.slot), int(g.n)
		x.index.insert(h, uint32(i+1))
		if len(g.slot) != before && held > 8*n>>indexBits {
			t.Fatalf("insertion %d moved %d of %d entries", i, held, i)
		}
	}
	slots := 0
	for i := range x.index.seg {
		slots += len(x.index.seg[i].slot)
	}
	if slots > 2*n {
		t.Errorf("%d slots for %d entries", slots, n)
	}
}
