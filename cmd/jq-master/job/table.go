package job

import "iter"

// Table holds values by id like a map, but costs the garbage collector less. A map of a million
// pointers, in hash order, makes a collection take four times as long. The map of a Table has no
// pointers, and its values lie in the order in which they were added.
type Table[V any] struct {
	index map[ID]uint32 // index in parts
	parts [][]V         // each has room for partSize values; values never move
	free  []uint32      // free indexes in parts
}

const partSize = 1024

// NewTable returns an empty table.
func NewTable[V any]() *Table[V] { return &Table[V]{index: make(map[ID]uint32)} }

// Len returns the number of values.
func (t *Table[V]) Len() int { return len(t.index) }

func (t *Table[V]) slot(i uint32) *V { return &t.parts[i/partSize][i%partSize] }

// Get returns the value of an id, or the zero value if there is none.
func (t *Table[V]) Get(id ID) (v V) {
	if i, ok := t.index[id]; ok {
		v = *t.slot(i)
	}
	return v
}

// Put sets the value of an id.
func (t *Table[V]) Put(id ID, v V) {
	i, known := t.index[id]
	switch {
	case known:
	case len(t.free) > 0:
		i = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	default: // there is no free index
		if i = uint32(len(t.index)); i%partSize == 0 {
			t.parts = append(t.parts, make([]V, partSize))
		}
	}
	t.index[id] = i
	*t.slot(i) = v
}

// Delete removes an id and its value.
func (t *Table[V]) Delete(id ID) {
	i, known := t.index[id]
	if !known {
		return
	}
	delete(t.index, id)
	if len(t.index) == 0 { // release the memory
		*t = *NewTable[V]()
		return
	}
	var zero V
	*t.slot(i) = zero
	t.free = append(t.free, i)
}

// All iterates over the values, in no particular order.
func (t *Table[V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, i := range t.index {
			if !yield(*t.slot(i)) {
				return
			}
		}
	}
}
