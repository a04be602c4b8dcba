package server

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	errorx "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"github.com/panjf2000/gnet/v2/pkg/queue"
	"golang.org/x/sys/unix"

	"gloom/broker/hub"
	"gloom/wire"
)

// loops are the event loops. This file alone knows gnet, and of it the poller
// only: gnet's own event loop costs a processor's time where it must not (it
// reads and writes as if descriptors were files, and asks for each event twice
// unless one peer may keep it from all others), holds output back without a
// bound, and does not say when it has written it.
type loops struct {
	all  []*loop
	next atomic.Uint32
	done sync.WaitGroup
}

// loop is an event loop. It works in rounds: it reads from all connections that
// are ready, has what was read carried out, and writes what follows from it, once
// per connection. All its fields belong to the loop's goroutine, but for mu.
type loop struct {
	srv    *Server
	poller *netpoll.Poller
	conns  []*plain // by descriptor
	sink   *hub.Sink
	batch  *batch
	outs   []hub.Output
	parts  [][]byte
	iov    [][]byte
	// round is endRound, as a task.
	round func()

	// in is where reads go to, one behind the other; reads tells whose they are.
	in    []byte
	rests [][]byte // spare memory for beginnings of frames
	reads []portion
	used  int // bytes of in
	// direct is how many bytes were read to where they belong instead, carried
	// how many were carried out in this round.
	direct, carried int

	carrying, flushing bool
	// gone are closed connections that the hub is to hear of.
	gone []*plain

	// cut counts the turns that were used up in this round, crowd those of the round
	// before.
	cut, crowd int

	// scheduled: the end of the round is put on the loop.
	scheduled bool
	// What follows decides between writing at once and once per round.
	events  int // reads since the last round
	lone    int // rounds in a row with one read
	instant bool
	since   int // reads since the last round that was counted

	// mu keeps others from using a poller that has closed.
	mu     sync.RWMutex
	closed bool
}

// portion is what one read of a connection brought: loop.in[from:to].
type portion struct {
	p        *plain
	from, to int
}

const (
	// loneRounds is how many rounds in a row must have had one read each
	// before output is written at once instead of at the end of the round.
	loneRounds = 8
	// countEvery is how often a round is counted while writing at once.
	countEvery = 16
	// readBuffer is how much reads take in at the most, in bytes, before it is
	// carried out. That is done with less than leastRead of it left. After
	// mostRound in all, the round ends early.
	readBuffer = 512 << 10
	leastRead  = 256 << 10
	mostRound  = 4 << 20
	// leftBehind is how much of what was read may be left for later turns, of all
	// connections together, as long as that is leastLeft for each.
	leftBehind = 4 << 20
	leastLeft  = 4 << 10
)

func (s *Server) newLoops() (*loops, error) {
	l := &loops{}
	for range s.opt.Loops {
		poller, err := netpoll.OpenPoller()
		if err != nil {
			return nil, errors.Join(err, l.stop())
		}
		lp := &loop{srv: s, poller: poller, batch: s.newBatch(), in: make([]byte, readBuffer), iov: make([][]byte, 0, maxParts)}
		lp.round = lp.endRound
		lp.sink = s.hub.NewSink(hub.Owner{Wake: func() {
			if !lp.do(lp.round) {
				lp.sink.Unexpect()
			}
		}})
		l.all = append(l.all, lp)
		l.done.Go(lp.run)
	}
	return l, nil
}

// stop closes all connections.
func (l *loops) stop() error {
	for _, lp := range l.all {
		lp.do(nil)
	}
	l.done.Wait()
	return nil
}

func (lp *loop) run() {
	if err := lp.poller.Polling(lp.ready); !errors.Is(err, errorx.ErrEngineShutdown) {
		// Only a descriptor closed by mistake can have come to this.
		panic(fmt.Sprintf("an event loop cannot wait for events: %v", err))
	}
	for _, p := range lp.conns {
		if p != nil {
			lp.close(p)
		}
	}
	lp.mu.Lock()
	defer lp.mu.Unlock()
	lp.closed = true
	_ = lp.poller.Close()
}

// do has f run on the loop, soon; nil ends the loop. It returns false when the
// loop has ended.
func (lp *loop) do(f func()) bool {
	lp.mu.RLock()
	defer lp.mu.RUnlock()
	return !lp.closed && lp.poller.Trigger(queue.HighPriority, runTask, f) == nil
}

func runTask(f any) error {
	if f := f.(func()); f != nil {
		f()
		return nil
	}
	return errorx.ErrEngineShutdown
}

// enroll hands an accepted connection to a loop. It owns nc from now on.
func (l *loops) enroll(s *Server, nc net.Conn, port wire.Port) error {
	fd, err := descriptor(nc)
	if err != nil {
		return err
	}
	lp := l.all[int(l.next.Add(1))%len(l.all)]
	p := &plain{session: session{srv: s, port: port, self: lp.sink, aside: giantFrom}, loop: lp, remote: remoteOf(nc)}
	p.fd = fd
	p.shut = func() { lp.do(func() { lp.close(p) }) }
	p.unpause = func() {
		lp.do(func() {
			if !p.gone() {
				p.goOn()
			}
		})
	}
	if !lp.do(func() { lp.admit(p) }) {
		return errors.Join(net.ErrClosed, unix.Close(fd))
	}
	return nil
}

// descriptor takes the descriptor out of an accepted connection. It does not
// block.
func descriptor(nc net.Conn) (fd int, err error) {
	defer nc.Close()
	rc, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	e := rc.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(e, err)
}

// admit lets a connection in.
func (lp *loop) admit(p *plain) {
	if err := lp.poller.AddReadWrite(&netpoll.PollAttachment{FD: p.fd}, true); err != nil {
		_ = unix.Close(p.fd)
		lp.srv.conns.Add(-1)
		lp.srv.acceptErrors.Add(1)
		lp.srv.log.Warn().Err(err).Msg("cannot serve a connection")
		return
	}
	for len(lp.conns) <= p.fd {
		lp.conns = append(lp.conns, nil)
	}
	lp.conns[p.fd] = p
	p.conn = lp.srv.hub.Open(p.port, lp.sink, p, p.remote)
	p.opened()
}

// close closes a connection. What it sent before is carried out.
func (lp *loop) close(p *plain) {
	if !lp.carrying {
		lp.carryOut()
	}
	if p.gone() {
		return
	}
	fd := p.fd
	lp.conns[fd] = nil
	_ = lp.poller.Delete(fd)
	_ = unix.Close(fd)
	p.drown()
	lp.gone = append(lp.gone, p)
	lp.bury()
}

// bury tells the hub of the connections that have closed, unless the loop has
// its output in hand.
func (lp *loop) bury() {
	if lp.carrying || lp.flushing {
		return
	}
	for len(lp.gone) > 0 {
		p := lp.gone[len(lp.gone)-1]
		lp.gone = lp.gone[:len(lp.gone)-1]
		p.closed()
		lp.srv.conns.Add(-1)
	}
}

// ready is called with each event. Events are told once, when something has
// changed (EPOLLET), which spares the system asking again after each of them.
func (lp *loop) ready(fd int, ev netpoll.IOEvent, _ netpoll.IOFlags) error {
	if fd >= len(lp.conns) || lp.conns[fd] == nil {
		return nil // closed earlier in this round
	}
	p := lp.conns[fd]
	if p.held.n > 0 && ev&(netpoll.WriteEvents|netpoll.ErrEvents) != 0 {
		p.writeOn()
	}
	if ended := ev & (netpoll.ErrEvents | unix.EPOLLRDHUP | unix.EPOLLPRI); ended != 0 || ev&netpoll.ReadEvents != 0 || p.more {
		lp.read(p, ended != 0)
	}
	return nil
}

// again has the connection's events told once more, in the next round.
func (lp *loop) again(p *plain) { _ = lp.poller.ModReadWrite(&netpoll.PollAttachment{FD: p.fd}, true) }

// read reads once. What it brings is carried out at the end of the round with
// all else that was read: between the system calls of a round, neither code nor
// data of ours would stay in the processor's nearest caches.
func (lp *loop) read(p *plain, ended bool) {
	// What was read before belongs in front of what is read to its place now.
	if len(lp.in)-lp.used-lp.direct < leastRead || p.big.size > 0 && p.put {
		if lp.carryOut(); lp.carried >= mostRound {
			lp.flush()
		}
	}
	if p.busy || p.gone() {
		return // resumed asks for it again
	}
	if p.more {
		if !p.put {
			p.put = true
			lp.reads = append(lp.reads, portion{p, lp.used, lp.used})
			lp.afterRead()
		}
		return
	}
	if p.conn.Clogged() && !p.closing {
		p.paused.Store(true)
		return
	}
	into, room := p.big.spare(), lp.in[lp.used:]
	if most := max(leastLeft, leftBehind/(1+lp.crowd)); len(room) > most {
		room = room[:most]
	}
	if len(into) > readBuffer {
		into, room = into[:readBuffer], nil
	}
	var n int
	var errno unix.Errno
	if len(into) > 0 {
		n, errno = receiveTwo(p.fd, into, room)
	} else {
		n, errno = receive(p.fd, room)
	}
	switch {
	case errno == unix.EAGAIN:
		return
	case errno == unix.EINTR:
		lp.again(p)
		return
	case errno != 0:
		lp.close(p)
		return
	case n == 0:
		lp.flush() // it may still read what its last frames get
		lp.close(p)
		return
	}
	if n == len(into)+len(room) || ended {
		lp.again(p) // there may be more, which would not be told
	}
	if p.beat > 0 {
		p.heard.Store(lp.srv.hub.Now())
	}
	if len(into) > 0 {
		k := min(n, len(into))
		p.big.filled(k)
		lp.srv.bytesIn.Add(uint64(k))
		n -= k
		lp.direct += k
	}
	p.put = true
	lp.reads = append(lp.reads, portion{p, lp.used, lp.used + n})
	lp.used += n
	lp.afterRead()
}

// afterRead sees to it that what was read is carried out and output is written:
// at once while reads come one by one, which costs a write per frame and saves
// the time of another round; at the end of the round when many connections are
// ready at a time, which saves most of the writes.
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
		return // the end of the round is put on the loop already
	}
	if lp.scheduled = lp.do(lp.round); !lp.scheduled {
		lp.sink.Unexpect()
		lp.flush()
	}
}

func (lp *loop) endRound() {
	if lp.events <= 1 {
		lp.lone++
	} else {
		lp.lone = 0
	}
	lp.instant = lp.lone >= loneRounds
	lp.events, lp.scheduled = 0, false
	lp.flush()
}

// carryOut has all that was read carried out.
func (lp *loop) carryOut() {
	lp.carrying = true
	for i := range lp.reads {
		r := &lp.reads[i]
		r.p.put = false
		if !r.p.gone() {
			lp.turn(r.p)
			r.p.received(lp.in[r.from:r.to])
		}
		r.p = nil
	}
	lp.carried += lp.used + lp.direct
	lp.reads, lp.used, lp.direct = lp.reads[:0], 0, 0
	lp.carrying = false
	lp.bury()
}

// turn begins p's turn, in which crowd decides what p may do on the loop.
func (lp *loop) turn(p *plain) {
	now := lp.srv.hub.Now()
	if now >= lp.batch.end {
		lp.cut++ // whose turn was before
	}
	crowd := max(lp.cut, lp.crowd)
	if p.aside = giantFrom; crowd > 1 {
		p.aside = bigFrame
	}
	lp.batch.turn(now, crowd)
}

// flush has all that was read carried out, and writes the output of all the
// loop's connections.
func (lp *loop) flush() {
	lp.carryOut()
	lp.carried = 0
	lp.crowd, lp.cut, lp.batch.end = lp.cut, 0, math.MaxInt64
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
	if p.gone() {
		lp.sink.Done(o, o.Len(), 0)
		return
	}
	if o.Abort {
		lp.srv.log.Warn().Str("peer", p.remote).Int("max_outbound", lp.srv.opt.MaxOutbound).Msg("closed a connection that does not read")
		lp.close(p)
		return
	}
	lp.srv.bytesOut.Add(uint64(o.Len()))
	unsent := p.write(o)
	closing := o.Close
	lp.sink.Done(o, unsent, p.held.memory)
	if closing && !p.gone() {
		p.linger()
	}
}

// lagEvery is how often the loops' lag is looked at.
const lagEvery = time.Second

// watch measures how long a loop takes to get to a task put on it, and looks for
// connections that stand still.
func (s *Server) watch() {
	lag, sweep := time.NewTicker(lagEvery), time.NewTicker(sweepEvery)
	defer lag.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-sweep.C:
			s.sweep()
		case <-lag.C:
			for _, lp := range s.loops.all {
				sent := time.Now()
				lp.do(func() {
					s.lagged(time.Since(sent))
					lp.rests = slices.Delete(lp.rests, 0, len(lp.rests)/2)
				})
			}
		}
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
