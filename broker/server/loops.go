package server

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gloom/broker/container"
	"gloom/broker/hub"
	"gloom/broker/poll"
	"gloom/wire"
)

// loops are the event loops of a server.
type loops struct {
	loops []*loop
	next  atomic.Uint32
	done  sync.WaitGroup

	mu sync.Mutex // guards the following fields
	// callbacks are called when all loops have read what has arrived; laggingLoops counts the loops that
	// have not. nextCallbacks were added after that count had begun, and are called when all loops
	// have read once more.
	callbacks, nextCallbacks []func()
	laggingLoops             int
}

// readAll calls fn, on a goroutine of its own, once all loops have carried out what has
// arrived (from a connection with more than a turn's work, one turn's work). If the loops stop
// first, the function is not called.
func (l *loops) readAll(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nextCallbacks = append(l.nextCallbacks, fn); l.laggingLoops == 0 {
		l.sendMarks()
	}
}

// sendMarks sends a mark to each loop. The caller holds mu.
func (l *loops) sendMarks() {
	l.callbacks, l.nextCallbacks, l.laggingLoops = l.nextCallbacks, nil, len(l.loops)
	for _, lp := range l.loops {
		lp.poller.SendMark()
	}
}

// markReached records that a loop has reached its mark.
func (l *loops) markReached() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.laggingLoops--; l.laggingLoops > 0 {
		return
	}
	for _, fn := range l.callbacks {
		go fn()
	}
	if l.callbacks = nil; len(l.nextCallbacks) > 0 {
		l.sendMarks()
	}
}

func (s *Server) newLoops() error {
	l := &s.loops
	for range s.options.EventLoops(runtime.GOMAXPROCS(0)) {
		poller, err := poll.Open()
		if err != nil {
			return err
		}
		lp := s.newLoop(poller, maxParts)
		lp.group, lp.readBuf, lp.pool = l, make([]byte, readBufSize), &container.Buffers{MaxBytes: maxPool}
		l.loops = append(l.loops, lp)
		l.done.Go(lp.run)
	}
	return nil
}

func (s *Server) newLoop(p *poll.Poller, parts int) *loop {
	lp := &loop{srv: s, poller: p, batch: s.newBatch(), parts: make([][]byte, 0, parts)}
	lp.endRoundTask = lp.endRound
	lp.sink = s.hub.NewSink(hub.SinkOwner{
		Wake: func() { p.Do(lp.endRoundTask) },
		// While the loop waits, a goroutine that has output for it writes in its place, which
		// saves waking a thread.
		Write: func() bool { return p.TryCall(lp.writeForLoop) },
	})
	return lp
}

// stop closes all connections.
func (l *loops) stop() {
	for _, lp := range l.loops {
		lp.poller.Stop()
	}
	l.done.Wait()
}

func (lp *loop) newConn(src source, port wire.Port, remote string) *conn {
	c := &conn{srv: lp.srv, loop: lp, source: src, port: port, remote: remote, readLimit: minReadLimit}
	c.input = input{pool: lp.pool, maxPayload: lp.srv.options.MaxFrame, maxOwnAlloc: minOffload}
	if c.unauthenticated() {
		c.input.maxPayload = min(c.input.maxPayload, maxHelloFrame)
	}
	return c
}

// addConn hands an accepted connection to a loop.
func (l *loops) addConn(s *Server, nc net.Conn, port wire.Port) error {
	fd, err := duplicateFD(nc)
	if err != nil {
		return err
	}
	lp := l.loops[int(l.next.Add(1))%len(l.loops)]
	c := lp.newConn(&socket{lp, fd}, port, remoteOf(nc))
	if !lp.poller.Do(func() { lp.registerConn(c, fd) }) {
		return errors.Join(net.ErrClosed, unix.Close(fd))
	}
	return nil
}

func (lp *loop) registerConn(c *conn, fd int) {
	if err := lp.poller.Add(fd); err != nil {
		_ = unix.Close(fd)
		lp.srv.countAcceptError(err)
		return
	}
	for len(lp.conns) <= fd {
		lp.conns = append(lp.conns, nil)
	}
	lp.conns[fd] = c
	lp.openConn(c)
}

// duplicateFD returns a duplicate of the descriptor of nc, in non-blocking mode, and closes nc.
func duplicateFD(nc net.Conn) (fd int, err error) {
	defer nc.Close()
	rc, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	e := rc.Control(func(sourceFD uintptr) { fd, err = unix.FcntlInt(sourceFD, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(e, err)
}

const (
	// lagPeriod is the interval at which the lag of the loops is measured. sweepPeriod is the
	// interval at which stalled connections are closed.
	lagPeriod   = time.Second
	sweepPeriod = 3 * time.Second
)

// monitorLoops measures the lag (the time that a loop takes to reach a task) and closes stalled
// connections.
func (s *Server) monitorLoops() {
	lag, sweep := time.NewTicker(lagPeriod), time.NewTicker(sweepPeriod)
	defer lag.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-s.Done():
			return
		case <-sweep.C:
			s.hub.AfterReading(func(int64) { s.hub.Sweep() })
		case <-lag.C:
			for _, lp := range s.loops.loops {
				sentAt := time.Now()
				lp.poller.Do(func() {
					s.recordLag(time.Since(sentAt))
					lp.pool.Trim()
				})
			}
		}
	}
}

func (s *Server) recordLag(d time.Duration) {
	for i := range s.maxLags {
		for {
			limit := s.maxLags[i].Load()
			if int64(d) <= limit || s.maxLags[i].CompareAndSwap(limit, int64(d)) {
				break
			}
		}
	}
}
