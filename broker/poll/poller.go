// Package poll waits for events on descriptors, and reads and writes sockets without
// blocking. It knows nothing of connections.
package poll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	errorx "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"github.com/panjf2000/gnet/v2/pkg/queue"
	"golang.org/x/sys/unix"
)

// Poller waits for events on descriptors. The zero Poller waits for nothing and runs tasks
// on goroutines of their own.
//
// Only this file uses gnet, and it uses only gnet's poller. gnet's event loop would cost
// processor time: it uses read and write instead of recv and send, and asks for each event
// twice, except in a mode in which one peer can starve all others. It would also buffer output
// without a bound, and not report when output is written.
type Poller struct {
	epoll *netpoll.Poller
	// markFD is an event descriptor. The system reports events in order, so the event of markFD
	// comes after those of all descriptors that were ready when markFD was written to.
	markFD int
	// turn is held by the goroutine that handles an event or a task.
	turn     sync.Mutex
	taskFunc queue.Func   // runTask
	mu       sync.RWMutex // guards closed; epoll must not be used once closed is set
	closed   bool
}

// Events is a set of events on a descriptor.
type Events uint8

const (
	Readable Events = 1 << iota
	Writable        // the descriptor accepts bytes again, or a write would fail at once
	Ended           // the peer has stopped sending, or the connection has failed
)

// Open returns a poller that watches no descriptors yet.
func Open() (*Poller, error) {
	epoll, err := netpoll.OpenPoller()
	if err != nil {
		return nil, err
	}
	p := &Poller{epoll: epoll}
	p.taskFunc = p.runTask
	if p.markFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, errors.Join(err, epoll.Close())
	}
	if err := epoll.AddRead(&netpoll.PollAttachment{FD: p.markFD}, true); err != nil {
		return nil, errors.Join(err, unix.Close(p.markFD), epoll.Close())
	}
	return p, nil
}

// Wait calls handle for each event, and runs tasks, until Stop is called. An event is
// reported once, when something has changed (EPOLLET), so that the system need not check the
// descriptor again after each event.
func (p *Poller) Wait(handle func(fd int, ev Events)) {
	err := p.epoll.Polling(func(fd int, ev netpoll.IOEvent, _ netpoll.IOFlags) error {
		var e Events
		if ev&netpoll.ReadEvents != 0 {
			e |= Readable
		}
		if ev&(netpoll.WriteEvents|netpoll.ErrEvents) != 0 {
			e |= Writable
		}
		if ev&(netpoll.ErrEvents|unix.EPOLLRDHUP|unix.EPOLLPRI) != 0 {
			e |= Ended
		}
		p.turn.Lock()
		handle(fd, e)
		p.turn.Unlock()
		return nil
	})
	if !errors.Is(err, errorx.ErrEngineShutdown) {
		// Only a descriptor that was closed by mistake can cause this.
		panic(fmt.Sprintf("an event loop cannot wait for events: %v", err))
	}
}

// Add makes Wait report the events on a descriptor from now on.
func (p *Poller) Add(fd int) error {
	return p.epoll.AddReadWrite(&netpoll.PollAttachment{FD: fd}, true)
}

// ReportAgain makes Wait report a descriptor's events once more, in the next round.
func (p *Poller) ReportAgain(fd int) { _ = p.epoll.ModReadWrite(&netpoll.PollAttachment{FD: fd}, true) }

// Remove ends the reports of a descriptor's events.
func (p *Poller) Remove(fd int) { _ = p.epoll.Delete(fd) }

// Do makes Wait run f soon; the zero Poller runs f on a goroutine of its own. Do returns false
// if the poller is closed. Any goroutine may call it.
func (p *Poller) Do(f func()) bool {
	if p.epoll == nil {
		go p.Call(f)
		return true
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return !p.closed && p.epoll.Trigger(queue.HighPriority, p.taskFunc, f) == nil
}

// MarkFD returns the descriptor whose event Wait reports after SendMark.
func (p *Poller) MarkFD() int { return p.markFD }

// SendMark makes Wait report an event of the descriptor MarkFD. Any goroutine may call it.
func (p *Poller) SendMark() {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.closed {
		_, _ = unix.Write(p.markFD, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// Stop ends Wait.
func (p *Poller) Stop() { p.Do(nil) }

// TryCall runs f if the turn is free. It returns false if f returns false, if another goroutine
// has the turn, or if the poller is closed. Any goroutine may call it.
func (p *Poller) TryCall(f func() bool) bool {
	if !p.turn.TryLock() {
		return false
	}
	defer p.turn.Unlock()
	return !p.closed && f()
}

// Call runs f as soon as the turn is free. Any goroutine that does not hold the turn may
// call it.
func (p *Poller) Call(f func()) {
	p.turn.Lock()
	defer p.turn.Unlock()
	f()
}

func (p *Poller) runTask(f any) error {
	if f := f.(func()); f != nil {
		p.Call(f)
		return nil
	}
	return errorx.ErrEngineShutdown
}

// Close closes the poller after Wait has ended. It waits until the turn is free.
func (p *Poller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = unix.Close(p.markFD)
	_ = p.epoll.Close()
}
