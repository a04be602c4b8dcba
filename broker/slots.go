package broker

// slots numbers things. A number is used again once its thing is gone.
type slots[T any] struct {
	all  []*T // nil where free
	free []uint32
}

func (s *slots[T]) add(x *T) uint32 {
	if n := len(s.free); n > 0 {
		no := s.free[n-1]
		s.free = s.free[:n-1]
		s.all[no] = x
		return no
	}
	s.all = append(s.all, x)
	return uint32(len(s.all) - 1)
}

func (s *slots[T]) drop(no uint32) {
	s.all[no] = nil
	if s.free = append(s.free, no); len(s.free) == len(s.all) {
		*s = slots[T]{}
	}
}

// has tells whether x is there under this number.
func (s *slots[T]) has(no uint32, x *T) bool { return int(no) < len(s.all) && s.all[no] == x }

// n is how many things have numbers.
func (s *slots[T]) n() int { return len(s.all) - len(s.free) }
