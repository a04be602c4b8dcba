package gloom

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// stayConnected keeps a submitter connected until it is closed: to one broker as
// long as that serves, then to the next one that does.
func (s *Submitter) stayConnected(sess *session) {
	retry := newRetry(s.conf)
	for {
		if sess == nil {
			var err error
			if sess, err = s.tryAll(s.life, ""); err != nil {
				if s.life.Err() != nil {
					return
				}
				wait := retry.next()
				s.conf.notify(Notice{Event: EventFailed, Err: err, Wait: wait})
				if pause(wait, s.life.Done()) {
					return
				}
				continue
			}
			s.adopt(sess)
		}
		drains := sess.drains
		if len(s.conf.addrs) == 1 {
			drains = nil // there is nowhere else to go
		}
		since := time.Now()
		select {
		case <-s.life.Done():
			return
		case <-drains:
			sess = s.moveOn(sess, retry)
		case <-sess.done:
			retry.lasted(time.Since(since))
			s.dismiss(sess)
			wait := retry.next()
			s.conf.notify(Notice{Event: EventLost, Addr: sess.addr, Err: sess.why(), Wait: wait})
			if pause(wait, s.life.Done()) {
				return
			}
			sess = nil
		}
	}
}

// moveOn leaves a draining broker for another one. What is pending on the old
// connection stays there. It returns the old session if that goes first.
func (s *Submitter) moveOn(old *session, retry *retry) *session {
	for {
		sess, err := s.tryAll(s.life, old.addr)
		if err == nil {
			s.adopt(sess)
			old.retire()
			return sess
		}
		if s.life.Err() != nil {
			return old
		}
		wait := retry.next()
		s.conf.notify(Notice{Event: EventFailed, Err: err, Wait: wait})
		if pause(wait, old.done) {
			return old
		}
	}
}

// tryAll makes one attempt at each address in turn, but for the one left out.
func (s *Submitter) tryAll(ctx context.Context, except string) (*session, error) {
	var all error
	refused := true
	for range s.conf.addrs {
		addr := s.conf.addrs[s.next]
		s.next = (s.next + 1) % len(s.conf.addrs)
		if addr == except {
			continue
		}
		sess, err := s.open(ctx, addr)
		if err == nil {
			return sess, nil
		}
		refused = refused && hopeless(err)
		if all == nil {
			all = err
		} else {
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	if all == nil {
		return nil, fmt.Errorf("gloom: no broker but %s, which drains", except)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = all
	if refused && s.current == nil {
		s.refusal = all
		s.announce()
	}
	return nil, all
}

// open connects to one broker, hello included.
func (s *Submitter) open(ctx context.Context, addr string) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.conf.dialTimeout,
		fmt.Errorf("no answer within %v: %w", s.conf.dialTimeout, context.DeadlineExceeded))
	defer cancel()
	nc, err := s.conf.connect(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("gloom: connect to %s: %w", addr, err)
	}
	sess := newSession(s.conf, addr, nc)
	closing := context.AfterFunc(s.life, func() { sess.fail(ErrClosed) })
	go func() {
		sess.run()
		closing()
		s.forget(sess)
	}()
	if s.conf.wantsHello() {
		if err := sess.hello(ctx, s.conf); err != nil {
			sess.fail(err)
			return nil, fmt.Errorf("gloom: connect to %s: %w", addr, err)
		}
	}
	s.conf.notify(Notice{Event: EventConnected, Addr: addr})
	return sess, nil
}

// adopt makes sess the connection for new jobs.
func (s *Submitter) adopt(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = sess
	s.refusal, s.lastErr = nil, nil
	select {
	case <-sess.over: // gone already, and forgotten
	default:
		s.sessions = append(s.sessions, sess)
	}
	s.announce()
}

// dismiss stops the use of sess for new jobs.
func (s *Submitter) dismiss(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == sess {
		s.current = nil
	}
}

// forget drops a session that is over.
func (s *Submitter) forget(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = slices.DeleteFunc(s.sessions, func(other *session) bool { return other == sess })
}

// announce wakes those who wait for a connection; called with mu held.
func (s *Submitter) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
