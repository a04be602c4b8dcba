package server

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

// poller waits for what happens to descriptors; one without epoll waits for nothing. This file alone knows gnet, and of
// it the poller only: gnet's own event loop costs a processor's time where it must
// not (it reads and writes as if descriptors were files, and asks for each event
// twice unless one peer may keep it from all others), holds output back without a
// bound, and does not say when it has written it.
type poller struct {
	epoll *netpoll.Poller
	// mark is an event descriptor. Its event comes after those of all descriptors that had
	// something to report when it was written to, because the system reports events in
	// order.
	mark int
	// turn is held while an event or a task is handled, or what is done in its place.
	turn   sync.Mutex
	run    queue.Func   // runTask
	mu     sync.RWMutex // keeps others from using a poller that has closed
	closed bool
}

// events is what has happened to a descriptor.
type events uint8

const (
	readable events = 1 << iota
	writable        // or it never will be
	ended           // the peer sends no more, or the connection has failed
)

func openPoller() (*poller, error) {
	epoll, err := netpoll.OpenPoller()
	if err != nil {
		return nil, err
	}
	p := &poller{epoll: epoll}
	p.run = p.runTask
	if p.mark, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, errors.Join(err, epoll.Close())
	}
	if err := epoll.AddRead(&netpoll.PollAttachment{FD: p.mark}, true); err != nil {
		return nil, errors.Join(err, unix.Close(p.mark), epoll.Close())
	}
	return p, nil
}

// wait calls on with each event, and runs tasks, until stop. Events are told once,
// when something has changed (EPOLLET), which spares the system asking again after
// each of them.
func (p *poller) wait(on func(fd int, ev events)) {
	err := p.epoll.Polling(func(fd int, ev netpoll.IOEvent, _ netpoll.IOFlags) error {
		var e events
		if ev&netpoll.ReadEvents != 0 {
			e |= readable
		}
		if ev&(netpoll.WriteEvents|netpoll.ErrEvents) != 0 {
			e |= writable
		}
		if ev&(netpoll.ErrEvents|unix.EPOLLRDHUP|unix.EPOLLPRI) != 0 {
			e |= ended
		}
		p.turn.Lock()
		on(fd, e)
		p.turn.Unlock()
		return nil
	})
	if !errors.Is(err, errorx.ErrEngineShutdown) {
		// Only a descriptor closed by mistake can have come to this.
		panic(fmt.Sprintf("an event loop cannot wait for events: %v", err))
	}
}

func (p *poller) add(fd int) error {
	return p.epoll.AddReadWrite(&netpoll.PollAttachment{FD: fd}, true)
}

// again makes a descriptor's events be reported once more, in the next round.
func (p *poller) again(fd int) { _ = p.epoll.ModReadWrite(&netpoll.PollAttachment{FD: fd}, true) }

func (p *poller) remove(fd int) { _ = p.epoll.Delete(fd) }

// do lets wait run f soon, or runs it on a goroutine of its own if nobody waits. It returns
// false if the poller is closed. Any goroutine may call it.
func (p *poller) do(f func()) bool {
	if p.epoll == nil {
		go p.call(f)
		return true
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return !p.closed && p.epoll.Trigger(queue.HighPriority, p.run, f) == nil
}

// sendMark makes the event of mark be reported. Any goroutine may call it.
func (p *poller) sendMark() {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.closed {
		_, _ = unix.Write(p.mark, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// stop ends wait.
func (p *poller) stop() { p.do(nil) }

// instead runs f here, as wait would run a task. It returns false if f does, or if wait is
// at work or has ended. Any goroutine may call it.
func (p *poller) instead(f func() bool) bool {
	if !p.turn.TryLock() {
		return false
	}
	defer p.turn.Unlock()
	return !p.closed && f()
}

// call runs f in the poller's turn as soon as that is free. Any goroutine that does not have
// the turn may call it.
func (p *poller) call(f func()) {
	p.turn.Lock()
	defer p.turn.Unlock()
	f()
}

func (p *poller) runTask(f any) error {
	if f := f.(func()); f != nil {
		p.call(f)
		return nil
	}
	return errorx.ErrEngineShutdown
}

func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = unix.Close(p.mark)
	_ = p.epoll.Close()
}
