package broker

// Peer is a connection as the core knows it. Numbers are never reused; 0 means no peer.
type Peer uint64

// Slot is the peer's index in a table of connections. The index is a small number, which is reused
// when the peer is gone.
func (p Peer) Slot() uint32 { return uint32(p) }

func makePeer(generation, slot uint32) Peer { return Peer(generation)<<32 | Peer(slot) }

// Op says what an Effect sends.
type Op uint8

// An effect is one frame to one peer. The comment on each kind of effect names the fields that it
// sets.
const (
	// OpOK accepts a request. ID is set if the reply names a job.
	OpOK Op = iota + 1
	// OpJob hands a job to a worker: ID, Type, Body.
	OpJob
	// OpResult carries an answer to its submitter: ID, Body.
	OpResult
	// OpProgress carries a worker's progress to its submitter: ID, Body. The hub may drop it
	// if the submitter reads slowly.
	OpProgress
	// OpCancel tells a worker that nobody waits for a run any more: ID.
	OpCancel
	// OpOverdue tells a borrower that the timeout of a run has passed: ID, Run.
	OpOverdue
	// OpFollow tells a borrower that Loan(Run).WantsProgress has changed: ID, Run.
	OpFollow
	// OpRefuse refuses a request: Code, Reason, and the ID if the request names a job.
	OpRefuse
	// OpEnd ends an accepted job without an answer: Code, Reason, ID.
	OpEnd
	// OpReturn gives a borrowed job back to its lender: ID, Delay.
	OpReturn
	// OpClose closes a connection after everything that was sent to it. The core has already
	// removed it.
	OpClose
)

// Effect is one frame to be sent. Its slices are valid until the next command.
type Effect struct {
	Op   Op
	Code Code
	// StableBody reports that nobody writes to Body again, so that it may be used after the next
	// command without a copy.
	StableBody bool
	// State is set only in the OpOK of an attach: the state of the job.
	State state
	// CreditSpent reports that this job has used up the worker's credit.
	CreditSpent bool
	Peer        Peer
	ID          []byte
	Type        []byte
	Body        []byte
	Reason      *Reason // set in OpRefuse and OpEnd
	// Run is the number of a run: of the lent run in effects for a borrower, and of the borrowed
	// run in effects for a lender.
	Run uint64
	// Outcome is set on the frame that ends a kept job. OutcomeWritten must be called with
	// it when the whole frame has been written.
	Outcome uint64
	// Headers are the headers of a job, for workers that ask for headers; nil if the job has none.
	Headers []byte
	// Delay, in nanoseconds, is set if the code is JobRetryLater or JobLost (a negative value is no
	// delay), or if the op is OpReturn.
	Delay int64
}

// Code says why a request is refused, or why a job ends without an answer.
type Code uint8

// The core returns these codes. The protocol document has their texts.
const (
	IDExists Code = iota + 1
	UnknownID
	NotProcessing
	Overloaded
	Draining
	JobFailed
	JobLost       // like JobFailed; the last worker was lost
	JobNoRetry    // like JobFailed; the worker wanted no retry
	JobRetryLater // like JobFailed; a retry would have waited for Delay. Never used for a kept job
	// JobExpelled tells a lender not to retry the job, although no worker asked for that.
	JobExpelled
	Expired
	Cancelled
	TakenOver
)

// effect adds an effect and returns it, so that the caller can fill it in.
func (b *Broker) effect(op Op, p Peer, id []byte) *Effect {
	b.effects = append(b.effects, Effect{Op: op, Peer: p, ID: id})
	return &b.effects[len(b.effects)-1]
}

// toWorker adds an effect about job j for the worker that runs it. toSubmitter adds one for the
// submitter of its holding. Both set Run if the peer is another broker.
func (b *Broker) toWorker(op Op, w *worker, rec uint32, j *job) *Effect {
	e := b.effect(op, w.id, b.id(j))
	if w.isBorrower {
		e.Run = jobNumber(rec, j)
	}
	return e
}

func (b *Broker) toSubmitter(op Op, h *holding, rec uint32, j *job) *Effect {
	e := b.effect(op, h.submitter.id, b.id(j))
	if j.flags&flagBorrowed != 0 {
		e.Run = jobNumber(rec, j)
	}
	return e
}

func (b *Broker) replyOK(p Peer, id []byte) { b.effect(OpOK, p, id) }

func (b *Broker) refuse(p Peer, code Code, id []byte, reason Reason) {
	b.effect(OpRefuse, p, id).setCode(b, code, reason)
}

// setCode gives an effect its code and reason.
func (e *Effect) setCode(b *Broker, code Code, reason Reason) {
	b.reasons = append(b.reasons, reason)
	e.Code, e.Reason = code, &b.reasons[len(b.reasons)-1]
}
