package gloom

// request is something a submitter asked of the broker. Replies come in the
// order of the requests.
type request struct {
	kind requestKind
	job  *Pending // of a submit; of a cancel, the job of this connection, or nil
	id   string   // of a cancel, canonical
	call *call    // who waits for the reply, nil: nobody; not of a submit
}

type requestKind uint8

const (
	askSubmit      requestKind = iota + 1
	askQuietSubmit             // with "ack":false: replied to only when refused
	askCancel
	askHello
	askPing
)

// name is the canonical id that a reply to r carries, "" for none.
func (r *request) name() string {
	switch r.kind {
	case askSubmit, askQuietSubmit:
		return r.job.key
	}
	return r.id
}

// call is a reply that somebody waits for.
type call struct {
	done chan struct{}
	err  error // valid after done
}

func newCall() *call { return &call{done: make(chan struct{})} }

// finish is called once, and does nothing on nil.
func (c *call) finish(err error) {
	if c != nil {
		c.err = err
		close(c.done)
	}
}
