package container

// Slots gives things numbers, from 0 upwards. The number of a thing that has been dropped is
// reused. All methods cost O(1).
type Slots[T any] struct {
	all  []*T // nil where free
	free []uint32
}

// Add gives a thing a number and returns it.
func (s *Slots[T]) Add(x *T) uint32 {
	if n := len(s.free); n > 0 {
		no := s.free[n-1]
		s.free = s.free[:n-1]
		s.all[no] = x
		return no
	}
	s.all = append(s.all, x)
	return uint32(len(s.all) - 1)
}

// Drop frees a number in use.
func (s *Slots[T]) Drop(no uint32) {
	s.all[no] = nil
	if s.free = append(s.free, no); len(s.free) == len(s.all) {
		*s = Slots[T]{}
	}
}

// At returns the thing with this number, which Add must have returned; nil if the thing has
// been dropped.
func (s *Slots[T]) At(no uint32) *T { return s.all[no] }

// Has reports whether the thing with this number is x. Any number is allowed.
func (s *Slots[T]) Has(no uint32, x *T) bool { return int(no) < len(s.all) && s.all[no] == x }

// All returns the things by number, nil where a number is free. The caller must not change the
// slice.
func (s *Slots[T]) All() []*T { return s.all }

// Len returns the number of things.
func (s *Slots[T]) Len() int { return len(s.all) - len(s.free) }
