package relay

import (
	"errors"
	"net"
	"time"

	"gloom/bench/poll"
)

// bareLoop is the generator's loop: only epoll, read and write.
type bareLoop struct {
	*poll.Loop
	pairing pairing
	done    chan error
}

type bareConn struct {
	*peer
	loop *bareLoop
	conn *poll.Conn
}

func startBare() (*bareLoop, error) {
	loop, err := poll.New(time.Now())
	if err != nil {
		return nil, err
	}
	l := &bareLoop{Loop: loop, done: make(chan error, 1)}
	go func() { l.done <- l.Run(func(int64) int64 { return -1 }) }()
	return l, nil
}

func (l *bareLoop) stop() error {
	l.Stop()
	return <-l.done
}

func (l *bareLoop) adopt(c net.Conn, p *peer) (err error) {
	b := &bareConn{peer: p, loop: l}
	if !l.Do(func() {
		if b.conn, err = l.Adopt(c, b); err == nil {
			p.sender = b
		}
	}) {
		return errors.New("the event loop has stopped")
	}
	return err
}

// Data implements poll.Handler.
func (b *bareConn) Data(_ *poll.Conn, in []byte, _ int64) int {
	used, _ := b.loop.pairing.consume(b.peer, in)
	return used
}

// Closed implements poll.Handler.
func (b *bareConn) Closed(*poll.Conn, error) { b.sender = nil }

func (b *bareConn) send(f []byte) { b.conn.SetOut(append(b.conn.Out(), f...)) }
