package broker

import "slices"

// Peer is a connection as the core knows it. Numbers are never reused; zero
// is nobody.
type Peer uint64

// Slot is the peer's place in a table of living peers: small, and reused once
// the peer is gone.
func (p Peer) Slot() uint32 { return uint32(p) }

func makePeer(gen, slot uint32) Peer { return Peer(gen)<<32 | Peer(slot) }

// Op says what an Effect sends.
type Op uint8

// The kinds of effects. Each is one frame to one peer.
const (
	// OpOK accepts a request; ID is set where the reply names a job.
	OpOK Op = iota + 1
	// OpJob hands a job to a worker: ID, Type, Body.
	OpJob
	// OpResult carries an answer to its submitter: ID, Body.
	OpResult
	// OpProgress carries a worker's progress to its submitter: ID, Body. The
	// hub may drop it when its peer reads slowly.
	OpProgress
	// OpCancel tells a worker that nobody waits for this run: ID.
	OpCancel
	// OpOverdue tells a borrower that a run has passed its timeout: ID, Run.
	OpOverdue
	// OpFollow tells a borrower that whether a run's progress is wanted has changed, which
	// Loan says: ID, Run.
	OpFollow
	// OpRefuse refuses a request: Code, Reason, and ID where a job is meant.
	OpRefuse
	// OpEnd ends an accepted job without an answer: Code, Reason, ID.
	OpEnd
	// OpReturn gives a borrowed job back to its lender: ID, Delay.
	OpReturn
	// OpClose closes a connection behind what it has been sent. The core knows
	// it no more.
	OpClose
)

// Effect is one frame to be sent. Its slices are valid until the next command.
type Effect struct {
	Op   Op
	Code Code
	// Kept says that Body is memory of its own, never written again: it may be
	// referred to beyond the next command instead of being copied.
	Kept bool
	// State is where the job stands that a submitter attached to, of an OpOK; 0 in
	// all others.
	State state
	// Spent: with this job the worker has used up its credit.
	Spent  bool
	Peer   Peer
	ID     []byte
	Type   []byte
	Body   []byte
	Reason *Reason // of OpRefuse and OpEnd
	// Run is the number of a run that is lent, in what tells the borrower of it, or
	// borrowed, in what tells the lender.
	Run uint64
	// Outcome is set on the frame that ends a kept job: Written is to be told
	// of it when the frame is out whole.
	Outcome uint64
	// Headers are those of a job, for workers that want them; nil where there
	// are none.
	Headers []byte
	// Delay is of JobLater and OpReturn, in nanoseconds.
	Delay int64
}

// Code is the reason of a refusal or of an end without an answer.
type Code uint8

// The codes that the core itself gives. Their wire texts stand in the
// protocol document.
const (
	IDExists Code = iota + 1
	UnknownID
	NotProcessing
	Overloaded
	Draining
	JobFailed
	JobLost  // as JobFailed, but the last run went with its worker
	JobFinal // as JobFailed, but the worker wanted no retry
	JobLater // as JobFailed, but the worker would have had a retry wait for Delay; of no kept job
	// JobExpelled is told to lenders: no retry, though no worker said so.
	JobExpelled
	Expired
	Cancelled
	TakenOver
)

func (b *Broker) emit(e Effect) { b.fx = append(b.fx, e) }

// effect is emit for what is sent most: it is filled in where it stays.
func (b *Broker) effect(op Op, p Peer, id []byte) *Effect {
	n := len(b.fx)
	if n == cap(b.fx) {
		b.fx = slices.Grow(b.fx, 1)
	}
	b.fx = b.fx[:n+1]
	e := &b.fx[n]
	*e = Effect{}
	e.Op, e.Peer, e.ID = op, p, id
	return e
}

func (b *Broker) ok(p Peer, id []byte) { b.effect(OpOK, p, id) }

func (b *Broker) refuse(p Peer, c Code, id []byte, reason Reason) {
	b.reasons = append(b.reasons, reason)
	b.emit(Effect{Op: OpRefuse, Peer: p, Code: c, ID: id, Reason: &b.reasons[len(b.reasons)-1]})
}
