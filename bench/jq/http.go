package jq

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// client is a connection that stays, with one request at a time. net/http would
// cost this side more than the server under measurement.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

func dial(addr string) (*client, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}, nil
}

// do makes a request; what it returns is valid until the next one. head ends
// before the header Content-Length.
func (c *client) do(head string, body []byte) (status int, answer []byte, err error) {
	c.out = append(append(c.out[:0], head...), "Content-Length: "...)
	c.out = append(strconv.AppendInt(c.out, int64(len(body)), 10), "\r\n\r\n"...)
	c.out = append(c.out, body...)
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, err
	}
	first, length, err := readHead(c.in)
	if err != nil {
		return 0, nil, err
	}
	words := bytes.SplitN(first, []byte(" "), 3)
	if len(words) < 2 {
		return 0, nil, fmt.Errorf("status line %q", first)
	}
	if status, err = strconv.Atoi(string(words[1])); err != nil {
		return 0, nil, err
	}
	c.body, err = readBody(c.in, c.body, length)
	return status, c.body, err
}

// must makes a request that has to have one outcome.
func (c *client) must(want int, head string, body []byte) ([]byte, error) {
	status, answer, err := c.do(head, body)
	if err == nil && status != want {
		err = fmt.Errorf("%.40q…: status %d, not %d: %.200q", head, status, want, answer)
	}
	return answer, err
}

// readHead reads a message's head: its first line and its Content-Length.
func readHead(in *bufio.Reader) (first []byte, length int, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, 0, err
	}
	first = bytes.TrimSpace(bytes.Clone(line))
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil, 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			return first, length, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return nil, 0, err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			return nil, 0, errors.New("a body in chunks, which this client does not read")
		}
	}
}

func readBody(in *bufio.Reader, buf []byte, length int) ([]byte, error) {
	if cap(buf) < length {
		buf = make([]byte, length)
	}
	buf = buf[:length]
	_, err := io.ReadFull(in, buf)
	return buf, err
}

// request is the head of a request for client.do. Further headers end with \r\n.
func request(method, path, contentType, headers string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/" + contentType + "\r\n" + headers
}
