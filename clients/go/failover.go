package gloom

import (
	"fmt"
	"slices"
)

// stayConnected keeps a submitter connected to a broker that accepts jobs, until it is closed.
func (s *Submitter) stayConnected() {
	defer s.endKept(ErrClosed)
	waitRetry := s.conf.newRetry()
	var sess *session // nil if there is none; while another broker is looked for, it may be one that drains
	for {
		exceptAddr, sessionEnd := "", s.ctx.Done()
		if sess != nil {
			exceptAddr, sessionEnd = sess.configuredAddr, sess.ended
		}
		next, err := s.tryAll(exceptAddr)
		switch {
		case s.ctx.Err() != nil:
			return
		case err == nil:
			sess = next
			drained := sess.drainedCtx.Done()
			if len(s.conf.addrs) == 1 {
				drained = nil // there is no other broker
			}
			select {
			case <-drained:
				continue // its pending jobs stay on it
			case <-sess.ended:
			}
		case !waitRetry(Notice{Event: EventFailed, Err: err}, sessionEnd):
			continue
		}
		if s.ctx.Err() != nil || s.leaving.Load() {
			return
		}
		s.mu.Lock()
		if len(s.keptJobs) > 0 { // only that broker can resume them
			s.nextAddr = slices.Index(s.conf.addrs, sess.configuredAddr)
		}
		s.mu.Unlock()
		waitRetry(Notice{Event: EventLost, Addr: sess.addr, Err: sess.lostError().Cause}, s.ctx.Done())
		sess = nil
	}
}

// tryAll tries each address except one once, in turn. The first broker that accepts the
// connection gets new jobs.
func (s *Submitter) tryAll(exceptAddr string) (*session, error) {
	refused, errs := true, error(nil)
	for range s.conf.addrs {
		addr := s.conf.addrs[s.nextAddr]
		s.nextAddr = (s.nextAddr + 1) % len(s.conf.addrs)
		if addr == exceptAddr {
			continue
		}
		sess := &session{conn: conn{conf: s.conf, mu: &s.mu, jobs: make(map[string]*Pending)}, owner: s, configuredAddr: addr}
		sess.client = sess
		err := sess.dial(s.ctx, s.ctx, addr, sess.sendHello)
		if err == nil {
			s.conf.notify(Notice{Event: EventConnected, Addr: sess.addr, MaxFrame: sess.maxOut})
			s.adopt(sess)
			return sess, nil
		}
		refused = refused && isPermanent(err)
		if errs != nil {
			err = fmt.Errorf("%w; %w", errs, err)
		}
		errs = err
	}
	if errs == nil {
		return nil, fmt.Errorf("gloom: no broker except %s, which is draining", exceptAddr)
	}
	s.mu.Lock()
	s.lastErr, s.allRefused = errs, refused && s.current == nil
	s.mu.wakeAll()
	s.mu.Unlock()
	if refused {
		s.endKept(errs)
	}
	return nil, errs
}

// adopt makes sess the connection for new jobs, unless it is lost. The previous one ends with
// its last job. Kept jobs of a lost connection to the same broker are resumed here; the window
// bounds their number.
func (s *Submitter) adopt(sess *session) {
	var endedJobs []*Pending
	s.mu.Lock()
	if sess.ctx.Err() == nil {
		if predecessor := s.current; predecessor != nil {
			if predecessor.isRetired = true; predecessor.isFinished() {
				predecessor.cancelCtx(ErrClosed)
			}
		}
		s.current, s.sessions = sess, append(s.sessions, sess)
		for _, p := range s.keptJobs {
			if p.session.configuredAddr == sess.configuredAddr {
				p.err = sess.sendJob(p, p.kept.frame)
			}
			if p.err != nil {
				endedJobs = append(endedJobs, p)
			} else if p.kept.cancelLater {
				sess.cancel(p)
			}
		}
		s.keptJobs = nil
	}
	s.lastErr, s.allRefused = nil, false
	s.mu.wakeAll()
	s.mu.Unlock()
	for _, p := range endedJobs {
		p.notify()
	}
}

// endKept ends the kept jobs that no connection will resume.
func (s *Submitter) endKept(cause error) {
	s.mu.Lock()
	kept := s.keptJobs
	s.keptJobs = nil
	s.mu.Unlock()
	for _, p := range kept {
		p.kept.lastLoss.Cause = cause
		p.notify()
	}
}
