package jq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"gloom/bench/poll"
)

// workers runs the pushers, and the workers that report each pushed job done at once. All of them
// share one thread: a goroutine for each connection would cost as much as the master under
// measurement.
type workers struct {
	loop      *poll.Loop
	listener  net.Listener
	addr      string
	ledger    *ledger
	reporters []*reporter
	done      chan struct{} // closed when the loop has ended
}

// startWorkers registers workers with a master.
func startWorkers(addr string, o Options, b *ledger) (*workers, error) {
	loop, err := poll.New(time.Now())
	if err != nil {
		return nil, err
	}
	w := &workers{loop: loop, addr: addr, ledger: b, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		if err := loop.Run(func(int64) int64 { return -1 }); err != nil {
			b.fail(err)
		}
	}()
	if w.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		w.close()
		return nil, err
	}
	if err := w.register(o); err != nil {
		w.close()
		return nil, err
	}
	go w.accept()
	return w, nil
}

func (w *workers) register(o Options) error {
	c, err := dial(w.addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for i := range o.Workers {
		body := fmt.Sprintf(`{"name":"bench-%d","max_jobs":%d,"url":"http://%s/%d"}`, i, o.Slots, w.listener.Addr(), i)
		answer, err := c.expect(201, request("POST", "/worker", "json", ""), []byte(body))
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(answer), `"worker_id":"`)
		id, _, ok := strings.Cut(rest, `"`)
		if !ok {
			return fmt.Errorf("no worker_id in %q", answer)
		}
		r := &reporter{id: id}
		r.requester = requester{workers: w, want: 204, head: request("POST", "/done", "msgpack", "worker-id: "+id+"\r\n"), next: r.next, answered: r.answered}
		w.reporters = append(w.reporters, r)
		if err := w.dial(&r.requester); err != nil {
			return err
		}
	}
	return nil
}

// dial connects a requester, which then sends its requests.
func (w *workers) dial(a *requester) (err error) {
	w.loop.Do(func() {
		if a.conn, err = w.loop.Dial(w.addr, a); err == nil {
			a.request()
		}
	})
	return err
}

func (w *workers) accept() {
	for {
		nc, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.loop.Do(func() {
			if _, err := w.loop.Adopt(nc, &slot{w}); err != nil {
				w.ledger.fail(err)
			}
		})
	}
}

// enqueue lets pushers send all jobs, each pusher one at a time.
func (w *workers) enqueue(ctx context.Context, o Options) error {
	sent := 0
	for range o.Pushers {
		text := body(o)
		a := &requester{workers: w, want: 201, head: request("POST", "/job", "msgpack", ""), answered: func() {}}
		a.next = func() []byte {
			if sent == o.Jobs || ctx.Err() != nil {
				return nil
			}
			binary.BigEndian.PutUint32(text[len(text)-4:], uint32(sent))
			w.ledger.sent[sent] = time.Now()
			sent++
			return text
		}
		if err := w.dial(a); err != nil {
			return err
		}
	}
	return nil
}

// requester makes one request after the other.
type requester struct {
	*workers
	conn       *poll.Conn
	head       string
	want       int           // status
	next       func() []byte // the body of the next request; nil: none for now
	answered   func()
	requesting bool
}

func (r *requester) request() {
	if r.requesting {
		return
	}
	if body := r.next(); body != nil {
		r.requesting = true
		r.conn.SetOut(appendRequest(r.conn.Out(), r.head, body))
	}
}

// Data implements poll.Handler.
func (r *requester) Data(_ *poll.Conn, in []byte, _ int64) (used int) {
	first, body, size, err := message(in)
	if size == 0 && err == nil {
		return 0
	}
	status := 0
	if err == nil {
		status, err = statusOf(first)
	}
	if err == nil && status != r.want {
		err = fmt.Errorf("%.40q…: status %d, not %d: %.200q", r.head, status, r.want, body)
	}
	if err != nil {
		r.ledger.fail(err)
		return len(in)
	}
	r.requesting = false
	r.answered()
	r.request()
	return size
}

// Closed implements poll.Handler.
func (r *requester) Closed(_ *poll.Conn, err error) {
	if r.requesting {
		r.ledger.fail(fmt.Errorf("%.40q…: the connection is gone: %w", r.head, errors.Join(err)))
	}
}

// reporter reports jobs done for one worker.
type reporter struct {
	requester
	id   string
	jobs []run // jobs that have run; the first is being reported
	body []byte
}

// run is a job that has run.
type run struct {
	id     [36]byte
	number uint32
}

func (r *reporter) next() []byte {
	if len(r.jobs) == 0 {
		return nil
	}
	r.body = append(append(r.body[:0], "\x83\xa6job_id\xd9\x24"...), r.jobs[0].id[:]...)
	r.body = append(r.body, "\xa4type\xa7success\xa6result\xc0"...)
	return r.body
}

func (r *reporter) answered() {
	r.ledger.recordEnd(int(r.jobs[0].number))
	r.jobs = append(r.jobs[:0], r.jobs[1:]...)
}

// slot is one connection over which the master pushes jobs.
type slot struct{ *workers }

var (
	accepted = []byte("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
	idKey    = []byte("\xa6job_id\xd9\x24")
	numKey   = []byte("\xa1n\xce")
)

// Data implements poll.Handler.
func (s *slot) Data(c *poll.Conn, in []byte, _ int64) (used int) {
	for {
		first, body, size, err := message(in[used:])
		if size == 0 && err == nil {
			return used
		}
		used += size
		index, _, _ := strings.Cut(strings.TrimPrefix(string(first), "POST /"), "/")
		worker, wrong := strconv.Atoi(index)
		_, id, ok := bytes.Cut(body, idKey)
		_, number, ok2 := bytes.Cut(body, numKey)
		if err != nil || wrong != nil || worker >= len(s.reporters) || !ok || !ok2 || len(id) < 36 || len(number) < 4 {
			s.ledger.fail(fmt.Errorf("a pushed job is not as expected: %q %q %w", first, body, errors.Join(err, wrong)))
			return len(in)
		}
		c.SetOut(append(c.Out(), accepted...))
		r := run{[36]byte(id), binary.BigEndian.Uint32(number)}
		s.ledger.recordRun(int(r.number))
		s.reporters[worker].jobs = append(s.reporters[worker].jobs, r)
		s.reporters[worker].request()
	}
}

// Closed implements poll.Handler; the master closes connections that it does not
// need.
func (*slot) Closed(*poll.Conn, error) {}

// close ends the workers; the jobs that they have not reported stay with the master.
func (w *workers) close() {
	if w.listener != nil {
		w.listener.Close()
	}
	w.loop.Stop()
	<-w.done
}

// unregister unregisters the workers, which still report the jobs that they have run.
func (w *workers) unregister() error {
	c, err := dial(w.addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for _, r := range w.reporters {
		if _, err := c.expect(204, request("DELETE", "/worker", "json", "worker-id: "+r.id+"\r\n"), nil); err != nil {
			return err
		}
	}
	return nil
}
