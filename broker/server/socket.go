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

func (s *socket) requestTurn() { s.loop.poller.ReportAgain(s.fd) }

// maxParts is how many pieces the system accepts in one write (IOV_MAX).
const maxParts = 1024

func (s *socket) send(parts [][]byte) (n int, err error) {
	if len(parts) == 1 {
		n, err = poll.Send(s.fd, parts[0])
	} else {
		n, err = unix.SendmsgBuffers(s.fd, parts, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	switch err {
	case nil:
		return n, nil
	case unix.EINTR:
		s.requestTurn()
		return 0, nil
	case unix.EAGAIN:
		return 0, nil // an event will report room for more
	}
	return 0, err
}

func (s *socket) finish() { _ = unix.Shutdown(s.fd, unix.SHUT_WR) }

func (s *socket) close() {
	s.loop.conns[s.fd] = nil
	s.loop.poller.Remove(s.fd)
	_ = unix.Close(s.fd)
}
