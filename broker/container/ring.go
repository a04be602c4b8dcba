package container

// Ring is a list of things that link themselves, first come first. It allocates
// nothing, and all but Each costs O(1).
type Ring[T any] struct {
	n    int
	root Link[T] // of is nil
}

// Link is what a thing has for each ring in which it may stand.
type Link[T any] struct {
	prev, next *Link[T]
	of         *T
}

// In tells whether the thing stands in a ring.
func (l *Link[T]) In() bool { return l.next != nil }

// Next and Prev are the things behind and before one that stands in a ring, nil at
// its ends.
func (l *Link[T]) Next() *T { return l.next.of }
func (l *Link[T]) Prev() *T { return l.prev.of }

// Len is how many things stand in the ring.
func (x *Ring[T]) Len() int { return x.n }

// First is the thing that stands first, nil when the ring is empty.
func (x *Ring[T]) First() *T {
	if x.n == 0 {
		return nil
	}
	return x.root.next.of
}

// Last is the thing that stands last, nil when the ring is empty.
func (x *Ring[T]) Last() *T {
	if x.n == 0 {
		return nil
	}
	return x.root.prev.of
}

// Push lets a thing, which stands in no ring by this link, stand last.
func (x *Ring[T]) Push(l *Link[T], of *T) { x.Insert(l, of, nil) }

// Insert lets it stand before another one, which has link at; nil: last.
func (x *Ring[T]) Insert(l *Link[T], of *T, at *Link[T]) {
	if x.root.next == nil {
		x.root.next, x.root.prev = &x.root, &x.root
	}
	if at == nil {
		at = &x.root
	}
	last := at.prev
	l.of, l.prev, l.next = of, last, at
	last.next, at.prev = l, l
	x.n++
}

// Each calls fn for all, which must not change the ring.
func (x *Ring[T]) Each(fn func(*T)) {
	for l := x.root.next; x.n > 0 && l != &x.root; l = l.next {
		fn(l.of)
	}
}

// Remove takes out a thing that stands in this ring.
func (x *Ring[T]) Remove(l *Link[T]) {
	l.prev.next, l.next.prev = l.next, l.prev
	*l = Link[T]{}
	x.n--
}
