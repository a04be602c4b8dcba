package broker

// list is a doubly linked list of jobs.
type list struct {
	head, tail uint32
	n          int
}

// link holds the neighbours of a job in a list. A job has one for each list that it may be in.
type link struct{ prev, next uint32 }

// The two links of a job: byPlace is for its lane or the list of jobs out on its worker,
// byHolding for a list of its holding.
const (
	byPlace = iota
	byHolding
	jobLinks
)

// link appends a job to a list, unlink takes it out.
func (b *Broker) link(l *list, by int, r uint32, j *job) {
	j.links[by] = link{prev: l.tail}
	if l.tail != 0 {
		b.jobs.Get(l.tail).links[by].next = r
	} else {
		l.head = r
	}
	l.tail = r
	l.n++
}

func (b *Broker) unlink(l *list, by int, j *job) {
	x := j.links[by]
	if x.prev != 0 {
		b.jobs.Get(x.prev).links[by].next = x.next
	} else {
		l.head = x.next
	}
	if x.next != 0 {
		b.jobs.Get(x.next).links[by].prev = x.prev
	} else {
		l.tail = x.prev
	}
	j.links[by] = link{}
	l.n--
}
