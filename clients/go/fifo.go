package gloom

// fifo is a queue whose elements are numbered from 0 as they come.
type fifo[T any] struct {
	ring []T    // its length is 0 or a power of two
	head uint64 // number of the first element that is still in
	tail uint64 // number of the next one to come
}

func (q *fifo[T]) push(v T) {
	if q.tail-q.head == uint64(len(q.ring)) {
		old := *q
		q.ring = make([]T, max(8, 2*len(old.ring)))
		for n := q.head; n != q.tail; n++ {
			*q.at(n) = *old.at(n)
		}
	}
	*q.at(q.tail) = v
	q.tail++
}

// at is element n, which must be in.
func (q *fifo[T]) at(n uint64) *T { return &q.ring[n&uint64(len(q.ring)-1)] }

func (q *fifo[T]) empty() bool { return q.head == q.tail }

// pop takes out the first element; there must be one.
func (q *fifo[T]) pop() T {
	var zero T
	at := q.at(q.head)
	first := *at
	*at = zero
	q.head++
	return first
}
