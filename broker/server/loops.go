package server

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gloom/broker/hub"
	"gloom/wire"
)

// loops are the event loops.
type loops struct {
	all  []*loop
	next atomic.Uint32
	done sync.WaitGroup
}

func (s *Server) newLoops() (*loops, error) {
	l := &loops{}
	for range s.opt.Loops {
		poller, err := openPoller()
		if err != nil {
			return nil, errors.Join(err, l.stop())
		}
		lp := &loop{srv: s, poller: poller, batch: s.newBatch(), in: make([]byte, readBuffer), iov: make([][]byte, 0, maxParts)}
		lp.round = lp.endRound
		lp.sink = s.hub.NewSink(hub.Owner{
			Wake: func() {
				if !lp.poller.do(lp.round) {
					lp.sink.Unexpect()
				}
			},
			// While the loop waits, whoever has output for it writes, which saves the
			// time that a thread takes to wake.
			Write: func() bool { return lp.poller.instead(lp.writeInstead) },
		})
		l.all = append(l.all, lp)
		l.done.Go(lp.run)
	}
	return l, nil
}

// stop closes all connections.
func (l *loops) stop() error {
	for _, lp := range l.all {
		lp.poller.stop()
	}
	l.done.Wait()
	return nil
}

// enroll hands an accepted connection to a loop. It owns nc from now on.
func (l *loops) enroll(s *Server, nc net.Conn, port wire.Port) error {
	fd, err := descriptor(nc)
	if err != nil {
		return err
	}
	lp := l.all[int(l.next.Add(1))%len(l.all)]
	p := &plain{session: session{srv: s, port: port, self: lp.sink, big: gathered{most: giantFrom}}, loop: lp, remote: remoteOf(nc)}
	p.fd = fd
	p.shut = func() { lp.poller.do(func() { lp.close(p) }) }
	p.unpause = func() {
		lp.poller.do(func() {
			if !p.gone() {
				p.goOn()
			}
		})
	}
	if !lp.poller.do(func() { lp.admit(p) }) {
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
				lp.poller.do(func() {
					s.lagged(time.Since(sent))
					lp.rests = slices.Delete(lp.rests, 0, len(lp.rests)/2)
				})
			}
		}
	}
}

// lagged notes how long a loop took to get to a task.
func (s *Server) lagged(d time.Duration) {
	for i := range s.lags {
		for {
			most := s.lags[i].Load()
			if int64(d) <= most || s.lags[i].CompareAndSwap(most, int64(d)) {
				break
			}
		}
	}
}
