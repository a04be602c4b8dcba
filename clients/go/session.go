package gloom

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"gloom/wire"
)

// session is a submitter's connection to one broker.
type session struct {
	conn           // guarded by the owner's mu
	owner          *Submitter
	configuredAddr string // the address as the options give it
	isRetired      bool   // it gets no new jobs, and ends with the last pending one
}

// sendJob brings a job to this connection, unless its frame is too large; submit is the frame of
// its submit. If the broker may have the job, the first request is an attach. If the broker does
// not know the job, and the submit may be sent twice, the second request is a submit. If the broker
// refuses it because the id exists, the submit on the lost connection has arrived late, and the
// third request is an attach again.
func (s *session) sendJob(p *Pending, submit []byte) error {
	r, frame := request{verb: wire.Submit, key: p.key, job: p, noAck: p.noAck}, submit
	if k := p.kept; k != nil && (k.frame == nil || k.lastLoss != nil && k.lastLoss.Sent && k.refusals != 1) {
		r.verb, r.noAck = wire.Attach, false
		frame = wire.AppendAttach(nil, []byte(p.key), p.onProgress != nil)
	}
	if size := len(frame) - wire.HeaderLen; size > s.maxOut {
		return &RefusedError{Code: ErrSizeError, ID: p.id,
			Reason: fmt.Sprintf("frame of %d bytes, at most %d are allowed", size, s.maxOut)}
	}
	p.session, p.requestNumber = s, s.requests.nextNumber
	s.jobs[p.key] = p
	s.send(frame, r)
	return nil
}

// cancel cancels a job that is on this connection, without waiting.
func (s *session) cancel(p *Pending) {
	s.send(wire.AppendCancel(nil, []byte(p.key)), request{verb: wire.Cancel, key: p.key})
}

func (s *session) isFinished() bool {
	return s.isRetired && len(s.jobs) == 0 && s.requests.isEmpty()
}

// onLoss ends the jobs pending here, in the order of submits. The next connection to the same
// broker may resume kept jobs of the current one.
func (s *session) onLoss(loss *LostError) {
	o := s.owner
	keeps := o.current == s && o.ctx.Err() == nil && !o.leaving.Load()
	if o.current == s {
		o.current = nil
	}
	o.sessions = slices.DeleteFunc(o.sessions, func(other *session) bool { return other == s })
	jobs := slices.SortedFunc(maps.Values(s.jobs), func(a, b *Pending) int { return cmp.Compare(a.requestNumber, b.requestNumber) })
	for _, p := range jobs {
		sent := p.acked || p.requestNumber < s.firstUnwritten || p.kept != nil && p.kept.lastLoss != nil && p.kept.lastLoss.Sent
		err := &LostError{ID: p.id, Addr: s.addr, Acked: p.acked, Sent: sent, Cause: loss.Cause}
		if p.kept == nil || !keeps {
			s.endJob(p, nil, err)
			continue
		}
		p.err, p.kept.lastLoss, p.kept.refusals = err, err, 0
		o.keptJobs = append(o.keptJobs, p)
	}
	s.jobs = nil
}

func (s *session) onEvent(*wire.Event) error { return nil }

func (s *session) onReply(r request, refusal *RefusedError) error {
	p := r.job
	if refusal != nil && p != nil {
		refusal.ID = p.id // the broker may have left it out
	}
	switch {
	case r.verb == wire.Cancel:
		// A job with the same id that was submitted after the cancel is another job.
		if p := s.jobs[r.key]; refusal == nil && p != nil && p.requestNumber < s.requests.firstNumber {
			s.endJob(p, nil, &JobError{Code: ErrCancelled, ID: p.id, Reason: "by its submitter"})
		}
	case p == nil || s.jobs[p.key] != p: // it has ended
	case refusal != nil && p.kept != nil && p.kept.lastLoss != nil && p.kept.lastLoss.Sent:
		s.onResumeRefused(p, refusal)
	case refusal != nil:
		s.endJob(p, nil, refusal)
	case p.isDetached:
		s.endJob(p, nil, nil)
	default:
		if k := p.kept; k != nil {
			if k.refusals = 0; !k.mayResend {
				k.frame = nil
			}
		}
		p.markAccepted()
	}
	return nil
}

// keptState is what a job needs to outlive its connection.
type keptState struct {
	frame       []byte     // the frame of its submit; nil if the job is only attached to
	mayResend   bool       // the submit may be sent again
	cancelLater bool       // cancel it once there is a connection
	lastLoss    *LostError // how the previous connection was lost, nil for the first one
	refusals    int        // how often this connection's broker has refused to attach it
}

// onResumeRefused handles the refusal of a request to resume a job that may have run: it sends the next request, or ends the job.
func (s *session) onResumeRefused(p *Pending, refusal *RefusedError) {
	k := p.kept
	if s.ctx.Err() != nil {
		return // the job ends with this connection
	}
	loss := *k.lastLoss
	loss.Cause = refusal
	if k.refusals == 0 && k.mayResend && !k.cancelLater && refusal.Code == ErrUnknownID || k.refusals == 1 && refusal.Code == ErrIDExists {
		k.refusals++
		if loss.Cause = s.sendJob(p, k.frame); loss.Cause == nil {
			return
		}
	}
	s.endJob(p, nil, &loss)
}

// abandon cancels a job whose caller no longer waits: at once, or when there is a connection again.
func (s *Submitter) abandon(p *Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.kept != nil {
		p.kept.cancelLater = true
	}
	if p.session.jobs[p.key] == p {
		p.session.cancel(p)
	}
}
