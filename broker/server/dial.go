package server

import (
	"net"

	"gloom/wire"
)

// pipe is the broker's end of a connection within the process.
type pipe struct{ net.Conn }

// CloseWrite closes both ways: what was written has been read.
func (p pipe) CloseWrite() error { return p.Close() }

// Dial connects to a port from within the process, without system calls: an event
// loop that waits for events keeps a processor from the goroutines beside it. Such
// connections take no descriptors and do not count against MaxConns. It returns
// net.ErrClosed once the broker drains.
func (s *Server) Dial(port wire.Port) (net.Conn, error) {
	ours, theirs := net.Pipe()
	s.within.mu.Lock()
	defer s.within.mu.Unlock()
	if s.draining.Load() || !s.within.keep(ours) {
		return nil, net.ErrClosed
	}
	s.wg.Go(func() {
		defer s.within.remove(ours)
		s.serveStream(pipe{ours}, ours, port)
	})
	return theirs, nil
}
