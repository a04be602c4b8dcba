package container

// Ring is a list whose elements contain its links, in the order in which they were pushed.
// It allocates nothing. All methods but Each cost O(1).
type Ring[T any] struct {
	n    int
	root Link[T] // elem is nil
}

// Link is meant for a field of an element. The element needs one for each ring that it may be
// in.
type Link[T any] struct {
	prev, next *Link[T]
	elem       *T
}

// InRing reports whether the element is in a ring.
func (l *Link[T]) InRing() bool { return l.next != nil }

// Next and Prev return the neighbours of an element in its ring, nil at the ends.
func (l *Link[T]) Next() *T { return l.next.elem }
func (l *Link[T]) Prev() *T { return l.prev.elem }

// Len returns the number of elements.
func (r *Ring[T]) Len() int { return r.n }

// First returns the first element, nil if the ring is empty.
func (r *Ring[T]) First() *T {
	if r.n == 0 {
		return nil
	}
	return r.root.next.elem
}

// Last returns the last element, nil if the ring is empty.
func (r *Ring[T]) Last() *T {
	if r.n == 0 {
		return nil
	}
	return r.root.prev.elem
}

// Push appends elem by its link l, which must be in no ring.
func (r *Ring[T]) Push(l *Link[T], elem *T) { r.Insert(l, elem, nil) }

// Insert inserts elem before the element whose link is at, or appends elem if at is nil. l is the
// link of elem; elem must be in no ring.
func (r *Ring[T]) Insert(l *Link[T], elem *T, at *Link[T]) {
	if r.root.next == nil {
		r.root.next, r.root.prev = &r.root, &r.root
	}
	if at == nil {
		at = &r.root
	}
	last := at.prev
	l.elem, l.prev, l.next = elem, last, at
	last.next, at.prev = l, l
	r.n++
}

// Each calls fn for all elements. fn must not change the ring.
func (r *Ring[T]) Each(fn func(*T)) {
	for l := r.root.next; r.n > 0 && l != &r.root; l = l.next {
		fn(l.elem)
	}
}

// Remove removes an element of this ring.
func (r *Ring[T]) Remove(l *Link[T]) {
	l.prev.next, l.next.prev = l.next, l.prev
	*l = Link[T]{}
	r.n--
}
