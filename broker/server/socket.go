package server

import (
	"golang.org/x/sys/unix"

	"gloom/broker/poll"
)

// socket is the source of a connection that the loop reads and writes itself.
type socket struct {
	loop *loop
	fd   int
}

func (s *socket) again() { s.loop.poller.Again(s.fd) }

const (
	// writeTurn is how many bytes are written before others get their turn.
	writeTurn = 1 << 20
	// maxParts is how many pieces the system takes in one write (IOV_MAX).
	maxParts = 1024
)

func (s *socket) drain() error {
	c := s.loop.conns[s.fd]
	for turn := 0; turn < writeTurn; {
		parts, n := c.peer.Front(s.loop.parts[:0], writeTurn-turn)
		if n == 0 {
			return nil
		}
		var err error
		if len(parts) == 1 {
			n, err = poll.Send(s.fd, parts[0])
		} else if n, err = unix.SendmsgBuffers(s.fd, parts, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil {
			n = 0
		}
		clear(parts)
		c.wrote(n)
		if refused(err) {
			return err
		}
		if err == unix.EAGAIN {
			return nil // it will be told when there is room
		}
		turn += n
	}
	s.again()
	return nil
}

func (s *socket) finish() { _ = unix.Shutdown(s.fd, unix.SHUT_WR) }

func (s *socket) close() {
	s.loop.conns[s.fd] = nil
	s.loop.poller.Remove(s.fd)
	_ = unix.Close(s.fd)
}

func (s *socket) gone() { s.loop.srv.conns.Add(-1) }
