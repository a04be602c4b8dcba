package load

// heldJobs holds the jobs that workers run. The work time is the same for all, so they end in the
// order in which they arrived: a ring is enough.
type heldJobs struct {
	ring  []heldJob
	head  int
	count int
}

// heldJob is a job that a worker answers at due, in nanoseconds of the generator's clock, unless it has
// lost its connection by then.
type heldJob struct {
	due        int64
	worker     *Worker
	connection int
	job        Job
	text       []byte // memory that the slices of job point into; it is reused for the next job in this place
}

func (h *heldJobs) nextDue() int64 { return h.ring[h.head].due }

func (h *heldJobs) push(due int64, w *Worker, job Job) {
	if h.count == len(h.ring) {
		newRing := make([]heldJob, max(64, 2*len(h.ring)))
		for i := range h.count {
			newRing[i] = h.ring[(h.head+i)%len(h.ring)]
		}
		h.ring, h.head = newRing, 0
	}
	p := &h.ring[(h.head+h.count)%len(h.ring)]
	h.count++
	p.due, p.worker, p.connection = due, w, w.connections
	p.text = append(append(append(p.text[:0], job.ID...), job.Reply...), job.Body...)
	i, j := len(job.ID), len(job.ID)+len(job.Reply)
	p.job = Job{ID: p.text[:i:i], Reply: p.text[i:j:j], Body: p.text[j:]}
}

// pop removes and returns the oldest job; its slices are valid until the next push.
func (h *heldJobs) pop() heldJob {
	p := h.ring[h.head]
	h.head = (h.head + 1) % len(h.ring)
	h.count--
	return p
}
