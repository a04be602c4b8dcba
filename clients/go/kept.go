package gloom

import "gloom/wire"

// kept is what a job needs to outlive its connection. It is guarded by
// session.mu, and by owner.mu while there is no connection.
type kept struct {
	frame    []byte     // its submit; nil when it is only to be attached to
	again    bool       // the submit may be sent again
	resent   bool       // the submit is sent again, and not acked
	unwanted bool       // to be cancelled; written with both held
	lost     *LostError // how the connection before went, nil for the first one
}

// entry is the request, not yet in line, that brings the job to a connection.
func (p *Pending) entry() request {
	if k := p.kept; k != nil && (k.frame == nil || k.lost != nil && k.lost.Sent && !k.resent) {
		return request{verb: wire.Attach, key: p.key, job: p}
	}
	return request{verb: wire.Submit, key: p.key, job: p, silent: p.silent}
}

// bring sends the request that brings a kept job here.
func (s *session) bring(p *Pending, r request) {
	frame := p.kept.frame
	if r.verb == wire.Attach {
		frame = wire.AppendAttach(nil, []byte(p.key), p.progress != nil)
	}
	s.enter(p)
	s.post(frame, r)
}

// resume goes on with kept jobs of a connection that was lost, unless this one
// has gone as well. Their number is bounded by the window. It returns those that
// were never sent and are larger than this broker takes, with the reason in err.
func (s *session) resume(jobs []*Pending) (refused []*Pending, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, false
	}
	for _, p := range jobs {
		r := p.entry()
		if r.verb == wire.Submit {
			if p.err = s.fits(p, p.kept.frame); p.err != nil {
				refused = append(refused, p)
				continue
			}
		}
		s.bring(p, r)
		if p.kept.unwanted {
			r, frame := cancel(p.key)
			s.post(frame, r)
		}
	}
	return refused, true
}

// notBack acts on the refusal of what was to bring back a job of a lost
// connection.
func (s *session) notBack(r *request, refusal *RefusedError) {
	p, k := r.job, r.job.kept
	lost := *k.lost
	lost.Cause = refusal
	switch {
	case s.jobs[p.key] != p || s.life.Err() != nil: // it goes with this connection
	case k.again && !k.resent && !k.unwanted && r.verb == wire.Attach && refusal.Code == ErrUnknownID:
		k.resent = true
		if lost.Cause = s.fits(p, k.frame); lost.Cause != nil {
			s.end(p, nil, &lost)
		} else {
			s.bring(p, p.entry())
		}
	case k.resent && r.verb == wire.Submit && refusal.Code == ErrIDExists:
		// The submit of the lost connection was on its way still.
		s.bring(p, request{verb: wire.Attach, key: p.key, job: p})
	case !lost.Sent:
		s.end(p, nil, &RefusedError{Code: refusal.Code, Reason: refusal.Reason, ID: p.id})
	default:
		s.end(p, nil, &lost)
	}
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
		p.end(p.kept.lost)
	}
}
