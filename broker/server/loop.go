package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
	"golang.org/x/sys/unix"

	"gloom/broker/hub"
	"gloom/wire"
)

// loops runs the event loops. This file alone knows gnet: it turns bytes into
// calls of sessions, and the output of the hub into writes.
type loops struct {
	gnet.BuiltinEventEngine
	srv *Server
	cli *gnet.Client

	mu   sync.Mutex
	byEL map[gnet.EventLoop]*loop
}

// loop is one event loop. All its fields belong to the loop's goroutine.
type loop struct {
	srv   *Server
	el    gnet.EventLoop
	sink  *hub.Sink
	batch *batch
	outs  []hub.Output
	iov   [][]byte

	// put holds whole frames that were read in this round, in the order they
	// came; kept are the bytes they lie in.
	put  []putOff
	kept []byte

	// scheduled: a flush is put on the loop.
	scheduled bool
	flushing  bool
	gone      []*plain // closed connections that the hub is to hear of
	// slow are connections that gnet held output back for when last looked at.
	slow map[*plain]struct{}

	// What follows decides between writing at once and once per round.
	events  int // reads since the last flush
	lone    int // rounds in a row with one read
	instant bool
	since   int // reads since the last round that was counted
}

const (
	// loneRounds is how many rounds in a row must have had one read each
	// before output is written at once instead of at the end of the round.
	loneRounds = 8
	// countEvery is how often a round is counted while writing at once.
	countEvery = 16
	// readBuffer is how much one read of a loop takes in at the most.
	readBuffer = 256 << 10
	// maxPutOff is the longest read that is put off to the end of the round,
	// allPutOff how much is in all, in bytes.
	maxPutOff = 8 << 10
	allPutOff = 64 << 10
	// lingerTime is how long a connection that we close may take to read the
	// reason; lingerBytes is what it may still send meanwhile.
	lingerTime  = 2 * time.Second
	lingerBytes = 64 << 20
	// maxParts is how many pieces the system takes in one write (IOV_MAX).
	maxParts = 1024
)

// putOff is what one read of a connection brought: its bytes in loop.kept.
type putOff struct {
	p        *plain
	from, to int
}

// plain is a connection on an event loop.
type plain struct {
	session
	remote    string
	c         gnet.Conn // nil once closed
	loop      *loop
	lingering bool
	thrown    int // bytes thrown away while lingering
}

func (s *Server) newLoops() (*loops, error) {
	l := &loops{srv: s, byEL: map[gnet.EventLoop]*loop{}}
	cli, err := gnet.NewClient(l,
		gnet.WithNumEventLoop(s.opt.Loops), gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithLogger(quiet{s}), gnet.WithLogLevel(logging.ErrorLevel))
	if err != nil {
		return nil, err
	}
	l.cli = cli
	return l, cli.Start()
}

// enroll hands an accepted connection to a loop. It owns nc from now on.
func (l *loops) enroll(nc net.Conn, port wire.Port) error {
	p := &plain{session: session{srv: l.srv, port: port}}
	p.remote = remoteOf(nc)
	_, err := l.cli.EnrollContext(nc, p)
	if err == nil && p.conn == nil {
		// The loop could not watch it; this, gnet does not tell.
		err = errors.New("the event loop did not take it")
	}
	return err
}

// lagEvery is how often the loops' lag is looked at.
const lagEvery = time.Second

// watch measures how long a loop takes to get to a task put on it, and has it
// look at its slow connections.
func (l *loops) watch() {
	t := time.NewTicker(lagEvery)
	defer t.Stop()
	for {
		select {
		case <-l.srv.stop:
			return
		case <-t.C:
		}
		l.mu.Lock()
		for el, lp := range l.byEL {
			sent := time.Now()
			_ = el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
				l.srv.lagged(time.Since(sent))
				lp.look()
				return nil
			}))
		}
		l.mu.Unlock()
	}
}

// lagged notes how long a loop took to get to a task.
func (s *Server) lagged(d time.Duration) {
	for {
		most := s.lag.Load()
		if int64(d) <= most || s.lag.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// look tells the hub what slow peers have read since: gnet goes on writing
// what it holds back, and says nothing.
func (lp *loop) look() {
	for p := range lp.slow {
		held := p.held()
		if p.conn.SetHeld(held); held == 0 {
			delete(lp.slow, p)
		}
	}
}

// held is how many bytes gnet holds back.
func (p *plain) held() int {
	if p.c == nil {
		return 0
	}
	return p.c.OutboundBuffered()
}

func (l *loops) stop() error { return l.cli.Stop() }

func (l *loops) of(el gnet.EventLoop) *loop {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lp := l.byEL[el]; lp != nil {
		return lp
	}
	lp := &loop{srv: l.srv, el: el, batch: l.srv.newBatch(), slow: map[*plain]struct{}{}, kept: make([]byte, 0, allPutOff)}
	lp.sink = l.srv.hub.NewSink(hub.Owner{
		Wake: func() {
			if err := el.Execute(context.Background(), lp); err != nil {
				lp.sink.Unexpect()
			}
		},
		Holds: func(c *hub.Conn) int { return c.Owner.(*plain).held() },
	})
	l.byEL[el] = lp
	return lp
}

// OnOpen lets a connection in.
func (l *loops) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	p := c.Context().(*plain)
	p.c = c
	p.shut = func() { _ = c.Close() }
	p.loop = l.of(c.EventLoop())
	p.self = p.loop.sink
	p.conn = l.srv.hub.Open(p.port, p.loop.sink, p, p.remote)
	p.opened()
	return nil, gnet.None
}

// OnClose may be called from within a write. The connection is dropped before
// anything else: a write after it would reach whoever has its descriptor now.
func (l *loops) OnClose(c gnet.Conn, err error) gnet.Action {
	p := c.Context().(*plain)
	if p.loop != nil {
		p.loop.carryOut() // what it sent before it closed
	}
	p.c = nil
	if p.conn == nil {
		return gnet.None
	}
	// With a bare EOF gnet has thrown away already what it held back.
	if err != io.EOF && p.conn.Held() > 0 {
		p.conn.SetHeld(c.OutboundBuffered())
	}
	p.loop.gone = append(p.loop.gone, p)
	if !p.loop.flushing {
		p.loop.bury()
	}
	return gnet.None
}

// bury tells the hub of the connections that have closed.
func (lp *loop) bury() {
	for len(lp.gone) > 0 {
		p := lp.gone[len(lp.gone)-1]
		lp.gone = lp.gone[:len(lp.gone)-1]
		p.closed()
		lp.srv.conns.Add(-1)
	}
}

// OnTraffic reads what has come on a connection.
func (l *loops) OnTraffic(c gnet.Conn) (action gnet.Action) {
	p := c.Context().(*plain)
	if p.beat > 0 {
		p.heard.Store(l.srv.hub.Now())
	}
	if p.conn.Held() > 0 {
		p.conn.SetHeld(c.OutboundBuffered())
	}
	if p.loop.putOff(p, c) {
		p.loop.afterRead()
		return gnet.None
	}
	p.loop.carryOut() // first what came first
	defer func() {
		if e := recover(); e != nil {
			p.fault(e)
			action = gnet.Close
		}
	}()
	for !p.closing {
		n := c.InboundBuffered()
		if n == 0 || p.big == nil && !ready(p, c, n) {
			break
		}
		data, err := c.Peek(-1)
		if err != nil {
			return gnet.Close
		}
		used := p.take(p.loop.batch, data)
		if used == 0 {
			break
		}
		_, _ = c.Discard(used)
	}
	if p.closing {
		return p.throwAway(c)
	}
	p.count(c.InboundBuffered())
	p.loop.afterRead()
	return gnet.None
}

// fault is for the recovery from a fault in decoding, which costs this peer
// only. (One in the core has ended the process before it could come here.)
func (p *plain) fault(e any) {
	p.srv.log.Error().Str("peer", p.remote).Bytes("stack", debug.Stack()).Msg(fmt.Sprintf("closed a connection on a fault of ours: %v", e))
	p.loop.batch.n = 0
}

// putOff keeps what a connection has read for the end of the round, when all of
// that is carried out in one go: between the system calls of a round, neither
// code nor data of ours would stay in the processor's nearest caches. Only short
// reads of whole frames are put off, and none while output is written at once.
func (lp *loop) putOff(p *plain, c gnet.Conn) bool {
	n := c.InboundBuffered()
	if lp.instant || n > maxPutOff || p.big != nil || p.closing || p.partial > 0 {
		return false
	}
	data, err := c.Peek(-1)
	if err != nil || !whole(data) {
		return false
	}
	if len(lp.kept)+n > cap(lp.kept) {
		lp.carryOut()
	}
	from := len(lp.kept)
	lp.kept = append(lp.kept, data...)
	lp.put = append(lp.put, putOff{p, from, from + n})
	_, _ = c.Discard(n)
	return true
}

// whole tells whether data consists of whole frames.
func whole(data []byte) bool {
	for len(data) >= wire.HeaderLen {
		n := wire.HeaderLen + uint64(binary.BigEndian.Uint32(data))
		if n >= uint64(len(data)) {
			return n == uint64(len(data))
		}
		data = data[n:]
	}
	return false
}

// carryOut has what was put off carried out.
func (lp *loop) carryOut() {
	for i := range lp.put {
		w := &lp.put[i]
		w.p.carryOut(lp.kept[w.from:w.to])
		w.p = nil
	}
	lp.put, lp.kept = lp.put[:0], lp.kept[:0]
}

func (p *plain) carryOut(data []byte) {
	defer func() {
		if e := recover(); e != nil {
			p.fault(e)
			p.shut()
		}
	}()
	p.take(p.loop.batch, data)
}

// ready tells whether n buffered bytes hold a frame that can be read. Looking
// at all of them before that would copy a long partial frame at every read.
func ready(p *plain, c gnet.Conn, n int) bool {
	if n < wire.HeaderLen {
		return false
	}
	head, err := c.Peek(wire.HeaderLen)
	return err == nil && n >= p.hungry(head)
}

func (p *plain) throwAway(c gnet.Conn) gnet.Action {
	n := c.InboundBuffered()
	if n > 0 {
		_, _ = c.Discard(n)
	}
	p.count(0)
	if p.thrown += n; p.thrown > lingerBytes {
		return gnet.Close
	}
	p.loop.afterRead()
	return gnet.None
}

// afterRead sees to it that output is written: at once while reads come one by
// one, which costs a write per frame and saves the time of another round; at
// the end of the round when many connections are ready at a time, which saves
// most of the writes.
func (lp *loop) afterRead() {
	lp.events++
	if lp.scheduled {
		return
	}
	if lp.instant {
		if lp.since++; lp.since < countEvery {
			lp.flush()
			return
		}
		// Count one round, to see whether reads still come one by one.
		lp.since, lp.instant, lp.events = 0, false, 1
		lp.lone = loneRounds - 1
	}
	if !lp.sink.Expect() {
		return
	}
	if err := lp.el.Execute(context.Background(), lp); err != nil {
		lp.sink.Unexpect()
		lp.flush()
		return
	}
	lp.scheduled = true
}

// Run is the flush at the end of a round.
func (lp *loop) Run(context.Context) error {
	if lp.events <= 1 {
		lp.lone++
	} else {
		lp.lone = 0
	}
	lp.instant = lp.lone >= loneRounds
	lp.events, lp.scheduled = 0, false
	lp.flush()
	return nil
}

// flush writes the output of all the loop's connections.
func (lp *loop) flush() {
	lp.carryOut()
	lp.flushing = true
	lp.outs = lp.sink.Take(lp.outs[:0])
	for i := range lp.outs {
		lp.write(&lp.outs[i])
		lp.outs[i] = hub.Output{}
	}
	lp.flushing = false
	lp.bury()
}

func (lp *loop) write(o *hub.Output) {
	p := o.Conn.Owner.(*plain)
	if p.c == nil {
		lp.sink.Done(o, o.Len())
		return
	}
	if o.Abort {
		lp.srv.log.Warn().Str("peer", p.remote).Int("max_outbound", lp.srv.opt.MaxOutbound).Msg("closed a connection that does not read")
		_ = lp.el.Close(p.c)
		return
	}
	n := o.Len()
	lp.srv.bytesOut.Add(uint64(n))
	switch {
	case n == 0:
	case len(o.Refs) == 0:
		if sent := p.send(o.Buf); sent < n {
			_, _ = p.c.Write(o.Buf[sent:])
		}
	default:
		lp.iov = o.Parts(lp.iov[:0])
		// A failed write has closed the connection.
		for rest := lp.iov; len(rest) > 0 && p.c != nil; {
			k := min(len(rest), maxParts)
			_, _ = p.c.Writev(rest[:k])
			rest = rest[k:]
		}
		clear(lp.iov)
	}
	unsent := n
	if p.c != nil {
		if unsent = p.held(); unsent > 0 {
			lp.slow[p] = struct{}{}
		}
	}
	lp.sink.Done(o, unsent)
	if o.Close && p.c != nil {
		p.linger()
	}
}

// send writes what the socket takes at once and returns how much that is.
// Nothing is sent before what gnet holds back, and errors are left to gnet,
// which meets them again with the rest.
//
// It is a system call of its own since most of the server's time is spent in
// this one: sendto spares the kernel what a write needs for files, and the
// descriptor does not block, so the scheduler need not be told.
func (p *plain) send(b []byte) int {
	if p.c.OutboundBuffered() > 0 {
		return 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(p.c.Fd()), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// linger closes a connection in a way that lets the peer read what it was
// sent: closing with unread input would reset it.
func (p *plain) linger() {
	if p.lingering {
		return
	}
	p.lingering, p.closing = true, true
	if p.c.OutboundBuffered() == 0 {
		_ = unix.Shutdown(p.c.Fd(), unix.SHUT_WR)
	}
	c := p.c
	time.AfterFunc(lingerTime, func() { _ = c.Close() })
}

// quiet passes gnet's errors on to the log.
type quiet struct{ srv *Server }

func (quiet) Debugf(string, ...any) {}
func (quiet) Infof(string, ...any)  {}
func (quiet) Warnf(string, ...any)  {}
func (q quiet) Errorf(format string, args ...any) {
	q.srv.log.Warn().Str("from", "gnet").Msgf(format, args...)
}
func (q quiet) Fatalf(format string, args ...any) { q.Errorf(format, args...) }
