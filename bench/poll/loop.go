// Package poll is the load generator's event loop: many sockets on one thread, one epoll instance,
// reads into one shared buffer, one write per socket and round. The generator shares its
// processors with the server that it measures, and a goroutine per socket would cost a wake-up per
// frame.
//
// It does not listen, resolve names, use TLS or know any protocol.
package poll

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readSize      = 256 << 10 // bytes taken from one socket in one read
	minFree       = 64 << 10  // free room kept for a socket with half a frame
	maxIdleBuffer = 1 << 20   // larger buffers of idle sockets are freed
	maxEvents     = 512       // sockets served in one round
	maxWait       = 100 * time.Millisecond
)

// Handler gets the events of a socket. All calls come from the loop's own thread.
type Handler interface {
	// Data gets the bytes not yet consumed and returns how many it used. The slice is valid only
	// during the call. now is nanoseconds since the clock's start, taken right after the read.
	Data(c *Conn, in []byte, now int64) (used int)
	// Closed is called once, when the peer closed the socket or an error ended it (nil for a FIN),
	// but not after Conn.Close.
	Closed(c *Conn, err error)
}

// Loop serves its sockets on one locked thread. Only Do, Wake and Stop may be called
// from other goroutines.
type Loop struct {
	start      time.Time
	epollFD    int
	wakeFD     int
	conns      []*Conn // by descriptor
	toFlush    []*Conn
	readBuffer []byte
	events     [maxEvents]unix.EpollEvent

	// BytesIn and BytesOut count the bytes that were read and written, on all sockets together.
	BytesIn, BytesOut int64

	mu      sync.Mutex // guards what follows
	tasks   []func()
	stopped bool
	done    chan struct{}
}

// New makes a loop whose clock starts at start: loops with the same start have the same time.
func New(start time.Time) (*Loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &Loop{start: start, epollFD: ep, wakeFD: wake, readBuffer: make([]byte, readSize), done: make(chan struct{})}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, wake, &ev); err != nil {
		unix.Close(ep)
		unix.Close(wake)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return l, nil
}

// Now returns the time since the clock's start, in nanoseconds.
func (l *Loop) Now() int64 { return int64(time.Since(l.start)) }

// Run serves until Stop. After each round of events it calls step, which does the work that is due.
// step returns the time, in the clock of Now, by which Run must call it again. If the time is
// negative, Run calls step again only after the next event.
func (l *Loop) Run(step func(now int64) (next int64)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.done)
	defer l.release()
	// The default slack of 50 µs would be the largest part of the measured times.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	for {
		next := step(l.Now())
		l.flush()
		n, err := l.wait(next)
		if err != nil {
			return fmt.Errorf("epoll wait: %w", err)
		}
		for i := range l.events[:n] {
			ev := &l.events[i]
			if int(ev.Fd) == l.wakeFD {
				if l.runTasks() {
					return nil
				}
				continue
			}
			if c := l.conns[ev.Fd]; c != nil {
				l.serve(c, ev.Events)
			}
		}
	}
}

func (l *Loop) serve(c *Conn, events uint32) {
	if events&unix.EPOLLOUT != 0 {
		c.write()
	}
	if c.fd >= 0 && events&^uint32(unix.EPOLLOUT) != 0 {
		c.read()
	}
}

func (l *Loop) wait(next int64) (int, error) {
	wait := maxWait
	if next >= 0 {
		wait = min(wait, max(0, time.Duration(next-l.Now())))
	}
	n, err := epollWait(l.epollFD, l.events[:], wait)
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return n, err
}

func (l *Loop) flush() {
	for i := 0; i < len(l.toFlush); i++ { // a write may fail and add more
		c := l.toFlush[i]
		c.awaitsFlush = false
		if c.fd >= 0 && !c.blocked {
			c.write()
		}
	}
	clear(l.toFlush)
	l.toFlush = l.toFlush[:0]
}

// Do runs f on the loop's thread and waits for it. It reports false, without
// having run f, when the loop has stopped.
func (l *Loop) Do(f func()) bool {
	done := make(chan struct{})
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return false
	}
	l.tasks = append(l.tasks, func() { f(); close(done) })
	l.mu.Unlock()
	l.wakeUp()
	select {
	case <-done:
		return true
	case <-l.done:
		return false
	}
}

// Stop ends Run, closes every socket and waits until that is done. Run must
// have been called.
func (l *Loop) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.wakeUp()
	<-l.done
}

func (l *Loop) wakeUp() {
	increment := [8]byte{1}
	_, _ = unix.Write(l.wakeFD, increment[:]) // fails only when a wake-up is pending
}

func (l *Loop) runTasks() (stop bool) {
	var count [8]byte
	_, _ = unix.Read(l.wakeFD, count[:])
	l.mu.Lock()
	todo, stop := l.tasks, l.stopped
	l.tasks = nil
	l.mu.Unlock()
	for _, f := range todo {
		f()
	}
	return stop
}

func (l *Loop) release() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	for _, c := range l.conns {
		if c != nil {
			c.Close()
		}
	}
	unix.Close(l.epollFD)
	// The eventfd stays open for late wake-ups by Do and Stop, which must not write to another file
	// with the same number.
	runtime.SetFinalizer(l, func(l *Loop) { unix.Close(l.wakeFD) })
}
