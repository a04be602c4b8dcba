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
	client  *gnet.Client
	pairs   pairing
	dirty   []*gnetConn
	pending bool // the loop has a flush among its tasks
}

type gnetConn struct {
	*peer
	loop  *gnetLoop
	conn  gnet.Conn
	buf   []byte
	dirty bool
	want  int // bytes of the frame that is arriving; 0 when not known
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
	g.conn, g.out = c, g
	return nil, gnet.None
}

func (l *gnetLoop) OnClose(c gnet.Conn, _ error) gnet.Action {
	g := c.Context().(*gnetConn)
	g.conn, g.out = nil, nil
	return gnet.None
}

func (l *gnetLoop) OnTraffic(c gnet.Conn) gnet.Action {
	g := c.Context().(*gnetConn)
	if c.InboundBuffered() < g.want {
		return gnet.None // each Peek of a part of a large frame would copy it
	}
	in, _ := c.Peek(-1)
	var used int
	used, g.want = l.pairs.consume(g.peer, in)
	if used > 0 { // Discard(0) would drop everything
		_, _ = c.Discard(used)
	}
	if len(l.dirty) > 0 && !l.pending {
		l.pending = true
		if c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(l.flush)) != nil {
			return gnet.Shutdown
		}
	}
	return gnet.None
}

func (g *gnetConn) send(f []byte) {
	g.buf = append(g.buf, f...)
	if !g.dirty {
		g.dirty = true
		g.loop.dirty = append(g.loop.dirty, g)
	}
}

// flush writes once to each connection that has something to be sent. It runs after the loop has
// handled all sockets that were ready.
func (l *gnetLoop) flush(context.Context) error {
	l.pending = false
	for i := 0; i < len(l.dirty); i++ {
		g := l.dirty[i]
		g.dirty = false
		if g.conn != nil {
			_, _ = g.conn.Write(g.buf) // a failure is reported to OnClose
		}
		g.buf = g.buf[:0]
	}
	clear(l.dirty)
	l.dirty = l.dirty[:0]
	return nil
}
