package gloom

import "gloom/wire"

// kept is what a job needs to outlive its connection.
type kept struct {
	frame    []byte     // the frame of its submit; nil if the job is only attached to
	again    bool       // the submit may be sent again
	unwanted bool       // it is to be cancelled
	lost     *LostError // how the previous connection was lost, nil for the first one
	asked    int        // how often this connection's broker has refused to attach it
}

// entry returns the request that brings the job to a connection, and its frame; submit is the
// frame of its submit. The request is an attach if the broker may have the job. If the broker
// turns out not to know the job, and the submit may be sent twice, the next request is the
// submit. If the broker refuses that because the id exists, the submit on the lost connection has
// arrived late: the last request is an attach again.
func (p *Pending) entry(submit []byte) (request, []byte) {
	if k := p.kept; k != nil && (k.frame == nil || k.lost != nil && k.lost.Sent && k.asked != 1) {
		return request{verb: wire.Attach, key: p.key, job: p}, wire.AppendAttach(nil, []byte(p.key), p.progress != nil)
	}
	return request{verb: wire.Submit, key: p.key, job: p, silent: p.silent}, submit
}

// resume brings a kept job of a lost connection to this one.
func (s *session) resume(p *Pending) error {
	r, frame := p.entry(p.kept.frame)
	return s.sendJob(p, r, frame)
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
		if lost.Cause = s.resume(p); lost.Cause == nil {
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
