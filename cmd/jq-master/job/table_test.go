package job

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestTableMatchesMap does the same random operations on a Table and on a map, and compares them.
func TestTableMatchesMap(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	table, model := NewTable[int](), map[ID]int{}
	for range 20 {
		more := rng.IntN(3) > 0 // or fewer
		for step := range rng.IntN(5 * partSize) {
			id := ID{byte(rng.IntN(16)), byte(rng.IntN(256))}
			if (rng.IntN(4) > 0) == more {
				table.Put(id, step+1)
				model[id] = step + 1
			} else {
				table.Delete(id)
				delete(model, id)
			}
			if table.Get(id) != model[id] || table.Len() != len(model) {
				t.Fatalf("%v: %d, want %d; %d values, want %d", id, table.Get(id), model[id], table.Len(), len(model))
			}
		}
		if rng.IntN(4) == 0 {
			for id := range model {
				table.Delete(id)
			}
			clear(model)
		}
		got, want := slices.Sorted(table.All()), slices.Sorted(maps.Values(model))
		if !slices.Equal(got, want) {
			t.Fatalf("%d values, want %d", len(got), len(want))
		}
	}
}
