package door

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"gloom/bench/poll"
)

// Head is the head of a request.
type Head struct {
	Method, Path string
	Header       map[string]string // without Host and Content-Length
}

// Client makes requests one by one. It costs this side less than net/http, whose cost would be more
// than that of the server under measurement.
type Client struct{ fasthttp.HostClient }

// NewClient returns a client of the server at host:port. timeout limits the time for an answer; 0:
// no limit.
func NewClient(addr string, timeout time.Duration) *Client {
	return &Client{fasthttp.HostClient{Addr: addr, ReadTimeout: timeout}}
}

// Do makes a request and returns the body of its answer, whose status must be one of those wanted.
func (c *Client) Do(head Head, body []byte, want ...int) ([]byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(head.Method)
	req.SetRequestURI("http://" + c.Addr + head.Path)
	for name, value := range head.Header {
		req.Header.Set(name, value)
	}
	req.SetBodyRaw(body)
	if err := c.HostClient.Do(req, resp); err != nil {
		return nil, err
	}
	if !slices.Contains(want, resp.StatusCode()) {
		return nil, statusError(head, want[0], resp.StatusCode(), resp.Body())
	}
	return bytes.Clone(resp.Body()), nil
}

func statusError(head Head, want, status int, body []byte) error {
	return fmt.Errorf("%s %s: status %d, not %d: %.200q", head.Method, head.Path, status, want, body)
}

// Requester makes one request after the other on a connection of its own. One loop serves many
// connections: a goroutine for each connection would cost as much as the server under measurement.
// All of it runs on the loop's thread.
type Requester struct {
	Head     Head
	Want     int             // the status of all answers
	Next     func() []byte   // returns the body of the next request, or nil if there is none for now
	Answered func(now int64) // called when an answer has arrived, with the time of the loop's clock
	Fail     func(err error) // called when an answer is not as wanted, or the connection is lost

	conn       *poll.Conn
	head       []byte // up to the value of Content-Length
	requesting bool
}

// Dial connects, and then makes requests.
func (r *Requester) Dial(loop *poll.Loop, addr string) (err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Head.Method, r.Head.Path, addr)
	for name, value := range r.Head.Header {
		fmt.Fprintf(&b, "%s: %s\r\n", name, value)
	}
	r.head = []byte(b.String() + "Content-Length: ")
	if r.conn, err = loop.Dial(addr, r); err == nil {
		r.Request()
	}
	return err
}

// Request makes the next request, if none is being made.
func (r *Requester) Request() {
	if r.requesting {
		return
	}
	if body := r.Next(); body != nil {
		r.requesting = true
		out := append(r.conn.Out(), r.head...)
		out = append(strconv.AppendInt(out, int64(len(body)), 10), "\r\n\r\n"...)
		r.conn.SetOut(append(out, body...))
	}
}

// Data implements poll.Handler.
func (r *Requester) Data(_ *poll.Conn, in []byte, now int64) (used int) {
	first, body, size, err := Message(in)
	if size == 0 && err == nil {
		return 0
	}
	if err == nil {
		var status int
		_, rest, _ := strings.Cut(first, " ")
		text, _, _ := strings.Cut(rest, " ")
		if status, err = strconv.Atoi(text); err == nil && status != r.Want {
			err = statusError(r.Head, r.Want, status, body)
		}
	}
	r.requesting = false
	if err != nil {
		r.Fail(err)
		return len(in)
	}
	r.Answered(now)
	r.Request()
	return size
}

// Closed implements poll.Handler.
func (r *Requester) Closed(_ *poll.Conn, err error) {
	if r.requesting {
		r.Fail(fmt.Errorf("%s %s: the connection is gone: %w", r.Head.Method, r.Head.Path, errors.Join(err)))
	}
}

// Message returns the first line and the body of the message at the beginning of in, and the length
// of the message in bytes; size is 0 while the message is incomplete.
func Message(in []byte) (first string, body []byte, size int, err error) {
	head, rest, complete := bytes.Cut(in, []byte("\r\n\r\n"))
	if !complete {
		return "", nil, 0, nil
	}
	lineEnd := []byte("\r\n")
	line, head, _ := bytes.Cut(head, lineEnd)
	first = string(line)
	length := 0
	for len(head) > 0 && err == nil {
		line, head, _ = bytes.Cut(head, lineEnd)
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			length, err = strconv.Atoi(string(bytes.TrimSpace(value)))
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			err = errors.New("a chunked body, which this client does not read")
		}
	}
	if err != nil || len(rest) < length {
		return "", nil, 0, err
	}
	return first, rest[:length], len(in) - len(rest) + length, nil
}
