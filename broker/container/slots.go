package container

// Slots numbers items, from 0 upwards. The number of an item that has been dropped is
// reused. All methods cost O(1).
type Slots[T any] struct {
	items []*T // nil where free
	free  []uint32
}

// Add gives an item a number, which it returns.
func (s *Slots[T]) Add(x *T) uint32 {
	if n := len(s.free); n > 0 {
		number := s.free[n-1]
		s.free = s.free[:n-1]
		s.items[number] = x
		return number
	}
	s.items = append(s.items, x)
	return uint32(len(s.items) - 1)
}

// Drop frees a number in use.
func (s *Slots[T]) Drop(number uint32) {
	s.items[number] = nil
	if s.free = append(s.free, number); len(s.free) == len(s.items) {
		*s = Slots[T]{}
	}
}

// At returns the item with this number, which Add must have returned; nil if the item has
// been dropped.
func (s *Slots[T]) At(number uint32) *T { return s.items[number] }

// Has reports whether the item with this number is x. Any number is allowed.
func (s *Slots[T]) Has(number uint32, x *T) bool {
	return int(number) < len(s.items) && s.items[number] == x
}

// All returns the items by number, nil where a number is free. The caller must not change the
// slice.
func (s *Slots[T]) All() []*T { return s.items }

// Len returns the number of items.
func (s *Slots[T]) Len() int { return len(s.items) - len(s.free) }
