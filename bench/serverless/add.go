package serverless

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gloom/bench/poll"

	"github.com/valyala/fasthttp"
)

// measureAdding runs clients that add lines, one request after another, and checks that all lines
// are in the store. One thread serves all clients, because it shares the processors with the
// daemon.
func (d *daemon) measureAdding(ctx context.Context, r *Round, clients, lines int, during time.Duration) error {
	body := bytes.Repeat([]byte("0123456789abcdef0123456789abcdef\n"), lines)
	loop, err := poll.New(time.Now())
	if err != nil {
		return err
	}
	a := &addState{
		request: append([]byte("POST /bench/job/idle HTTP/1.1\r\nHost: "+d.client.Addr+"\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"), body...),
		end:     int64(during), left: clients, done: make(chan struct{}),
	}
	stopped := make(chan error, 1)
	go func() { stopped <- loop.Run(func(int64) int64 { return -1 }) }()
	defer loop.Stop()
	counted := d.startMeter(r)
	loop.Do(func() {
		for range clients {
			c, err := loop.Dial(d.client.Addr, &adder{addState: a})
			if err != nil {
				a.finish(err)
				continue
			}
			c.SetOut(bytes.Clone(a.request))
		}
	})
	select {
	case <-a.done:
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(during + startTimeout):
		return fmt.Errorf("an answer takes more than %v", startTimeout)
	}
	counted()
	if a.err != nil {
		return a.err
	}
	r.Jobs = len(a.times) * lines
	slices.Sort(a.times)
	r.P50, r.P99 = a.times[len(a.times)/2], a.times[len(a.times)*99/100]
	return d.checkAdded(ctx, "idle", r.Jobs)
}

// addState is the state that the clients of a round share.
type addState struct {
	request []byte
	end     int64 // end on the loop's clock: no request begins after it
	times   []time.Duration
	left    int // clients that still add
	err     error
	done    chan struct{} // closed when the last client has ended

	in     bytes.Reader
	lines  bufio.Reader
	header fasthttp.ResponseHeader
}

// finish counts a client that has ended.
func (a *addState) finish(err error) {
	a.err = errors.Join(a.err, err)
	if a.left--; a.left == 0 {
		close(a.done)
	}
}

// answer returns the size of an answer, 0 while it is not complete.
func (a *addState) answer(in []byte) (size int, err error) {
	head := bytes.Index(in, []byte("\r\n\r\n"))
	if head < 0 {
		return 0, nil
	}
	a.in.Reset(in)
	a.lines.Reset(&a.in)
	if err := a.header.Read(&a.lines); err != nil {
		return 0, err
	}
	size = head + len("\r\n\r\n") + a.header.ContentLength()
	switch {
	case a.header.ContentLength() < 0:
		return 0, errors.New("an answer has no Content-Length")
	case size > len(in):
		return 0, nil
	case a.header.StatusCode() != fasthttp.StatusOK:
		return 0, fmt.Errorf("status %d: %s", a.header.StatusCode(), in[head:size])
	}
	return size, nil
}

// adder is one client that adds lines.
type adder struct {
	*addState
	sentAt int64 // when the last request was sent, on the loop's clock; the first counts as sent at 0
}

// Data implements poll.Handler.
func (a *adder) Data(c *poll.Conn, in []byte, now int64) int {
	size, err := a.answer(in)
	if size == 0 && err == nil {
		return 0
	}
	if err == nil {
		a.times = append(a.times, time.Duration(now-a.sentAt))
	}
	if err != nil || now >= a.end {
		c.Close()
		a.finish(err)
		return 0
	}
	a.sentAt = now
	c.SetOut(append(c.Out(), a.request...))
	return size
}

// Closed implements poll.Handler.
func (a *adder) Closed(_ *poll.Conn, err error) {
	a.finish(errors.Join(errors.New("the daemon closed a connection"), err))
}
