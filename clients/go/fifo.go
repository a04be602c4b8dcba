package gloom

// fifo is a queue whose elements are numbered from 0 in the order of their pushes.
type fifo[T any] struct {
	ring        []T    // its length is 0 or a power of two
	firstNumber uint64 // number of the first element
	nextNumber  uint64 // number that the next element will have
}

func (q *fifo[T]) push(v T) {
	if q.nextNumber-q.firstNumber == uint64(len(q.ring)) {
		old := *q
		q.ring = make([]T, max(8, 2*len(old.ring)))
		for n := q.firstNumber; n != q.nextNumber; n++ {
			*q.get(n) = *old.get(n)
		}
	}
	*q.get(q.nextNumber) = v
	q.nextNumber++
}

// get returns element n, which must be in the queue.
func (q *fifo[T]) get(n uint64) *T { return &q.ring[n&uint64(len(q.ring)-1)] }

func (q *fifo[T]) isEmpty() bool { return q.firstNumber == q.nextNumber }

// pop removes and returns the first element. The queue must not be empty.
func (q *fifo[T]) pop() (first T) {
	at := q.get(q.firstNumber)
	first, *at = *at, first
	q.firstNumber++
	return first
}
