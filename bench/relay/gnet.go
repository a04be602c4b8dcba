package relay

import (
	"context"
	"fmt"
	"net"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

// gnetLoop is one event loop of gnet with one flush per round.
type gnetLoop struct {
	gnet.BuiltinEventEngine
	client         *gnet.Client
	pairing        pairing
	toFlush        []*gnetConn
	flushScheduled bool // the loop has a flush among its tasks
}

type gnetConn struct {
	*peer
	loop        *gnetLoop
	conn        gnet.Conn
	outBuf      []byte
	awaitsFlush bool
	frameLen    int // bytes of the frame that is arriving; 0 when not known
}

func startGnet() (*gnetLoop, error) {
	l := &gnetLoop{}
	var err error
	l.client, err = gnet.NewClient(l, gnet.WithNumEventLoop(1), gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithReadBufferCap(64<<10), gnet.WithLogLevel(logging.ErrorLevel))
	if err == nil {
		err = l.client.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("event loop: %w", err)
	}
	return l, nil
}

func (l *gnetLoop) stop() error { return l.client.Stop() }

func (l *gnetLoop) adopt(c net.Conn, p *peer) error {
	_, err := l.client.EnrollContext(c, &gnetConn{peer: p, loop: l})
	return err
}

func (l *gnetLoop) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	g := c.Context().(*gnetConn)
	g.conn, g.sender = c, g
	return nil, gnet.None
}

func (l *gnetLoop) OnClose(c gnet.Conn, _ error) gnet.Action {
	g := c.Context().(*gnetConn)
	g.conn, g.sender = nil, nil
	return gnet.None
}

func (l *gnetLoop) OnTraffic(c gnet.Conn) gnet.Action {
	g := c.Context().(*gnetConn)
	if c.InboundBuffered() < g.frameLen {
		return gnet.None // each Peek of a part of a large frame would copy it
	}
	in, _ := c.Peek(-1)
	var used int
	used, g.frameLen = l.pairing.consume(g.peer, in)
	if used > 0 { // Discard(0) would drop everything
		_, _ = c.Discard(used)
	}
	if len(l.toFlush) > 0 && !l.flushScheduled {
		l.flushScheduled = true
		if c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(l.flush)) != nil {
			return gnet.Shutdown
		}
	}
	return gnet.None
}

func (g *gnetConn) send(f []byte) {
	g.outBuf = append(g.outBuf, f...)
	if !g.awaitsFlush {
		g.awaitsFlush = true
		g.loop.toFlush = append(g.loop.toFlush, g)
	}
}

// flush writes once to each connection that has something to be sent. It runs after the loop has
// handled all sockets that were ready.
func (l *gnetLoop) flush(context.Context) error {
	l.flushScheduled = false
	for i := 0; i < len(l.toFlush); i++ {
		g := l.toFlush[i]
		g.awaitsFlush = false
		if g.conn != nil {
			_, _ = g.conn.Write(g.outBuf) // a failure is reported to OnClose
		}
		g.outBuf = g.outBuf[:0]
	}
	clear(l.toFlush)
	l.toFlush = l.toFlush[:0]
	return nil
}
