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

type loops struct {
	loops []*loop
	next  atomic.Uint32
	done  sync.WaitGroup

	mu sync.Mutex // guards the following fields
	// The functions in reading are called when all loops have read what has arrived; left
	// counts the loops that have not. The functions in waiting were added after that count had begun,
	// and are called when all loops have read once more.
	reading, waiting []func()
	left             int
}

// readAll calls fn, on a goroutine of its own, once all loops have carried out what has
// arrived (from a connection with more than a turn's work, one turn's work). If the loops stop
// first, the function is not called.
func (l *loops) readAll(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting = append(l.waiting, fn); l.left == 0 {
		l.sendMarks()
	}
}

// sendMarks sends a mark to each loop. The caller holds mu.
func (l *loops) sendMarks() {
	l.reading, l.waiting, l.left = l.waiting, nil, len(l.loops)
	for _, lp := range l.loops {
		lp.poller.SendMark()
	}
}

// markReached records that a loop has reached its mark.
func (l *loops) markReached() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left--; l.left > 0 {
		return
	}
	for _, fn := range l.reading {
		go fn()
	}
	if l.reading = nil; len(l.waiting) > 0 {
		l.sendMarks()
	}
}

func (s *Server) newLoops() error {
	l := &s.loops
	for range s.opt.EventLoops(runtime.GOMAXPROCS(0)) {
		poller, err := poll.Open()
		if err != nil {
			return err
		}
		lp := s.newLoop(poller, maxParts)
		lp.group, lp.in, lp.pool = l, make([]byte, readBuffer), &container.Buffers{MaxBytes: maxPool}
		l.loops = append(l.loops, lp)
		l.done.Go(lp.run)
	}
	return nil
}

func (s *Server) newLoop(p *poll.Poller, parts int) *loop {
	lp := &loop{srv: s, poller: p, batch: s.newBatch(), parts: make([][]byte, 0, parts)}
	lp.endRoundTask = lp.endRound
	lp.sink = s.hub.NewSink(hub.Owner{
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
	c := &conn{srv: lp.srv, loop: lp, src: src, port: port, remote: remote}
	c.in = input{pool: lp.pool, max: lp.srv.opt.MaxFrame, maxAtOnce: minOffload}
	if c.unauthenticated() {
		c.in.max = min(c.in.max, helloFrame)
	}
	return c
}

// addConn hands an accepted connection to a loop.
func (l *loops) addConn(s *Server, nc net.Conn, port wire.Port) error {
	fd, err := descriptor(nc)
	if err != nil {
		return err
	}
	lp := l.loops[int(l.next.Add(1))%len(l.loops)]
	c := lp.newConn(&socket{lp, fd}, port, remoteOf(nc))
	if !lp.poller.Do(func() { lp.addConn(c, fd) }) {
		return errors.Join(net.ErrClosed, unix.Close(fd))
	}
	return nil
}

func (lp *loop) addConn(c *conn, fd int) {
	if err := lp.poller.Add(fd); err != nil {
		_ = unix.Close(fd)
		lp.srv.connFailed(err)
		return
	}
	for len(lp.conns) <= fd {
		lp.conns = append(lp.conns, nil)
	}
	lp.conns[fd] = c
	lp.openConn(c)
}

// descriptor returns a duplicate of the descriptor of nc, in non-blocking mode, and closes nc.
func descriptor(nc net.Conn) (fd int, err error) {
	defer nc.Close()
	rc, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	e := rc.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(e, err)
}

const (
	// lagEvery is the interval at which the lag of the loops is measured, sweepEvery that at
	// which stalled connections are closed.
	lagEvery   = time.Second
	sweepEvery = 3 * time.Second
)

// watch measures the lag, which is how long a loop takes to reach a task, and closes stalled
// connections.
func (s *Server) watch() {
	lag, sweep := time.NewTicker(lagEvery), time.NewTicker(sweepEvery)
	defer lag.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-s.Done():
			return
		case <-sweep.C:
			s.hub.ReadFirst(func(int64) { s.hub.Sweep() })
		case <-lag.C:
			for _, lp := range s.loops.loops {
				sent := time.Now()
				lp.poller.Do(func() {
					s.recordLag(time.Since(sent))
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
