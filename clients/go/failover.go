package gloom

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gloom/wire"
)

// stayConnected keeps a submitter connected until it is closed: to one broker as
// long as that serves, then to the next one that does.
func (s *Submitter) stayConnected(sess *session) {
	defer s.endKept()
	retry := newRetry(s.conf)
	for {
		if sess == nil {
			if sess = s.connect(retry, "", s.life.Done()); sess == nil {
				return
			}
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
			// What is pending on the old connection stays there.
			if next := s.connect(retry, sess.home, sess.over); next != nil {
				sess.retire()
				sess = next
				continue
			}
		case <-sess.over:
		}
		s.mu.Lock()
		if len(s.kept) > 0 { // only there they can go on
			s.next = slices.Index(s.conf.addrs, sess.home)
		}
		s.mu.Unlock()
		if s.life.Err() != nil {
			return
		}
		retry.lasted(time.Since(since))
		if retry.pause(Notice{Event: EventLost, Addr: sess.addr, Err: sess.lost().Cause}, s.life.Done()) {
			return
		}
		sess = nil
	}
}

// connect tries brokers, but for the one left out, until one takes us or stop is
// closed.
func (s *Submitter) connect(retry *retry, except string, stop <-chan struct{}) *session {
	for {
		sess, err := s.tryAll(s.life, except)
		if err == nil {
			return sess
		}
		if s.life.Err() != nil || retry.pause(Notice{Event: EventFailed, Err: err}, stop) {
			return nil
		}
	}
}

// tryAll makes one attempt at each address in turn, but for the one left out,
// and makes the first broker that takes us the one for new jobs.
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
			s.adopt(sess)
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
	nc, at, err := s.conf.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	sess := newSession(s, addr, at, nc)
	s.mu.Lock()
	s.sessions = append(s.sessions, sess)
	s.mu.Unlock()
	go func() {
		s.dismiss(sess, sess.run())
		close(sess.over)
	}()
	if s.conf.wantsHello() {
		if err := sess.call(ctx, request{verb: wire.Hello}, s.conf.hello()); err != nil {
			sess.fail(err)
			return nil, fmt.Errorf("gloom: connect to %s: %w", at, err)
		}
	}
	s.conf.notify(Notice{Event: EventConnected, Addr: at})
	return sess, nil
}

// adopt makes sess the connection for new jobs. What the one before has left goes
// on here if it is the same broker's, else it has ended.
func (s *Submitter) adopt(sess *session) {
	var ended []*Pending
	s.mu.Lock()
	if len(s.kept) > 0 && s.kept[0].session.Load().home != sess.home {
		ended, s.kept = s.kept, nil
	}
	refused, resumed := sess.resume(s.kept)
	if resumed {
		s.kept = nil
	}
	s.current, s.refusal, s.lastErr = sess, nil, nil
	s.announce()
	s.mu.Unlock()
	endLost(ended)
	for _, p := range refused {
		p.tell()
	}
}

// dismiss forgets a session that is over, and keeps what the next one to the same
// broker can go on with.
func (s *Submitter) dismiss(sess *session, kept []*Pending) {
	s.mu.Lock()
	s.sessions = slices.DeleteFunc(s.sessions, func(other *session) bool { return other == sess })
	if s.current == sess {
		s.current = nil
		if s.life.Err() == nil && len(kept) > 0 {
			s.kept, kept = append(s.kept, kept...), nil
		}
	}
	s.mu.Unlock()
	endLost(kept)
}

// announce wakes those who wait for a connection; called with mu held.
func (s *Submitter) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
