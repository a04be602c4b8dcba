package gloom

// kept is what a job needs to outlive its connection.
type kept struct {
	frame    []byte     // the frame of its submit; nil if the job is only attached to
	again    bool       // the submit may be sent again
	unwanted bool       // it is to be cancelled
	lost     *LostError // how the previous connection was lost, nil for the first one
	asked    int        // how often this connection's broker has refused to attach it
}

// notResumed acts on the refusal of a request to resume a job.
func (s *session) notResumed(p *Pending, refusal *RefusedError) {
	k := p.kept
	if s.jobs[p.key] != p || s.life.Err() != nil {
		return // it ends with this connection
	}
	if !k.lost.Sent {
		s.endJob(p, nil, refusal)
		return
	}
	lost := *k.lost
	lost.Cause = refusal
	if k.asked == 0 && k.again && !k.unwanted && refusal.Code == ErrUnknownID || k.asked == 1 && refusal.Code == ErrIDExists {
		k.asked++
		if lost.Cause = s.sendJob(p, k.frame); lost.Cause == nil {
			return
		}
	}
	s.endJob(p, nil, &lost)
}

// abandon cancels a job for which its caller no longer waits: at once, or when there is a
// connection again.
func (s *Submitter) abandon(p *Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.kept != nil {
		p.kept.unwanted = true
	}
	if p.session.jobs[p.key] == p {
		p.session.cancel(p)
	}
}
