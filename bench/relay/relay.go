// Package relay shows the limit of a broker on gnet's event loop: the speed if it had
// nothing else to do. One loop passes frames from submitters to workers and back, on
// sockets of the same kind, with as many frames per job as a broker sends. It reads no
// JSON, knows no ids, types or priorities, loses the job of a worker that dies, and is
// of no use except for measurements.
package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

// SubmitAck is the payload that acknowledges a submit: as long as a broker's,
// whose id it does not know.
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
	submit, work net.Listener
	client       *gnet.Client
	closing      atomic.Bool
}

// Start listens on both addresses and serves until Close.
func Start(submitAddr, workAddr string) (*Relay, error) {
	submit, err := net.Listen("tcp", submitAddr)
	if err != nil {
		return nil, err
	}
	work, err := net.Listen("tcp", workAddr)
	if err != nil {
		return nil, errors.Join(err, submit.Close())
	}
	r := &Relay{submit: submit, work: work}
	r.client, err = gnet.NewClient(newHandler(), gnet.WithNumEventLoop(1), gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithReadBufferCap(64<<10), gnet.WithLogLevel(logging.ErrorLevel))
	if err == nil {
		err = r.client.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("event loop: %w", err), submit.Close(), work.Close())
	}
	go r.accept(submit, func() any { return &submitter{} })
	go r.accept(work, func() any { return &worker{} })
	return r, nil
}

// SubmitAddr and WorkAddr are the bound addresses.
func (r *Relay) SubmitAddr() net.Addr { return r.submit.Addr() }

// WorkAddr is where workers connect to.
func (r *Relay) WorkAddr() net.Addr { return r.work.Addr() }

// Close ends the relay and its connections.
func (r *Relay) Close() error {
	r.closing.Store(true)
	return errors.Join(r.submit.Close(), r.work.Close(), r.client.Stop())
}

func (r *Relay) accept(l net.Listener, peer func() any) {
	for {
		c, err := l.Accept()
		if err != nil {
			if r.closing.Load() {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors: some will come back
			continue
		}
		if _, err := r.client.EnrollContext(c, peer()); err != nil {
			c.Close()
		}
	}
}

type submitter struct {
	peer
}

type worker struct {
	peer
	job *submitter // the submitter whose job it does; nil when idle
}

type peer struct {
	conn gnet.Conn // nil when gone
	out  outbox
	want int // bytes of the frame that is arriving; 0 when not known
}

func (p *peer) base() *peer { return p }

type queued struct {
	from  *submitter
	frame []byte
}

// handler is used only on the one loop, so it needs no lock.
type handler struct {
	gnet.BuiltinEventEngine
	idle    fifo[*worker]
	jobs    fifo[queued]
	dirty   []*outbox
	pending bool // a flush is on the loop's list of tasks
	slab    []byte
}

func newHandler() *handler { return &handler{} }

func base(c gnet.Conn) *peer { return c.Context().(interface{ base() *peer }).base() }

func (h *handler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	p := base(c)
	p.conn, p.out.conn = c, c
	return nil, gnet.None
}

func (h *handler) OnClose(c gnet.Conn, _ error) gnet.Action {
	p := base(c)
	p.conn, p.out.conn = nil, nil
	return gnet.None
}

func (h *handler) OnTraffic(c gnet.Conn) gnet.Action {
	p := base(c)
	if c.InboundBuffered() < p.want {
		return gnet.None // reading half a large frame would copy it each time
	}
	in, _ := c.Peek(-1)
	used := 0
	p.want = 0
	for len(in)-used >= 4 {
		n := 4 + int(binary.BigEndian.Uint32(in[used:]))
		if len(in)-used < n {
			p.want = n
			break
		}
		f := in[used : used+n]
		used += n
		switch p := c.Context().(type) {
		case *submitter:
			h.submitted(p, f)
		case *worker:
			h.answered(p, f)
		}
	}
	if used > 0 { // Discard(0) would throw everything away
		_, _ = c.Discard(used)
	}
	if len(h.dirty) > 0 && !h.pending {
		h.pending = true
		if c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(h.flush)) != nil {
			return gnet.Shutdown
		}
	}
	return gnet.None
}

func (h *handler) submitted(s *submitter, f []byte) {
	h.send(&s.out, submitAck)
	for h.idle.len() > 0 {
		if w := h.idle.pop(); w.conn != nil {
			w.job = s
			h.send(&w.out, f)
			return
		}
	}
	h.jobs.push(queued{s, h.keep(f)})
}

func (h *handler) answered(w *worker, f []byte) {
	h.send(&w.out, workerAck)
	if w.job != nil && w.job.conn != nil {
		h.send(&w.job.out, f)
	}
	w.job = nil
	for h.jobs.len() > 0 {
		if q := h.jobs.pop(); q.from.conn != nil {
			w.job = q.from
			h.send(&w.out, q.frame)
			return
		}
	}
	h.idle.push(w)
}

// keep copies a frame that has to wait. Many such frames share one piece of memory.
func (h *handler) keep(f []byte) []byte {
	const slabSize = 64 << 10
	if len(f) > slabSize/4 {
		return append([]byte(nil), f...)
	}
	if cap(h.slab)-len(h.slab) < len(f) {
		h.slab = make([]byte, 0, slabSize)
	}
	from := len(h.slab)
	h.slab = append(h.slab, f...)
	return h.slab[from:len(h.slab):len(h.slab)]
}

type outbox struct {
	conn  gnet.Conn
	buf   []byte
	dirty bool
}

func (h *handler) send(o *outbox, f []byte) {
	o.buf = append(o.buf, f...)
	if !o.dirty {
		o.dirty = true
		h.dirty = append(h.dirty, o)
	}
}

// flush writes once to each connection that has unsent bytes. It runs when the loop has
// handled all ready events.
func (h *handler) flush(context.Context) error {
	h.pending = false
	for i := 0; i < len(h.dirty); i++ {
		o := h.dirty[i]
		o.dirty = false
		if o.conn != nil {
			_, _ = o.conn.Write(o.buf) // a failure comes back as OnClose
		}
		o.buf = o.buf[:0]
	}
	clear(h.dirty)
	h.dirty = h.dirty[:0]
	return nil
}
