package peer

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"time"

	"gloom/cmd/jobd/eot"
)

// send queues a message. It does not block.
func (c *Conn) send(m eot.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enqueue(m.Append(nil))
}

// enqueue queues an encoded message, which it then owns. Callers hold mu.
func (c *Conn) enqueue(message []byte) {
	if c.isClosed {
		return
	}
	if len(c.output) == 0 {
		c.output = message
	} else {
		c.output = append(c.output, message...)
	}
	c.changed.Broadcast()
}

// writeLoop sends queued messages until the connection is closed. A peer that takes nothing
// for stallTimeout is disconnected.
func (c *Conn) writeLoop() {
	defer c.Close()
	for {
		c.mu.Lock()
		c.writingBytes = 0
		c.changed.Broadcast()
		for len(c.output) == 0 && !c.isClosed {
			c.changed.Wait()
		}
		if c.isClosed {
			c.mu.Unlock()
			return
		}
		out := c.output
		c.output, c.writingBytes = nil, len(out)
		c.mu.Unlock()
		for len(out) > 0 {
			n := min(len(out), writeChunk)
			_ = c.sock.SetWriteDeadline(time.Now().Add(stallTimeout))
			if _, err := c.sock.Write(out[:n]); err != nil {
				c.log.Debug().Err(err).Int("unread", len(out)).Msg("cannot write")
				return
			}
			out = out[n:]
		}
	}
}

// waitAnswered waits until every request is answered and every answer is written, or the peer is gone.
func (c *Conn) waitAnswered() {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if isGone(c.sock) {
					c.Close()
				}
			}
		}
	}()
	c.waitUntil(c.isAnswered)
}

// isWritten reports whether everything is written, and isAnswered whether also every request is answered.
func (c *Conn) isWritten() bool  { return len(c.output)+c.writingBytes == 0 }
func (c *Conn) isAnswered() bool { return c.pendingRequests == 0 && c.isWritten() }

// waitUntil waits until isEnough returns true, or the connection is closed.
func (c *Conn) waitUntil(isEnough func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.isClosed && !isEnough() {
		c.changed.Wait()
	}
}

// Flush waits until the requests of the peer are answered and the answers are
// written, or until ctx ends.
func (c *Conn) Flush(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})()
	c.waitUntil(func() bool { return ctx.Err() != nil || c.isAnswered() })
}

// linger lets the peer read why it was refused: a socket that is closed while input is unread is
// reset, and the reset overtakes the answer.
func (c *Conn) linger() {
	c.waitUntil(c.isWritten)
	sock, ok := c.sock.(interface{ CloseWrite() error })
	if !ok || sock.CloseWrite() != nil {
		return
	}
	_ = c.sock.SetReadDeadline(time.Now().Add(lingerTimeout))
	var waste [4 << 10]byte
	for n := 0; n < 64<<20; {
		m, err := c.sock.Read(waste[:])
		if err != nil {
			return
		}
		n += m
	}
}

// samePassword compares passwords in a time that does not depend on their contents.
func samePassword(given, want string) bool {
	g, r := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(g[:], r[:]) == 1
}

// isGone reports whether the peer of a half-closed connection is gone. The kernel notices (by
// keepalive), but no read is pending that would return the error.
func isGone(sock net.Conn) bool {
	tcp, ok := sock.(*net.TCPConn)
	return ok && isTCPClosed(tcp)
}
