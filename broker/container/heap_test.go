package container

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// repeats returns how often a random test is repeated: n times, or less often in a short run.
func repeats(n uint64) uint64 {
	if testing.Short() {
		return (n + 9) / 10
	}
	return n
}

// TestHeapAgainstSort pushes elements, removes them from the middle, changes keys and pops, and
// compares the heap with a sorted slice.
func TestHeapAgainstSort(t *testing.T) {
	for seed := range repeats(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		pos := map[uint32]int32{}
		h := Heap{SetPos: func(ref uint32, p int32) { pos[ref] = p }, Bytes: new(int64)}
		var want []Entry
		span := uint64(1 + r.IntN(40)) // few different values of Major, so that many elements tie
		key := func(ref uint32) Entry { return Entry{r.Uint64N(span), uint64(ref) * 2654435761 % 1009, ref, 0} }
		compare := func(x, y Entry) int {
			if x.Before(&y) {
				return -1
			}
			return 1
		}
		grow := 40 + r.IntN(40) // in percent
		for ref := uint32(1); ref < 1500; ref++ {
			switch n := r.IntN(100); {
			case n < grow || len(want) == 0:
				x := key(ref)
				h.Push(x)
				want = append(want, x)
			case n < 70:
				i := r.IntN(len(want))
				h.Remove(pos[want[i].Ref])
				want = slices.Delete(want, i, i+1)
			case n < 85:
				i := r.IntN(len(want))
				x := key(want[i].Ref)
				h.Fix(pos[x.Ref], x)
				want[i] = x
			default:
				slices.SortFunc(want, compare)
				if got := *h.Top(); !got.Ties(&want[0]) {
					t.Fatalf("seed %d: top %+v, want %+v", seed, got, want[0])
				}
			}
			if h.n != len(want) {
				t.Fatalf("seed %d: %d elements, want %d", seed, h.n, len(want))
			}
		}
		for _, x := range want {
			if got := *h.At(int(pos[x.Ref])); got != x {
				t.Fatalf("seed %d: element %d says it is at %d, where %+v is", seed, x.Ref, pos[x.Ref], got)
			}
		}
		slices.SortFunc(want, compare)
		for i, x := range want {
			got := *h.Top()
			h.Remove(0)
			if !got.Ties(&x) {
				t.Fatalf("seed %d: element %d comes out as %+v, want %+v", seed, i, got, x)
			}
		}
		if len(h.chunks) > 2 {
			t.Fatalf("seed %d: %d chunks are left of an empty heap", seed, len(h.chunks))
		}
	}
}

// TestHeapAtChunkBorder: growing and shrinking across the border of a chunk allocates
// nothing.
func TestHeapAtChunkBorder(t *testing.T) {
	h := Heap{SetPos: func(uint32, int32) {}, Bytes: new(int64)}
	for i := range uint64(heapChunk) {
		h.Push(Entry{Major: i})
	}
	if n := testing.AllocsPerRun(100, func() {
		h.Push(Entry{Major: 7})
		h.Push(Entry{Major: 9})
		h.Remove(0)
		h.Remove(0)
	}); n != 0 {
		t.Errorf("%v allocations at the border of a chunk", n)
	}
}
