package broker

// jobList is a doubly linked list of jobs.
type jobList struct {
	head, tail uint32
	n          int
}

// listLink holds the neighbours of a job in a list. A job has one for each list that it may be in.
type listLink struct{ prev, next uint32 }

// The links of a job, and their number: laneLink is for the job's lane or for the list of jobs out
// on its worker; holdingLink is for a list of its holding.
const (
	laneLink = iota
	holdingLink
	numLinks
)

// appendTo appends a job to a list, removeFrom takes it out.
func (b *Broker) appendTo(l *jobList, listNumber int, rec uint32, j *job) {
	j.links[listNumber] = listLink{prev: l.tail}
	if l.tail != 0 {
		b.jobs.Get(l.tail).links[listNumber].next = rec
	} else {
		l.head = rec
	}
	l.tail = rec
	l.n++
}

func (b *Broker) removeFrom(l *jobList, listNumber int, j *job) {
	link := j.links[listNumber]
	if link.prev != 0 {
		b.jobs.Get(link.prev).links[listNumber].next = link.next
	} else {
		l.head = link.next
	}
	if link.next != 0 {
		b.jobs.Get(link.next).links[listNumber].prev = link.prev
	} else {
		l.tail = link.prev
	}
	j.links[listNumber] = listLink{}
	l.n--
}
