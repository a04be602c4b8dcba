package load

import "gloom/bench/poll"

// Acks says how a server acknowledges submits.
type Acks uint8

const (
	NoAcks      Acks = iota // not at all
	CountedAcks             // one ack for each submit, without the job's id
	NamedAcks               // with the job's id
)

// Traits are the properties of a protocol that a run must know.
type Traits struct {
	Acks        Acks
	Queues      bool // keeps jobs while no worker is connected
	Prefetch    bool // may send a worker several jobs at a time
	Groups      bool // jobs have groups, and a worker may serve several types
	TracksPeers bool // requeues the jobs of a dead worker, drops the queued jobs of a lost submitter
}

// Protocol is the client side of the protocol of one kind of server. All peers of a run share one value.
// Submitter and Worker make the side of one peer.
type Protocol struct {
	Traits
	Submitter func(s *Submitter) SubmitterSide
	Worker    func(w *Worker) WorkerSide
}

// SubmitterSide is a submitter's end of a protocol. It reports to its Submitter:
// Ready, then Acked, Answered, Refused, Misbehaved, Lost.
type SubmitterSide interface {
	// Dial connects and sends the protocol's greeting.
	Dial(l *poll.Loop) error
	// Submit queues one job.
	Submit(typ int, priority int64, n Number)
	// Pending returns how many bytes are queued and not yet written.
	Pending() int
	// Hangup closes the connections, with a reset if abort is set.
	Hangup(abort bool)
}

// WorkerSide is a worker's end of a protocol. It reports to its Worker: Ready,
// then Job, Misbehaved, Lost.
type WorkerSide interface {
	Dial(l *poll.Loop) error
	// Answer queues the echo of a job that was given to Worker.Job, and requests the
	// next one if the protocol requires that.
	Answer(job Job)
	Hangup(abort bool)
}

// Job is a job that a worker got. The slices are valid until Worker.Job returns; a job kept for
// later must be copied.
type Job struct {
	ID    []byte // the id that the answer must contain; empty if the protocol needs none
	Reply []byte // the address for the answer; empty if the protocol needs none
	Body  []byte
}
