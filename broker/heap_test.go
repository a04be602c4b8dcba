package broker

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHeapAgainstSort pushes, removes from the middle, changes keys and pops,
// and compares with a sorted slice.
func TestHeapAgainstSort(t *testing.T) {
	for seed := range times(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		pos := map[uint32]int32{}
		h := heap{place: func(ref uint32, p int32) { pos[ref] = p }, held: new(int64)}
		var want []entry
		span := uint64(1 + r.IntN(40)) // few keys: many ties in a
		key := func(ref uint32) entry { return entry{r.Uint64N(span), uint64(ref) * 2654435761 % 1009, ref, 0} }
		less := func(x, y entry) int {
			if x.before(&y) {
				return -1
			}
			return 1
		}
		grow := 40 + r.IntN(40) // in percent
		for ref := uint32(1); ref < 1500; ref++ {
			switch n := r.IntN(100); {
			case n < grow || len(want) == 0:
				x := key(ref)
				h.push(x)
				want = append(want, x)
			case n < 70:
				i := r.IntN(len(want))
				h.remove(pos[want[i].ref])
				want = slices.Delete(want, i, i+1)
			case n < 85:
				i := r.IntN(len(want))
				x := key(want[i].ref)
				h.fix(pos[x.ref], x)
				want[i] = x
			default:
				slices.SortFunc(want, less)
				if got := *h.top(); !got.level(&want[0]) {
					t.Fatalf("seed %d: top %+v, want %+v", seed, got, want[0])
				}
			}
			if h.n != len(want) {
				t.Fatalf("seed %d: %d elements, want %d", seed, h.n, len(want))
			}
		}
		for _, x := range want {
			if got := *h.at(int(pos[x.ref])); got != x {
				t.Fatalf("seed %d: element %d says it is at %d, where %+v is", seed, x.ref, pos[x.ref], got)
			}
		}
		slices.SortFunc(want, less)
		for i, x := range want {
			got := *h.top()
			h.remove(0)
			if !got.level(&x) {
				t.Fatalf("seed %d: element %d comes out as %+v, want %+v", seed, i, got, x)
			}
		}
		if len(h.chunks) > 2 {
			t.Fatalf("seed %d: %d chunks are left of an empty heap", seed, len(h.chunks))
		}
	}
}

// TestHeapAtChunkBorder: going to and fro over the border of a chunk allocates
// nothing.
func TestHeapAtChunkBorder(t *testing.T) {
	h := heap{place: func(uint32, int32) {}, held: new(int64)}
	for i := range uint64(heapChunk) {
		h.push(entry{a: i})
	}
	if n := testing.AllocsPerRun(100, func() {
		h.push(entry{a: 7})
		h.push(entry{a: 9})
		h.remove(0)
		h.remove(0)
	}); n != 0 {
		t.Errorf("%v allocations at the border of a chunk", n)
	}
}
