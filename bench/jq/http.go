package jq

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
)

// client is a persistent connection, with one request at a time. net/http would cost
// this side more than the server under measurement.
type client struct {
	conn net.Conn
	in   []byte
	out  []byte
}

func dial(addr string) (*client, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn}, nil
}

// send makes a request; its result is valid until the next request. head has the form
// that appendRequest takes.
func (c *client) send(head string, body []byte) (status int, answer []byte, err error) {
	c.out = appendRequest(c.out[:0], head, body)
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, err
	}
	for c.in = c.in[:0]; ; {
		c.in = slices.Grow(c.in, 4<<10)
		n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		first, answer, size, malformed := message(c.in)
		switch {
		case malformed != nil:
			return 0, nil, malformed
		case size > 0:
			status, err = statusOf(first)
			return status, answer, err
		case err == io.EOF:
			return 0, nil, io.ErrUnexpectedEOF
		case err != nil:
			return 0, nil, err
		}
	}
}

// expect makes a request, and returns an error unless the answer has the status
// want.
func (c *client) expect(want int, head string, body []byte) ([]byte, error) {
	status, answer, err := c.send(head, body)
	if err == nil && status != want {
		err = fmt.Errorf("%.40q…: status %d, not %d: %.200q", head, status, want, answer)
	}
	return answer, err
}

var lineEnd = []byte("\r\n")

// message returns the first line and the body of the message at the beginning of in, and the length
// of the message in bytes; size is 0 while the message is incomplete.
func message(in []byte) (first, body []byte, size int, err error) {
	head, rest, complete := bytes.Cut(in, []byte("\r\n\r\n"))
	if !complete {
		return nil, nil, 0, nil
	}
	first, head, _ = bytes.Cut(head, lineEnd)
	length := 0
	for len(head) > 0 && err == nil {
		var line []byte
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
		return nil, nil, 0, err
	}
	return first, rest[:length], len(in) - len(rest) + length, nil
}

// statusOf returns the status in the first line of an answer.
func statusOf(first []byte) (int, error) {
	fields := bytes.SplitN(first, []byte(" "), 3)
	if len(fields) < 2 {
		return 0, fmt.Errorf("status line %q", first)
	}
	return strconv.Atoi(string(fields[1]))
}

// request returns the head of a request for appendRequest. Further headers end with CRLF.
func request(method, path, contentType, headers string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/" + contentType + "\r\n" + headers
}

// appendRequest appends a request; head ends before the header Content-Length.
func appendRequest(dst []byte, head string, body []byte) []byte {
	dst = append(append(dst, head...), "Content-Length: "...)
	dst = append(strconv.AppendInt(dst, int64(len(body)), 10), "\r\n\r\n"...)
	return append(dst, body...)
}
