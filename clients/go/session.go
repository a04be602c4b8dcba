package gloom

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
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
	owner *Submitter
	home  string        // which of the addresses given
	over  chan struct{} // closed when all that was pending here has ended or is kept

	// Guarded by conn.mu.
	jobs    map[string]*Pending // by canonical id
	retired bool                // takes no new jobs; ends with the last pending one

	drains chan struct{} // closed when the broker has said that it drains
	drain  func()        // closes it
}

func newSession(owner *Submitter, home, addr string, nc net.Conn) *session {
	s := &session{
		owner: owner, home: home, over: make(chan struct{}),
		jobs: make(map[string]*Pending), drains: make(chan struct{}),
	}
	s.drain = sync.OnceFunc(func() { close(s.drains) })
	s.init(owner.life, owner.conf, addr, nc, s)
	return s
}

// run serves the connection until it goes, ends what is pending on it, and
// returns what is kept, in the order in which it came here.
func (s *session) run() (kept []*Pending) {
	cause := s.conn.run().Cause
	s.mu.Lock()
	jobs := s.jobs
	s.jobs = nil
	s.mu.Unlock()
	for _, p := range jobs {
		lost := p.lost(s.addr, p.seq < s.written, cause)
		if p.kept == nil {
			p.end(lost)
			continue
		}
		p.kept.lost, p.kept.resent = lost, false
		kept = append(kept, p)
	}
	slices.SortFunc(kept, func(a, b *Pending) int { return cmp.Compare(a.seq, b.seq) })
	return kept
}

// enter puts a job on the table, whose request is to be the next one in line.
func (s *session) enter(p *Pending) {
	p.session.Store(s)
	p.seq = s.waiting.tail
	s.jobs[p.key] = p
}

// fits refuses a frame of a job that is larger than the broker takes.
func (s *session) fits(p *Pending, frame []byte) error {
	if size := len(frame) - wire.HeaderLen; size > s.maxOut {
		return &RefusedError{Code: ErrSizeError, ID: p.id,
			Reason: fmt.Sprintf("frame of %d bytes, at most %d are taken", size, s.maxOut)}
	}
	return nil
}

// submit sends the frame that brings a job here. It returns errGone when the
// session takes no more jobs.
func (s *session) submit(ctx context.Context, p *Pending, frame []byte, wait bool) error {
	if err := s.fits(p, frame); err != nil {
		return err
	}
	return s.put(ctx, wait, frame, func() (request, error) {
		if s.retired {
			return request{}, errGone
		}
		if s.jobs[p.key] != nil {
			return request{}, &RefusedError{Code: ErrIDExists, ID: p.id, Reason: "id is pending on this connection"}
		}
		s.enter(p)
		return p.entry(), nil
	})
}

// ask sends a request that is not about a new job when there is room for it. Its
// reply goes to r.then.
func (s *session) ask(ctx context.Context, r request, frame []byte) error {
	if s.conf.compat {
		return ErrUnsupported
	}
	return s.put(ctx, true, frame, func() (request, error) { return r, nil })
}

// call is ask that waits for the reply.
func (s *session) call(ctx context.Context, r request, frame []byte) error {
	err := await(ctx, func(done func(error)) error {
		r.then = done
		return s.ask(ctx, r, frame)
	})
	if err == errGone {
		err = s.lost()
	}
	return err
}

// await waits for what done is told, if it is to be told anything.
func await(ctx context.Context, ask func(done func(error)) error) error {
	replied := make(chan error, 1)
	if err := ask(func(err error) { replied <- err }); err != nil {
		return err
	}
	select {
	case err := <-replied:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cancel is the request to cancel a job.
func cancel(key string) (r request, frame []byte) {
	return request{verb: wire.Cancel, key: key}, wire.AppendCancelRequest(nil, []byte(key))
}

// job is the job with the id that is pending here, or nil.
func (s *session) job(key string) *Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[key]
}

// retire lets the session end when nothing is pending on it any more.
func (s *session) retire() {
	s.mu.Lock()
	s.retired = true
	s.mu.Unlock()
	s.finish()
}

func (s *session) finished() bool {
	return s.retired && len(s.jobs) == 0 && s.waiting.empty()
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
		s.notBack(&r, refusal)
	case refusal != nil:
		s.end(p, nil, &RefusedError{Code: refusal.Code, Reason: refusal.Reason, ID: p.id})
	case p.detach:
		s.end(p, nil, nil)
	default:
		if k := p.kept; k != nil {
			if k.resent = false; !k.again {
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
