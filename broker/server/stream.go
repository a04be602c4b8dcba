package server

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"gloom/broker/poll"
	"gloom/wire"
)

// stream is the source of a connection that no event loop can read and write, because it has
// TLS or is within the process. One goroutine reads and another writes; both report while
// they hold the loop's poller.
type stream struct {
	halfCloser
	raw           net.Conn // the connection below TLS or, without TLS, the stream itself
	conn          *conn
	turnRequested chan struct{} // gets a value to ask for another turn of the connection
	toWrite       chan [][]byte // the pieces to be written; nil says that no more follow
	// isWriting reports that parts have been sent to toWrite and are not completely written.
	isWriting bool
	parts     [][]byte
}

// halfCloser is a connection whose two directions can be closed separately.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

const (
	// minStreamBuffer is the size of the read buffer of an idle stream, maxStreamBuffer the
	// largest size, in bytes.
	minStreamBuffer = 4 << 10
	maxStreamBuffer = 64 << 10
	// streamParts limits the pieces that are written before the hub learns that they are written.
	streamParts = 16
)

// serveStream serves a connection until it closes, on a loop that it makes for the connection.
// The loops of different streams run in parallel.
func (s *Server) serveStream(hc halfCloser, raw net.Conn, port wire.Port) {
	lp := s.newLoop(&poll.Poller{}, streamParts)
	st := &stream{halfCloser: hc, raw: raw, turnRequested: make(chan struct{}, 1), toWrite: make(chan [][]byte, 1)}
	st.conn = lp.newConn(st, port, remoteOf(raw))
	lp.poller.Call(func() { lp.openConn(st.conn) })
	writerDone := make(chan struct{})
	go func() {
		defer close(writerDone)
		st.write()
	}()
	st.read()
	<-writerDone
}

// read reads until the connection closes, and pauses while the connection must not be read.
func (s *stream) read() {
	c, buf := s.conn, make([]byte, minStreamBuffer)
	n, err := s.Read(buf)
	state, readState := stateOpen, readReady
	takeTurn := func() {
		s.takeTurn(buf[:n], err)
		state, readState = c.state, c.readState
		if len(buf) > 4*minStreamBuffer && c.input.heldBytes() == 0 {
			buf = make([]byte, minStreamBuffer)
		} else if n == len(buf) && n < maxStreamBuffer {
			buf = make([]byte, 2*n)
		}
	}
	for c.loop.poller.Call(takeTurn); state < stateClosed; c.loop.poller.Call(takeTurn) {
		if n = 0; readState == readReady {
			n, err = s.Read(buf)
			continue
		}
		<-s.turnRequested
	}
}

// takeTurn gives the connection a turn, in which it handles the data of a read and then the
// read's error, if any.
func (s *stream) takeTurn(data []byte, err error) {
	c := s.conn
	if c.state == stateClosed {
		return
	}
	if c.readState != readAfterOffload {
		if len(data) > 0 {
			c.recordHeard()
		}
		c.loop.beginTurn(c, streamBusyConns)
		c.handleInput(data)
	}
	if c.loop.flush(); err != nil {
		c.loop.closeConn(c)
	}
}

func (s *stream) write() {
	for parts := range s.toWrite {
		if parts == nil {
			_ = s.CloseWrite()
			continue
		}
		n, err := 0, error(nil)
		for _, part := range parts {
			if _, err = s.Write(part); err != nil {
				break
			}
			n += len(part)
		}
		clear(parts)
		s.conn.loop.poller.Call(func() { s.writeDone(n, err) })
	}
}

// writeDone records that n bytes of output have been written, and sends more.
func (s *stream) writeDone(n int, err error) {
	s.isWriting = false
	switch c := s.conn; {
	case c.state == stateClosed:
	case err != nil:
		c.loop.closeConn(c)
	default:
		c.srv.bytesOut.Add(uint64(n))
		c.hubConn.MarkWritten(n)
		c.loop.send(c)
	}
}

func (s *stream) requestTurn() { notify(s.turnRequested) }

func (s *stream) send(parts [][]byte) (int, error) {
	if !s.isWriting {
		s.isWriting = true
		s.parts = append(s.parts[:0], parts...)
		s.toWrite <- s.parts // does not block: toWrite is empty, since nothing is being written
	}
	return -1, nil
}

func (s *stream) finish() { s.toWrite <- nil }

func (s *stream) close() {
	_ = s.raw.Close()
	close(s.toWrite)
	notify(s.turnRequested)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// serveUntilClose calls the given function on a goroutine of its own and closes nc when the broker
// closes. It returns false if the broker has closed already.
func (s *Server) serveUntilClose(nc net.Conn, serve func()) bool {
	s.streamsMu.Lock()
	defer s.streamsMu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.goroutines.Go(func() {
		defer context.AfterFunc(s.ctx, func() { _ = nc.Close() })()
		serve()
	})
	return true
}

const (
	// handshakeTimeout is how long a TLS handshake may take.
	handshakeTimeout = 10 * time.Second
	// tlsIdleBytes is roughly how much memory an idle TLS connection takes, in bytes.
	tlsIdleBytes = 70 << 10
)

func (s *Server) serveSecure(raw net.Conn, port wire.Port) {
	defer s.conns.Add(-1)
	defer s.hub.ReserveTLS(-tlsIdleBytes)
	defer raw.Close()
	nc := tls.Server(raw, s.certs.Config())
	timer := s.hub.After(handshakeTimeout, func() { _ = raw.Close() })
	err := nc.Handshake()
	timer.Stop()
	if err != nil {
		s.log.Info().Str("peer", remoteOf(raw)).Err(err).Msg("a TLS handshake failed")
		return
	}
	s.serveStream(nc, raw, port)
}

// pipe is the broker's end of a connection within the process.
type pipe struct{ net.Conn }

// CloseWrite closes both directions. No data is lost: a write to a pipe returns only when the peer
// has read the data.
func (p pipe) CloseWrite() error { return p.Close() }

// Dial connects to a port from within the process. Such a connection needs no system calls and
// no event loop, which would keep a processor from other goroutines while it waits for events.
// It takes no descriptor and does not count against MaxConns. Once the broker drains, Dial
// returns net.ErrClosed.
func (s *Server) Dial(port wire.Port) (net.Conn, error) {
	local, remote := net.Pipe()
	s.inProcessConns.Add(1)
	if s.draining.Load() || !s.serveUntilClose(local, func() {
		defer s.inProcessConns.Add(-1)
		s.serveStream(pipe{local}, local, port)
	}) {
		s.inProcessConns.Add(-1)
		return nil, net.ErrClosed
	}
	return remote, nil
}
