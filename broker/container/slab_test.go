package container

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// slabTwin keeps entries in slabs and in a map.
type slabTwin struct {
	slabs  Slabs
	places map[uint32][2]uint32
	data   map[uint32][]byte
}

func newSlabTwin(pages Pages) *slabTwin {
	x := &slabTwin{places: map[uint32][2]uint32{}, data: map[uint32][]byte{}}
	x.slabs.Pages = pages
	x.slabs.Length = func(rec uint32) uint32 { return uint32(len(x.data[rec])) }
	x.slabs.SetPos = func(rec, slab, offset uint32) { x.places[rec] = [2]uint32{slab, offset} }
	return x
}

func (tw *slabTwin) bytes(rec uint32) []byte {
	return tw.slabs.Bytes(tw.places[rec][0], tw.places[rec][1], uint32(len(tw.data[rec])))
}

func (tw *slabTwin) drop(rec uint32) {
	p, n := tw.places[rec], len(tw.data[rec])
	delete(tw.places, rec)
	delete(tw.data, rec)
	tw.slabs.Drop(p[0], p[1], uint32(n))
}

// TestSlabsKeepContentsThroughCompactions stores and drops entries of all sizes, and some entries
// stay. It checks that contents stay right through compactions, that returned bytes stay valid
// until the next FreeEmpty, and that the live entries bound the memory.
func TestSlabsKeepContentsThroughCompactions(t *testing.T) {
	for seed := range repeats(6) {
		r := rand.New(rand.NewPCG(seed, 4))
		pages := &countingPages{}
		x := newSlabTwin(pages)
		var recs []uint32
		next := uint32(0)
		views := map[uint32][2][]byte{} // bytes that the slabs returned, and a copy of them
		for step := range 20000 {
			if r.IntN(8) == 0 {
				for rec, pair := range views {
					if !bytes.Equal(pair[0], pair[1]) {
						t.Fatalf("seed %d, step %d: bytes of entry %d changed before settle", seed, step, rec)
					}
				}
				clear(views)
				x.slabs.FreeEmpty()
			}
			// Add entries for a while, then drop most of them, and so on.
			if filling := step/2500%2 == 0; len(recs) == 0 || filling == (r.IntN(4) > 0) {
				next++
				d := make([]byte, []int{0, 1, 30, 200, 5000, 20000}[r.IntN(6)])
				for i := range d {
					d[i] = byte(next) + byte(i)
				}
				cut := r.IntN(len(d) + 1)
				slab, offset := x.slabs.Add(next, d[:cut], d[cut:], nil)
				x.places[next], x.data[next] = [2]uint32{slab, offset}, d
				recs = append(recs, next)
			} else {
				i := r.IntN(len(recs))
				if r.IntN(20) > 0 {
					// Most of the oldest twentieth stays.
					i = len(recs)/20 + r.IntN(len(recs)-len(recs)/20)
				}
				rec := recs[i]
				recs = append(recs[:i], recs[i+1:]...)
				views[rec] = [2][]byte{x.bytes(rec), bytes.Clone(x.data[rec])}
				x.drop(rec)
			}
			if len(recs) == 0 {
				continue
			}
			if rec := recs[r.IntN(len(recs))]; !bytes.Equal(x.bytes(rec), x.data[rec]) {
				t.Fatalf("seed %d, step %d: entry %d is wrong", seed, step, rec)
			}
		}
		liveBytes := int64(0)
		for rec, d := range x.data {
			liveBytes += int64(len(d) + entryHead)
			if !bytes.Equal(x.bytes(rec), d) {
				t.Fatalf("seed %d: entry %d is wrong", seed, rec)
			}
		}
		if x.slabs.liveBytes != liveBytes {
			t.Errorf("seed %d: %d bytes are counted live, want %d", seed, x.slabs.liveBytes, liveBytes)
		}
		if pages.returns < 10 {
			t.Errorf("seed %d: memory was given back %d times only", seed, pages.returns)
		}
		for _, rec := range recs {
			x.drop(rec)
		}
		x.slabs.FreeEmpty()
		if pages.heldBytes > (1+slabSpare)*slabSize {
			t.Errorf("seed %d: %d bytes are held without an entry", seed, pages.heldBytes)
		}
	}
}

// TestSparseSlabsAreCompacted: if a few entries stay in each of many slabs, they are moved together and
// most slabs are freed.
func TestSparseSlabsAreCompacted(t *testing.T) {
	pages := &countingPages{}
	x := newSlabTwin(pages)
	const n, size = 400_000, 116
	data := make([]byte, size)
	for rec := uint32(1); rec <= n; rec++ {
		slab, offset := x.slabs.Add(rec, data[:16], data[16:], nil)
		x.places[rec], x.data[rec] = [2]uint32{slab, offset}, data
		x.slabs.FreeEmpty()
	}
	fullBytes := pages.heldBytes
	for rec := uint32(1); rec <= n; rec++ {
		if rec%100 != 0 {
			x.drop(rec)
			x.slabs.FreeEmpty()
		}
	}
	if limit := slabSlack + 2*int(x.slabs.liveBytes) + (2+slabSpare)*slabSize; pages.heldBytes > limit {
		t.Errorf("%d bytes are held for %d live ones (of %d when full), at most %d", pages.heldBytes, x.slabs.liveBytes, fullBytes, limit)
	}
	for rec := uint32(100); rec <= n; rec += 100 {
		if !bytes.Equal(x.bytes(rec), data) {
			t.Fatalf("entry %d is wrong", rec)
		}
	}
}
