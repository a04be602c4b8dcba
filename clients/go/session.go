package gloom

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"gloom/wire"
)

// session is a submitter's connection to one broker, with the jobs that have not
// ended, by id.
//
// An error frame with a job's id is either the reply to a request or the end of a
// job taken earlier. Two rules make that unambiguous. Replies come in the order
// of the requests, so only the first request that must be replied to, and the
// silent ones before it, can be meant by a reply. And no id is submitted on a
// connection on which a job of that id is pending, so at most one job can be
// meant.
type session struct {
	conn
	owner  *Submitter
	home   string        // which of the addresses given
	drains chan struct{} // closed when the broker has said that it drains
	drain  func()        // closes it

	// Guarded by mu, which is the owner's.
	jobs    map[string]*Pending // by canonical id
	retired bool                // takes no new jobs; ends with the last pending one
}

// open connects to one broker.
func (s *Submitter) open(home string) (*session, error) {
	sess := &session{
		conn: conn{conf: s.conf, mu: &s.mu}, owner: s, home: home,
		jobs: make(map[string]*Pending), drains: make(chan struct{}),
	}
	sess.user = sess
	sess.drain = sync.OnceFunc(func() { close(sess.drains) })
	if err := sess.dial(s.life, s.life, home); err != nil {
		return nil, err
	}
	err := sess.greet(func(done func(error)) {
		if s.conf.wantsHello() {
			sess.post(s.conf.hello(), request{verb: wire.Hello, then: done})
		} else {
			done(nil)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("gloom: connect to %s: %w", sess.addr, err)
	}
	s.conf.notify(Notice{Event: EventConnected, Addr: sess.addr})
	return sess, nil
}

// bring sends the request that brings a job here, unless its frame is larger than
// the broker takes.
func (s *session) bring(p *Pending, r request, frame []byte) error {
	if size := len(frame) - wire.HeaderLen; size > s.maxOut {
		return &RefusedError{Code: ErrSizeError, ID: p.id,
			Reason: fmt.Sprintf("frame of %d bytes, at most %d are taken", size, s.maxOut)}
	}
	p.session, p.seq = s, s.waiting.tail
	s.jobs[p.key] = p
	s.post(frame, r)
	return nil
}

// cancel is the request to cancel a job.
func cancel(key string) (r request, frame []byte) {
	return request{verb: wire.Cancel, key: key}, wire.AppendCancelRequest(nil, []byte(key))
}

func (s *session) finished() bool {
	return s.retired && len(s.jobs) == 0 && s.waiting.empty()
}

// gone ends what is pending here, in the order in which it came. Of the current
// connection, the next one to the same broker may go on with kept jobs.
func (s *session) gone(lost *LostError) {
	o := s.owner
	keeps := o.current == s && o.life.Err() == nil
	if o.current == s {
		o.current = nil
	}
	o.sessions = slices.DeleteFunc(o.sessions, func(other *session) bool { return other == s })
	jobs := slices.SortedFunc(maps.Values(s.jobs), func(a, b *Pending) int { return cmp.Compare(a.seq, b.seq) })
	for _, p := range jobs {
		err := p.lost(s.addr, p.seq < s.written, lost.Cause)
		if p.kept == nil || !keeps {
			s.end(p, nil, err)
			continue
		}
		p.err, p.kept.lost, p.kept.asked = err, err, 0
		o.kept = append(o.kept, p)
	}
	s.jobs = nil
}

func (s *session) event(ev *wire.Event) error {
	p := s.jobs[string(ev.ID)]
	switch {
	case ev.Kind == wire.EventError:
		if Code(ev.Code) == ErrDraining {
			s.drain()
		}
		if ev.ID == nil {
			return s.refused(ev)
		}
		return s.onError(ev, p)
	case p == nil:
	case ev.Kind == wire.EventResult:
		s.settle(p.seq + 1)
		s.end(p, ev.Body, nil)
	case ev.Kind == wire.EventProgress:
		s.settle(p.seq + 1)
		p.taken()
		if p.progress != nil {
			body := bytes.Clone(ev.Body)
			s.news = append(s.news, call(func() { p.progress(body) }))
		}
	}
	return nil
}

func (s *session) replied(r request, refusal *RefusedError) error {
	p := r.job
	switch {
	case r.verb == wire.Cancel:
		// Of a job that was submitted behind the cancel, another one was meant.
		if p := s.jobs[r.key]; refusal == nil && p != nil && p.seq < s.waiting.head {
			s.end(p, nil, &JobError{Code: ErrCancelled, ID: p.id, Reason: "by its submitter"})
		}
	case p == nil:
	case refusal != nil && p.kept != nil && p.kept.lost != nil:
		s.notBack(p, refusal)
	case refusal != nil:
		s.end(p, nil, &RefusedError{Code: refusal.Code, Reason: refusal.Reason, ID: p.id})
	case p.detach:
		s.end(p, nil, nil)
	default:
		if k := p.kept; k != nil {
			if k.asked = 0; !k.again {
				k.frame = nil
			}
		}
		p.taken()
	}
	return nil
}

// onError acts on an error with the id of p, the job that is pending under it,
// or nil.
func (s *session) onError(ev *wire.Event, p *Pending) error {
	refusal, due := newRefusal(ev), s.due()
	if due != s.waiting.tail {
		if r := s.waiting.at(due); r.key == string(ev.ID) && s.replies(refusal.Code, r, p, due) {
			return s.reply(due, refusal)
		}
	}
	switch {
	case p == nil:
		return nil
	case p.seq > due:
		return &ProtocolError{Reason: ev.Code + " for id " + refusal.ID + " before earlier replies"}
	case s.unreplied(p, due):
		// Without an ack this may be the refusal, or the end of a job taken in
		// silence; only the code can tell.
		s.settle(p.seq)
		if r := s.waiting.pop(); !endsJob(refusal.Code) {
			return s.replied(r, refusal)
		}
	}
	s.end(p, nil, &JobError{
		Code: refusal.Code, Reason: ev.Reason, ID: refusal.ID,
		Lost: ev.Cause == wire.CauseLost, Final: ev.Cause == wire.CauseFinal,
		Later: ev.Cause == wire.CauseLater, Delay: time.Duration(ev.DelayMS) * time.Millisecond,
	})
	return nil
}

// replies tells the reply to request number due from the end of the job p of the
// same id and from the refusal of its submit.
func (s *session) replies(code Code, r *request, p *Pending, due uint64) bool {
	switch {
	case r.verb == wire.Submit, r.verb == wire.Attach, code == ErrUnknownID, p == nil, p.seq > due:
		return true
	case code == ErrTakenOver:
		return false
	}
	return !endsJob(code) && !s.unreplied(p, due)
}

// unreplied says whether p was sent silently and nothing has proven it taken.
func (s *session) unreplied(p *Pending, due uint64) bool {
	return p.seq >= s.waiting.head && p.seq < due
}

// endsJob reports whether a code can end a job that was taken.
func endsJob(code Code) bool {
	c, known := wire.ParseCode(string(code))
	return known && c.EndsJob()
}

// end takes a job off the table, unless it has ended before.
func (s *session) end(p *Pending, body []byte, err error) {
	if s.jobs[p.key] != p {
		return
	}
	delete(s.jobs, p.key)
	if p.err = err; err == nil {
		p.result = Result{ID: p.id, Body: body}
	}
	s.news = append(s.news, p)
}
