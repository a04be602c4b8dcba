package container

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// countingPages counts the memory that it provides, and overwrites it when it is returned.
type countingPages struct {
	heap      HeapPages
	heldBytes int
	returns   int
}

func (p *countingPages) Get(n int) []byte {
	p.heldBytes += n
	return p.heap.Get(n)
}

func (p *countingPages) Put(m []byte) {
	p.heldBytes -= len(m)
	p.returns++
	for i := range m {
		m[i] = 0xA5
	}
}

type record struct {
	a    uint64
	b, c uint32 // no padding, so that each byte counts
}

// TestTableAgainstMap takes and puts records. It checks that each record keeps its own content,
// that a new record is zero, and that memory is returned.
func TestTableAgainstMap(t *testing.T) {
	for seed := range repeats(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		pages := &countingPages{}
		x := Table[record]{Pages: pages}
		want := map[uint32]record{}
		var liveRecs []uint32
		peak := 0
		take := func() {
			n, rec := x.Take()
			if n == 0 {
				t.Fatal("record 0 was given out")
			}
			if _, again := want[n]; again {
				t.Fatalf("seed %d: record %d was given out twice", seed, n)
			}
			if *rec != (record{}) {
				t.Fatalf("seed %d: a new record holds %+v", seed, *rec)
			}
			*rec = record{r.Uint64(), n, r.Uint32()}
			want[n] = *rec
			liveRecs = append(liveRecs, n)
			peak = max(peak, len(liveRecs))
			if limit := (peak/tableChunk + 2) * tableChunk * int(unsafe.Sizeof(record{})); pages.heldBytes > limit {
				t.Fatalf("seed %d: %d bytes are held, there never were more than %d records", seed, pages.heldBytes, peak)
			}
		}
		put := func() {
			i := r.IntN(len(liveRecs))
			n := liveRecs[i]
			liveRecs[i] = liveRecs[len(liveRecs)-1]
			liveRecs = liveRecs[:len(liveRecs)-1]
			if *x.Get(n) != want[n] {
				t.Fatalf("seed %d: record %d holds %+v, want %+v", seed, n, *x.Get(n), want[n])
			}
			delete(want, n)
			x.Put(n)
		}
		for range 6 {
			for target := r.IntN(12 * tableChunk); len(liveRecs) < target; {
				if r.IntN(4) == 0 && len(liveRecs) > 0 {
					put()
				} else {
					take()
				}
			}
			for target := r.IntN(tableChunk); len(liveRecs) > target; {
				if r.IntN(6) == 0 {
					take()
				} else {
					put()
				}
			}
			if x.liveRecords != len(liveRecs) {
				t.Fatalf("seed %d: %d live records, want %d", seed, x.liveRecords, len(liveRecs))
			}
		}
		for len(liveRecs) > 0 {
			put()
		}
		if limit := 2 * tableChunk * int(unsafe.Sizeof(record{})); pages.heldBytes > limit {
			t.Errorf("seed %d: an empty table holds %d bytes, at most %d", seed, pages.heldBytes, limit)
		}
		if len(x.chunksWithRoom) > 2*len(x.chunks)+2 {
			t.Errorf("seed %d: %d chunks are listed as open, of %d", seed, len(x.chunksWithRoom), len(x.chunks))
		}
		if pages.returns == 0 {
			t.Errorf("seed %d: no memory was given back", seed)
		}
	}
}

// TestTableAtChunkBorder: growing and shrinking across the border of a chunk neither
// takes nor gives back memory.
func TestTableAtChunkBorder(t *testing.T) {
	pages := &countingPages{}
	x := Table[record]{Pages: pages}
	var lastRecs []uint32
	for range tableChunk + 1 {
		n, _ := x.Take()
		lastRecs = append(lastRecs, n)
	}
	lastRecs = lastRecs[len(lastRecs)-2:]
	for range 1000 {
		x.Put(lastRecs[0])
		x.Put(lastRecs[1])
		lastRecs[0], _ = x.Take()
		lastRecs[1], _ = x.Take()
	}
	if pages.returns > 0 {
		t.Errorf("memory was given back %d times", pages.returns)
	}
}
