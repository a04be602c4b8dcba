package brokers

import "gloom/bench/poll"

// serverConn is the base of every side of a protocol: a connection, and the load.Submitter or
// load.Worker that it reports to.
type serverConn struct {
	peer interface {
		Addr() string
		Arrived(now int64)
		Ready()
		Lost(err error)
	}
	greeting []byte // sent first; if it is nil, the peer is ready at once
	// handleNext handles the reply at the start of in, and returns the reply's length, or 0 while
	// the reply is not complete.
	handleNext func(in []byte) (used int)
	conn       *poll.Conn
}

// Dial connects and greets.
func (l *serverConn) Dial(loop *poll.Loop) (err error) {
	if l.conn, err = loop.Dial(l.peer.Addr(), l); err != nil {
		return err
	}
	if l.greeting == nil {
		l.peer.Ready()
		return nil
	}
	l.conn.SetOut(append([]byte(nil), l.greeting...))
	return nil
}

// Data implements poll.Handler.
func (l *serverConn) Data(_ *poll.Conn, in []byte, now int64) (used int) {
	l.peer.Arrived(now)
	for {
		n := l.handleNext(in[used:])
		if n == 0 {
			return used
		}
		used += n
	}
}

// Closed implements poll.Handler.
func (l *serverConn) Closed(_ *poll.Conn, err error) { l.peer.Lost(err) }

// Pending returns how many bytes are queued and not yet written.
func (l *serverConn) Pending() int { return l.conn.Pending() }

// Hangup closes the connection, with a reset if abort is set.
func (l *serverConn) Hangup(abort bool) {
	switch {
	case l.conn == nil: // never dialled
	case abort:
		l.conn.Reset()
	default:
		l.conn.Close()
	}
}

// twoConns holds the two connections of a submitter whose server accepts no other command on a
// connection that waits. Answers arrive on the second connection.
type twoConns struct {
	serverConn
	answers serverConn
}

func (p *twoConns) Dial(loop *poll.Loop) error {
	if err := p.serverConn.Dial(loop); err != nil {
		return err
	}
	return p.answers.Dial(loop)
}

func (p *twoConns) Hangup(abort bool) {
	p.serverConn.Hangup(abort)
	p.answers.Hangup(abort)
}
