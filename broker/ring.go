package broker

// ring is a list of things that link themselves, first come first.
type ring[T any] struct {
	n    int
	root link[T]
}

// link is what a thing has for each ring in which it may stand.
type link[T any] struct {
	prev, next *link[T]
	of         *T
}

// in tells whether the thing stands in a ring.
func (l *link[T]) in() bool { return l.next != nil }

// first is the thing that has been in for longest; nil when the ring is empty.
func (x *ring[T]) first() *T {
	if x.n == 0 {
		return nil
	}
	return x.root.next.of
}

// push lets a thing, which stands in no ring, stand last.
func (x *ring[T]) push(l *link[T], of *T) { x.insert(l, of, &x.root) }

// insert lets it stand before another one, or last before the root.
func (x *ring[T]) insert(l *link[T], of *T, at *link[T]) {
	if x.root.next == nil {
		x.root.next, x.root.prev = &x.root, &x.root
	}
	last := at.prev
	l.of, l.prev, l.next = of, last, at
	last.next, at.prev = l, l
	x.n++
}

// each calls fn for all, which must not change the ring.
func (x *ring[T]) each(fn func(*T)) {
	for l := x.root.next; x.n > 0 && l != &x.root; l = l.next {
		fn(l.of)
	}
}

// remove takes out a thing that stands in this ring.
func (x *ring[T]) remove(l *link[T]) {
	l.prev.next, l.next.prev = l.next, l.prev
	*l = link[T]{}
	x.n--
}
