package relay

// fifo is a queue in a ring that grows and never shrinks.
type fifo[T any] struct {
	ring    []T
	head, n int
}

func (f *fifo[T]) len() int { return f.n }

func (f *fifo[T]) push(v T) {
	if f.n == len(f.ring) {
		newRing := make([]T, max(64, 2*len(f.ring)))
		k := copy(newRing, f.ring[f.head:])
		copy(newRing[k:], f.ring[:f.head])
		f.ring, f.head = newRing, 0
	}
	f.ring[(f.head+f.n)&(len(f.ring)-1)] = v
	f.n++
}

func (f *fifo[T]) pop() T {
	var zero T
	v := f.ring[f.head]
	f.ring[f.head] = zero
	f.head = (f.head + 1) & (len(f.ring) - 1)
	f.n--
	return v
}
