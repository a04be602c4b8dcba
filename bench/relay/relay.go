// Package relay shows the limit of a broker: its speed if it only passed frames on. One loop passes
// frames from submitters to workers and back, on sockets of the same kind, with as many frames per
// job as a broker sends. It reads no JSON, knows no ids, types or priorities, loses the job of a
// worker that dies, and is useful only for measurements.
//
// It runs on gnet's event loop, or bare, that is, directly on epoll, with one read and one write
// per socket and round. The bare relay is the limit for everything that uses sockets.
package relay

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// SubmitAck is the payload that acknowledges a submit: as long as a broker's, but without the job's
// id, which the relay does not know.
const SubmitAck = `{"ok":true,"id":"-------------"}`

// WorkerAck is the payload that acknowledges a join or an answer.
const WorkerAck = `{"ok":true}`

var (
	submitAck = frame(SubmitAck)
	workerAck = frame(WorkerAck)
)

func frame(payload string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// Relay is a running relay.
type Relay struct {
	submitListener, workerListener net.Listener
	loop                           loop
	closing                        atomic.Bool
}

// loop is an event loop that serves sockets on one thread.
type loop interface {
	adopt(c net.Conn, p *peer) error
	stop() error
}

// Start listens on both addresses ("host:port" or "unix:/path") and serves until
// Close, on gnet's event loop or, if direct is set, on epoll alone.
func Start(submitAddr, workAddr string, direct bool) (*Relay, error) {
	submit, err := listen(submitAddr)
	if err != nil {
		return nil, err
	}
	work, err := listen(workAddr)
	if err != nil {
		return nil, errors.Join(err, submit.Close())
	}
	r := &Relay{submitListener: submit, workerListener: work}
	if direct {
		r.loop, err = startBare()
	} else {
		r.loop, err = startGnet()
	}
	if err != nil {
		return nil, errors.Join(err, submit.Close(), work.Close())
	}
	go r.accept(submit, false)
	go r.accept(work, true)
	return r, nil
}

func listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return net.Listen("unix", path)
	}
	return net.Listen("tcp", addr)
}

// SubmitAddr returns the address for submitters: host:port or a path.
func (r *Relay) SubmitAddr() string { return r.submitListener.Addr().String() }

// WorkerAddr returns the address for workers.
func (r *Relay) WorkerAddr() string { return r.workerListener.Addr().String() }

// Close ends the relay and its connections.
func (r *Relay) Close() error {
	r.closing.Store(true)
	return errors.Join(r.submitListener.Close(), r.workerListener.Close(), r.loop.stop())
}

func (r *Relay) accept(l net.Listener, works bool) {
	for {
		c, err := l.Accept()
		if err != nil {
			if r.closing.Load() {
				return
			}
			time.Sleep(10 * time.Millisecond) // no descriptors are free: some will be later
			continue
		}
		if err := r.loop.adopt(c, &peer{isWorker: works}); err != nil {
			c.Close()
		}
	}
}
