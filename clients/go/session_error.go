package gloom

import "gloom/wire"

// onError acts on an error frame: the refusal of a request, the end of a job, or
// the broker's word before it closes the connection.
func (s *session) onError(ev *wire.Event) error {
	if ev.ID == nil {
		return s.onNamelessError(ev)
	}
	code := Code(ev.Code)
	s.mu.Lock()
	p := s.jobs[string(ev.ID)]
	due := s.due()
	var first *request // that must be replied to, if it is about this id
	if due != s.waiting.tail {
		if r := s.waiting.at(due); r.name() == string(ev.ID) {
			first = r
		}
	}
	switch {
	case first != nil && first.kind == askCancel && refusesCancel(code, p, s.waiting.head, due):
		call := first.call
		s.settle(due)
		s.waiting.pop()
		s.mu.Unlock()
		s.tell()
		call.finish(&RefusedError{Code: code, Reason: ev.Reason, ID: wire.Value(ev.ID)})
		return s.leftover()
	case p == nil:
		if first != nil { // its job has ended against the order; this is its reply
			s.settle(due)
			s.waiting.pop()
		}
		s.mu.Unlock()
		s.tell()
		return s.leftover()
	case p.seq > due:
		s.mu.Unlock()
		return &ProtocolError{Reason: ev.Code + " for id " + wire.Value(ev.ID) + " before earlier replies"}
	}
	// What is about a submit that waits for its reply is the reply. Without an ack
	// it may also be the end of a job taken in silence; only the code can tell.
	quiet := p.seq >= s.waiting.head && p.seq < due
	refused := quiet && !endsJob(code) || first != nil && first.job == p && first.kind == askSubmit
	if quiet {
		s.settleThrough(p)
	} else if refused {
		s.settle(due)
		s.waiting.pop()
	}
	delete(s.jobs, p.key)
	s.mu.Unlock()
	s.tell()
	if refused {
		p.end(Result{}, &RefusedError{Code: code, Reason: ev.Reason, ID: p.id})
	} else {
		p.end(Result{}, &JobError{Code: code, Reason: ev.Reason, ID: p.id, Lost: ev.Cause == wire.CauseLost})
	}
	s.heedDrain(code)
	return s.leftover()
}

// refusesCancel tells the reply to a cancel, request number due, from the end of
// the job p of the same id and from the refusal of its submit.
func refusesCancel(code Code, p *Pending, head, due uint64) bool {
	switch {
	case code == ErrUnknownID || p == nil || p.seq > due:
		return true
	case endsJob(code):
		return false
	}
	unreplied := p.seq >= head && p.seq < due
	return !unreplied
}

// endsJob reports whether a code can end a job that was taken.
func endsJob(code Code) bool {
	c, known := wire.ParseCode(string(code))
	return known && c.EndsJob()
}

// onNamelessError acts on an error that is about no job.
func (s *session) onNamelessError(ev *wire.Event) error {
	refusal := &RefusedError{Code: Code(ev.Code), Reason: ev.Reason}
	s.mu.Lock()
	due := s.due()
	reached := due != s.waiting.tail
	var r request
	switch {
	case reached && s.waiting.at(due).kind == askHello:
	case refusal.Code == ErrUnauthorized || refusal.Code == ErrOverloaded || !reached:
		// About the connection, which the broker is about to close.
		s.refusal = refusal
		s.mu.Unlock()
		return refusal
	case refusal.Code == ErrSizeError || refusal.Code == ErrInvalidJSON:
		s.refusal = refusal
	}
	s.settle(due)
	if r = s.waiting.pop(); r.job != nil && r.kind == askSubmit {
		delete(s.jobs, r.job.key)
	}
	s.mu.Unlock()
	s.tell()
	if r.kind == askSubmit {
		r.job.end(Result{}, &RefusedError{Code: refusal.Code, Reason: ev.Reason, ID: r.job.id})
	}
	r.call.finish(refusal)
	s.heedDrain(refusal.Code)
	return s.leftover()
}

// heedDrain tells the submitter to look for another broker.
func (s *session) heedDrain(code Code) {
	if code == ErrDraining && !s.draining {
		s.draining = true
		close(s.drains)
	}
}
