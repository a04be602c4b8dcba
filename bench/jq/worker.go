package jq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gloom/bench/door"
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
	client := door.NewClient(w.addr, 0)
	for i := range o.Workers {
		body := fmt.Sprintf(`{"name":"bench-%d","max_jobs":%d,"url":"http://%s/%d"}`, i, o.Slots, w.listener.Addr(), i)
		answer, err := client.Do(door.Head{Method: "POST", Path: "/worker", Header: jsonType}, []byte(body), http.StatusCreated)
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(answer), `"worker_id":"`)
		id, _, ok := strings.Cut(rest, `"`)
		if !ok {
			return fmt.Errorf("no worker_id in %q", answer)
		}
		r := &reporter{ledger: w.ledger, id: id}
		r.requester = door.Requester{
			Head: door.Head{Method: "POST", Path: "/done", Header: map[string]string{"Content-Type": "application/msgpack", "worker-id": id}},
			Want: http.StatusNoContent, Next: r.next, Answered: r.answered, Fail: w.ledger.fail,
		}
		w.reporters = append(w.reporters, r)
		if err := w.dial(&r.requester); err != nil {
			return err
		}
	}
	return nil
}

func (w *workers) dial(r *door.Requester) (err error) {
	w.loop.Do(func() { err = r.Dial(w.loop, w.addr) })
	return err
}

func (w *workers) accept() {
	for {
		nc, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.loop.Do(func() {
			if _, err := w.loop.Adopt(nc, &pushConn{w}); err != nil {
				w.ledger.fail(err)
			}
		})
	}
}

// enqueue lets pushers send all jobs, each pusher one at a time.
func (w *workers) enqueue(ctx context.Context, o Options) error {
	sentCount := 0
	for range o.Pushers {
		text := jobBody(o)
		r := &door.Requester{Head: door.Head{Method: "POST", Path: "/job", Header: msgpack}, Want: http.StatusCreated, Answered: func(int64) {}, Fail: w.ledger.fail}
		r.Next = func() []byte {
			if sentCount == o.Jobs || ctx.Err() != nil {
				return nil
			}
			binary.BigEndian.PutUint32(text[len(text)-4:], uint32(sentCount))
			w.ledger.sendTimes[sentCount] = time.Now()
			sentCount++
			return text
		}
		if err := w.dial(r); err != nil {
			return err
		}
	}
	return nil
}

// reporter reports jobs done for one worker.
type reporter struct {
	requester door.Requester
	ledger    *ledger
	id        string
	jobs      []finishedRun // jobs that have run; the first is being reported
	body      []byte
}

// finishedRun identifies a job that has run.
type finishedRun struct {
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

func (r *reporter) answered(int64) {
	r.ledger.recordEnd(int(r.jobs[0].number))
	r.jobs = append(r.jobs[:0], r.jobs[1:]...)
}

// pushConn handles one connection over which the master pushes jobs.
type pushConn struct{ *workers }

var (
	acceptedReply = []byte("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
	idKey         = []byte("\xa6job_id\xd9\x24")
	numberKey     = []byte("\xa1n\xce")
)

// Data implements poll.Handler.
func (s *pushConn) Data(c *poll.Conn, in []byte, _ int64) (used int) {
	for {
		first, body, size, err := door.Message(in[used:])
		if size == 0 && err == nil {
			return used
		}
		used += size
		index, _, _ := strings.Cut(strings.TrimPrefix(first, "POST /"), "/")
		worker, indexErr := strconv.Atoi(index)
		_, id, ok := bytes.Cut(body, idKey)
		_, number, ok2 := bytes.Cut(body, numberKey)
		if err != nil || indexErr != nil || worker >= len(s.reporters) || !ok || !ok2 || len(id) < 36 || len(number) < 4 {
			s.ledger.fail(fmt.Errorf("a pushed job is not as expected: %q %q %w", first, body, errors.Join(err, indexErr)))
			return len(in)
		}
		c.SetOut(append(c.Out(), acceptedReply...))
		r := finishedRun{[36]byte(id), binary.BigEndian.Uint32(number)}
		s.ledger.recordRun(int(r.number))
		s.reporters[worker].jobs = append(s.reporters[worker].jobs, r)
		s.reporters[worker].requester.Request()
	}
}

// Closed implements poll.Handler; the master closes connections that it does not
// need.
func (*pushConn) Closed(*poll.Conn, error) {}

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
	client := door.NewClient(w.addr, 0)
	for _, r := range w.reporters {
		if _, err := client.Do(door.Head{Method: "DELETE", Path: "/worker", Header: map[string]string{"worker-id": r.id}}, nil, http.StatusNoContent); err != nil {
			return err
		}
	}
	return nil
}
