package gloom

import "gloom/wire"

// kept is what a job needs to outlive its connection. It is guarded by
// session.mu, and by owner.mu while there is no connection.
type kept struct {
	frame    []byte     // its submit; nil when it is only to be attached to
	again    bool       // the submit may be sent again
	resent   bool       // the submit is sent again, and not acked
	unwanted bool       // to be cancelled; guarded by owner.mu
	lost     *LostError // how the connection before went, nil for the first one
}

// entry is the request, not yet in line, that brings the job to a connection.
func (p *Pending) entry() request {
	if k := p.kept; k != nil && (k.frame == nil || k.lost != nil && k.lost.Sent && !k.resent) {
		return request{verb: wire.Attach, job: p}
	}
	return request{verb: wire.Submit, job: p, silent: p.silent}
}

// resume goes on with kept jobs of a connection that was lost, unless this one
// has gone as well. Their number is bounded by the window.
func (s *session) resume(jobs []*Pending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	for _, p := range jobs {
		r := s.enter(p)
		if r.verb == wire.Attach {
			s.out = wire.AppendAttach(s.out, []byte(p.key), p.progress != nil)
		} else {
			s.out = append(s.out, p.kept.frame...)
		}
		s.push(r)
		if p.kept.unwanted {
			s.out = wire.AppendCancelRequest(s.out, []byte(p.key))
			s.push(request{verb: wire.Cancel, id: p.key})
		}
	}
	return true
}

// notBack acts on the refusal of what was to bring back a job of a lost
// connection.
func (s *session) notBack(r *request, refusal *RefusedError) {
	p, k := r.job, r.job.kept
	lost := *k.lost
	lost.Cause = refusal
	switch {
	case s.jobs[p.key] != p || s.err != nil: // it goes with this connection
	case k.again && !k.resent && r.verb == wire.Attach && refusal.Code == ErrUnknownID:
		k.resent = true
		delete(s.jobs, p.key)
		s.news = append(s.news, news{job: p, what: jobMissing, err: &lost})
	case k.resent && r.verb == wire.Submit && refusal.Code == ErrIDExists:
		// The submit of the lost connection was on its way still.
		s.out = wire.AppendAttach(s.out, []byte(p.key), p.progress != nil)
		p.seq = s.waiting.tail
		s.push(request{verb: wire.Attach, job: p})
	case !lost.Sent:
		s.end(p, nil, &RefusedError{Code: refusal.Code, Reason: refusal.Reason, ID: p.id})
	default:
		s.end(p, nil, &lost)
	}
}

// resubmit sends a kept job again that its broker no longer knows.
func (s *Submitter) resubmit(p *Pending, lost *LostError) {
	s.mu.Lock()
	unwanted := p.kept.unwanted
	s.mu.Unlock()
	if !unwanted {
		err := s.send(s.life, p, p.kept.frame, true)
		if err == nil {
			return
		}
		lost.Cause = err
	}
	p.end(Result{}, lost)
}

// endKept ends what no connection will go on with.
func (s *Submitter) endKept() {
	s.mu.Lock()
	kept := s.kept
	s.kept = nil
	s.mu.Unlock()
	for _, p := range kept {
		p.kept.lost.Cause = ErrClosed
	}
	endLost(kept)
}

func endLost(jobs []*Pending) {
	for _, p := range jobs {
		p.end(Result{}, p.kept.lost)
	}
}
