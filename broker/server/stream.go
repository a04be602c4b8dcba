package server

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"gloom/broker/hub"
	"gloom/wire"
)

// stream is a connection that goroutines of its own serve, as no event loop can.
type stream interface {
	net.Conn
	CloseWrite() error
}

// atATime is how many bytes are written before the hub is told how many are left.
const atATime = 256 << 10

// streams are open connections of a kind.
type streams struct {
	mu     sync.Mutex // guards what follows
	open   map[net.Conn]struct{}
	closed bool
}

func (s *streams) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep(c)
}

// keep is add with mu held.
func (s *streams) keep(c net.Conn) bool {
	if s.closed {
		return false
	}
	if s.open == nil {
		s.open = map[net.Conn]struct{}{}
	}
	s.open[c] = struct{}{}
	return true
}

func (s *streams) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

func (s *streams) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		_ = c.Close()
	}
}

func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// serveStream serves a connection that has been let in: this goroutine reads,
// another writes. Deadlines are set on raw.
func (s *Server) serveStream(nc stream, raw net.Conn, port wire.Port) {
	w := &streamWriter{srv: s, nc: nc, raw: raw, wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{})}
	p := &session{srv: s, port: port, big: gathered{most: math.MaxInt, slot: s.inSlot}, shut: func() { _ = raw.Close() }}
	moved := make(chan struct{}, 1)
	p.unpause = func() { notify(moved) }
	w.wrote = p.unpause
	w.sink = s.hub.NewSink(hub.Owner{
		Wake: func() { notify(w.wake) },
		// The writer may stand in a write that the peer does not read.
		Ends: func(_ *hub.Conn, atOnce bool) {
			if atOnce {
				_ = raw.Close()
				return
			}
			p.ending.Store(true)
			_ = raw.SetReadDeadline(time.Now()) // the reader lets go of what it holds
			_ = raw.SetWriteDeadline(time.Now().Add(lingerTime))
		},
	})
	p.conn = s.hub.Open(port, w.sink, p, remoteOf(raw))
	p.opened()
	go w.run()
	(&streamReader{srv: s, session: p, nc: nc, raw: raw, moved: moved, ended: w.ended}).run()
	close(w.done)
	_ = raw.Close()
	<-w.ended
	p.closed()
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// streamReader feeds the session of one connection.
type streamReader struct {
	*session
	srv   *Server
	nc    stream
	raw   net.Conn
	moved chan struct{} // something that waited for the peer has been written
	ended chan struct{} // the writer has ended
	buf   []byte
	// What comes while lingering is counted and thrown away.
	lingering bool
	thrown    int
}

// streamBuffer is what an idle connection keeps to read into, in bytes.
const streamBuffer = 4 << 10

func (r *streamReader) run() {
	defer func() {
		if e := recover(); e != nil {
			r.srv.log.Error().Str("peer", r.conn.Remote).Bytes("stack", debug.Stack()).Msg(fmt.Sprintf("closed a connection on a fault of ours: %v", e))
		}
	}()
	r.buf = make([]byte, 0, streamBuffer)
	for r.pause() {
		if len(r.buf) == cap(r.buf) {
			r.buf = append(make([]byte, 0, 2*cap(r.buf)), r.buf...)
		}
		n, err := r.nc.Read(r.buf[len(r.buf):cap(r.buf)])
		if n > 0 && r.beat > 0 {
			r.heard.Store(r.srv.hub.Now())
		}
		r.buf = r.buf[:len(r.buf)+n]
		if !r.received(n) || err != nil && !r.outlives(err) {
			return
		}
	}
}

// pause waits while the peer has too much to read. It returns false when the
// connection has ended.
func (r *streamReader) pause() bool {
	for r.conn.Clogged() && !r.closing && !r.ending.Load() {
		r.paused.Store(true)
		select {
		case <-r.ended:
			return false
		case <-r.moved:
		}
	}
	if r.paused.Load() {
		r.readAgain()
	}
	return true
}

// received carries out what has come, in turns, of which n bytes are new.
func (r *streamReader) received(n int) bool {
	if r.closing || r.ending.Load() {
		r.closing, r.buf = true, r.buf[:0]
		r.drop()
		r.thrown += n
		return r.thrown <= lingerBytes
	}
	b := r.srv.batches.Get().(*batch)
	at, more := r.turn(b, r.buf)
	for more {
		var used int
		slot := r.big.slot
		r.big.slot = nil // it has one
		slot(func() { used, more = r.turn(b, r.buf[at:]) })
		r.big.slot = slot
		at += used
	}
	r.srv.batches.Put(b)
	left := r.buf[at:]
	if cap(r.buf) > 4*streamBuffer && len(left) <= streamBuffer {
		r.buf = make([]byte, 0, streamBuffer)
	}
	r.buf = append(r.buf[:0], left...)
	if !r.closing && len(r.buf) > 0 {
		r.count(cap(r.buf))
	} else if !r.closing {
		r.count(0)
	}
	return true
}

func (r *streamReader) turn(b *batch, data []byte) (used int, more bool) {
	b.turn(r.srv.hub.Now(), crowded)
	return r.take(b, data)
}

// outlives tells whether the connection goes on in spite of an error: when we
// close it, it is read on for a while, so that the peer can read why.
func (r *streamReader) outlives(err error) bool {
	if !r.ending.Load() || r.lingering || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	r.lingering, r.closing = true, true
	r.drop()
	_ = r.raw.SetReadDeadline(time.Now().Add(lingerTime))
	return true
}

// streamWriter writes the output of one connection.
type streamWriter struct {
	srv  *Server
	nc   stream
	raw  net.Conn
	sink *hub.Sink
	wake chan struct{}
	done chan struct{}
	// wrote is called when something has been written, ended is closed at the end.
	wrote func()
	ended chan struct{}
}

func (w *streamWriter) run() {
	defer close(w.ended)
	var outs []hub.Output
	for {
		select {
		case <-w.done:
			return
		case <-w.wake:
		}
		outs = w.sink.Take(outs[:0])
		for i := range outs {
			if !w.write(&outs[i]) {
				return
			}
			outs[i] = hub.Output{}
		}
	}
}

func (w *streamWriter) write(o *hub.Output) bool {
	if o.Abort {
		_ = w.raw.Close()
		return false
	}
	n := o.Len()
	w.srv.bytesOut.Add(uint64(n))
	left := n
	var err error
	for _, part := range o.Parts(nil) {
		for err == nil && len(part) > 0 {
			k := min(len(part), atATime)
			o.Conn.Writing(left, k)
			_, err = w.nc.Write(part[:k])
			w.wrote()
			part = part[k:]
			left -= k
		}
	}
	unsent := 0
	if err != nil {
		unsent = n
	}
	closing := o.Close
	w.sink.Done(o, unsent, 0)
	w.wrote()
	if err != nil {
		_ = w.raw.Close()
		return false
	}
	if closing {
		_ = w.nc.CloseWrite()
		_ = w.raw.SetReadDeadline(time.Now().Add(lingerTime))
	}
	return true
}
