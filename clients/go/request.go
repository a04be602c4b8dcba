package gloom

import (
	"bytes"
	"fmt"
	"time"

	"gloom/wire"
)

// request is a request to the broker. Replies come in the order of requests. A request without ack
// gets a reply only if it is refused.
type request struct {
	verb            wire.Verb
	noAck           bool        // "ack":false
	replacesRefused bool        // for an answer: it replaces one that was refused
	notStarted      bool        // for a release: its run has not begun
	stopsWorker     bool        // for a leave: the worker stops
	key             string      // the canonical id that a reply may carry, "" for none
	job             *Pending    // the job of a submit, an attach, or a Pending's cancel
	run             *Run        // of an answer
	done            func(error) // called with the reply, without mu held
}

// receive acts on a frame. An error with a job's id is either the reply to a request or the end
// of an accepted job. Two rules decide which. Replies come in the order of requests, so a reply
// can only be for the first request that must have one, or for one without ack before it. And no
// id is submitted on a connection while a job with that id is pending, so the error can be about
// at most one job.
func (c *conn) receive(ev *wire.Event) error {
	switch ev.Kind {
	case wire.EventPing:
		c.write(wire.AppendPong(nil))
	case wire.EventOK:
		return c.onOK(ev)
	case wire.EventError:
		return c.onError(ev, c.jobs[string(ev.ID)])
	case wire.EventResult:
		if p := c.jobs[string(ev.ID)]; p != nil {
			c.acceptNoAck(p.requestNumber + 1)
			c.endJob(p, ev.Body, nil)
		}
	case wire.EventProgress:
		if p := c.jobs[string(ev.ID)]; p != nil {
			c.acceptNoAck(p.requestNumber + 1)
			p.markAccepted()
			if body := bytes.Clone(ev.Body); p.onProgress != nil {
				c.notifications = append(c.notifications, notifyFunc(func() { p.onProgress(body) }))
			}
		}
	default:
		return c.client.onEvent(ev)
	}
	return nil
}

// firstWithReply returns the number of the first request that must have a reply, or tail.
func (c *conn) firstWithReply() uint64 {
	n := c.requests.firstNumber
	for n != c.requests.nextNumber && c.requests.get(n).noAck {
		n++
	}
	return n
}

// acceptNoAck removes submits without ack before request n from the queue, up to a request that must
// have a reply: a later frame proves that they were accepted.
func (c *conn) acceptNoAck(n uint64) {
	for c.requests.firstNumber < n && c.requests.get(c.requests.firstNumber).noAck {
		c.client.onReply(c.requests.pop(), nil)
	}
}

// finishReply removes request replyNumber from the queue and acts on its reply.
func (c *conn) finishReply(replyNumber uint64, refusal *RefusedError) error {
	c.acceptNoAck(replyNumber)
	r := c.requests.pop()
	if refusal == nil {
		c.finishRequest(r, nil)
	} else if c.finishRequest(r, refusal); r.verb == wire.Hello {
		return refusal
	}
	return c.client.onReply(r, refusal)
}

// finishRequest passes on the reply to a request, or why there will be none.
func (c *conn) finishRequest(r request, err error) {
	if r.done != nil {
		c.notifications = append(c.notifications, notifyFunc(func() { r.done(err) }))
	}
}

func (c *conn) onOK(ev *wire.Event) error {
	replyNumber := c.firstWithReply()
	if replyNumber == c.requests.nextNumber {
		return &ProtocolError{Reason: "ok without a request"}
	}
	r := c.requests.get(replyNumber)
	if ev.ID != nil && r.key != string(ev.ID) {
		return &ProtocolError{Reason: fmt.Sprintf("ok for id %q in place of %q", wire.Value(ev.ID), wire.Value([]byte(r.key)))}
	}
	if r.verb == wire.Hello && ev.MaxFrame > 0 {
		c.maxOut = ev.MaxFrame
		c.maxIn = max(ev.MaxFrameOut, wire.MaxPayloadOut(ev.MaxFrame))
	}
	return c.finishReply(replyNumber, nil)
}

// onError acts on an error frame: it is the next reply, the refusal or the end of job p, which is
// pending under its id, or the broker's reason for closing the connection.
func (c *conn) onError(ev *wire.Event, p *Pending) error {
	refusal := &RefusedError{Code: Code(ev.Code), Reason: ev.Reason, ID: wire.Value(ev.ID)}
	code, replyNumber := refusal.Code, c.firstWithReply()
	knownCode, _ := wire.ParseCode(ev.Code)
	ends := knownCode.EndsJob()                                              // the code can end an accepted job
	unproven := p != nil && p.requestNumber >= c.requests.firstNumber        // the submit of p, without ack, may still be refused
	replies, nameless := replyNumber != c.requests.nextNumber, c.jobs == nil // to a worker, all errors are replies
	if ev.ID == nil {
		nameless = true
		if code == ErrOverloaded || code == ErrUnauthorized { // about the connection
			replies = replies && c.requests.get(replyNumber).verb == wire.Hello
		}
	} else if !nameless {
		// A frame that ends or refuses job p cannot answer a later request with the same id.
		ofJob := p != nil && p.requestNumber < replyNumber && code != ErrUnknownID && (code == ErrTakenOver || ends || unproven)
		replies = replies && c.requests.get(replyNumber).key == string(ev.ID) && !ofJob
	}
	switch {
	case code == ErrDraining:
		c.cancelDrained()
	case code == ErrSizeError, code == ErrInvalidJSON, nameless && !replies:
		c.refusal = refusal // it may close the connection now
	}
	switch {
	case replies:
		return c.finishReply(replyNumber, refusal)
	case nameless:
		return refusal
	case p == nil:
		return nil
	case p.requestNumber > replyNumber:
		return &ProtocolError{Reason: ev.Code + " for id " + refusal.ID + " before earlier replies"}
	case unproven:
		// Without an ack, only the code distinguishes a refusal from the end of an accepted job.
		c.acceptNoAck(p.requestNumber)
		if r := c.requests.pop(); !ends {
			return c.client.onReply(r, refusal)
		}
	}
	c.endJob(p, nil, &JobError{
		Code: code, Reason: ev.Reason, ID: refusal.ID,
		Lost: ev.Cause == wire.CauseLost, Final: ev.Cause == wire.CauseFinal,
		Later: ev.Cause == wire.CauseLater, Delay: time.Duration(ev.DelayMS) * time.Millisecond,
	})
	return nil
}

// endJob removes a job from the table, unless it has ended already.
func (c *conn) endJob(p *Pending, body []byte, err error) {
	if c.jobs[p.key] != p {
		return
	}
	delete(c.jobs, p.key)
	if p.err = err; err == nil {
		p.result = Result{ID: p.id, Body: body}
	}
	c.notifications = append(c.notifications, p)
}
