package jq

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// crew are workers that jobs are pushed to. They say done at once.
type crew struct {
	listener net.Listener
	book     *book
	ids      []string
	done     []chan string // of each worker: ids of jobs that have run
	quit     chan struct{}
}

// hire registers workers with a master.
func hire(addr string, o Options, b *book) (*crew, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &crew{listener: l, book: b, quit: make(chan struct{})}
	for i := range o.Workers {
		c, err := dial(addr)
		if err != nil {
			l.Close()
			return nil, err
		}
		jobs := make(chan string, o.Slots)
		w.done = append(w.done, jobs)
		body := fmt.Sprintf(`{"name":"bench-%d","max_jobs":%d,"url":"http://%s/%d"}`, i, o.Slots, l.Addr(), i)
		answer, err := c.must(201, request("POST", "/worker", "json", ""), []byte(body))
		if err != nil {
			l.Close()
			return nil, err
		}
		_, rest, _ := strings.Cut(string(answer), `"worker_id":"`)
		id, _, ok := strings.Cut(rest, `"`)
		if !ok {
			l.Close()
			return nil, fmt.Errorf("no worker_id in %q", answer)
		}
		w.ids = append(w.ids, id)
		go w.report(c, id, jobs)
	}
	go w.accept()
	return w, nil
}

func (w *crew) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if err := w.serve(conn); err != nil && w.book.running() {
				w.book.fail(fmt.Errorf("a pushed job: %w", err))
			}
		}()
	}
}

var (
	accepted = []byte("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
	idKey    = []byte("\xa6job_id\xd9\x24")
	numKey   = []byte("\xa1n\xce")
)

// serve takes the jobs of one connection.
func (w *crew) serve(conn net.Conn) error {
	in := bufio.NewReaderSize(conn, 16<<10)
	var body []byte
	for {
		first, length, err := readHead(in)
		if err != nil {
			return nil // the master closes connections that it does not need
		}
		if body, err = readBody(in, body, length); err != nil {
			return err
		}
		index, _, _ := strings.Cut(strings.TrimPrefix(string(first), "POST /"), "/")
		worker, err := strconv.Atoi(index)
		_, id, ok := bytes.Cut(body, idKey)
		_, num, ok2 := bytes.Cut(body, numKey)
		if err != nil || worker >= len(w.done) || !ok || !ok2 || len(id) < 36 || len(num) < 4 {
			return fmt.Errorf("not as it should be: %q %q", first, body)
		}
		if _, err := conn.Write(accepted); err != nil {
			return err
		}
		w.book.ran(int(binary.BigEndian.Uint32(num)))
		select {
		case w.done[worker] <- string(id[:36]) + string(num[:4]):
		case <-w.quit:
			return nil
		}
	}
}

// report says done for one worker.
func (w *crew) report(c *client, id string, jobs <-chan string) {
	defer c.conn.Close()
	head := request("POST", "/done", "msgpack", "worker-id: "+id+"\r\n")
	var body []byte
	for {
		var j string
		select {
		case j = <-jobs:
		case <-w.quit:
			return
		}
		body = append(append(body[:0], "\x83\xa6job_id\xd9\x24"...), j[:36]...)
		body = append(body, "\xa4type\xa7success\xa6result\xc0"...)
		if _, err := c.must(204, head, body); err != nil {
			w.book.fail(err)
			return
		}
		w.book.ended(int(binary.BigEndian.Uint32([]byte(j[36:]))))
	}
}

// close lets the workers go; what they have not reported stays with the master.
func (w *crew) close() {
	w.listener.Close()
	close(w.quit)
}

// dismiss unregisters the workers, which still report what they have.
func (w *crew) dismiss(addr string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for _, id := range w.ids {
		if _, err := c.must(204, request("DELETE", "/worker", "json", "worker-id: "+id+"\r\n"), nil); err != nil {
			return err
		}
	}
	return nil
}
