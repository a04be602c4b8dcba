package job

import "iter"

// Table holds values by id, as a map does, but costs the garbage collector less. A map of a million
// pointers, in hash order, makes a collection take four times as long. The map of a Table has no
// pointers, and its values lie in the order in which they were added.
type Table[V any] struct {
	at    map[ID]uint32 // index in parts
	parts [][]V         // each has room for partSize values; values never move
	free  []uint32      // free indexes in parts
}

const partSize = 1024

// NewTable returns an empty table.
func NewTable[V any]() *Table[V] { return &Table[V]{at: make(map[ID]uint32)} }

// Len returns the number of values.
func (t *Table[V]) Len() int { return len(t.at) }

func (t *Table[V]) place(i uint32) *V { return &t.parts[i/partSize][i%partSize] }

// Get returns the value of an id, or the zero value if there is none.
func (t *Table[V]) Get(id ID) (v V) {
	if i, ok := t.at[id]; ok {
		v = *t.place(i)
	}
	return v
}

// Put sets the value of an id.
func (t *Table[V]) Put(id ID, v V) {
	i, known := t.at[id]
	switch {
	case known:
	case len(t.free) > 0:
		i = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	default: // no index is free
		if i = uint32(len(t.at)); i%partSize == 0 {
			t.parts = append(t.parts, make([]V, partSize))
		}
	}
	t.at[id] = i
	*t.place(i) = v
}

// Delete removes an id and its value.
func (t *Table[V]) Delete(id ID) {
	i, known := t.at[id]
	if !known {
		return
	}
	delete(t.at, id)
	if len(t.at) == 0 { // release the memory
		*t = *NewTable[V]()
		return
	}
	var none V
	*t.place(i) = none
	t.free = append(t.free, i)
}

// All iterates over the values, in no particular order.
func (t *Table[V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, i := range t.at {
			if !yield(*t.place(i)) {
				return
			}
		}
	}
}
