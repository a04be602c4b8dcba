// Package peertest exchanges the bytes of jobd's protocol with a daemon. Tests spell out the bytes
// that they send and expect, and do not use the daemon's own codec.
package peertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

const timeout = 20 * time.Second

// Client is a plain TCP connection to a daemon.
type Client struct {
	t      testing.TB
	sock   *net.TCPConn
	reader *bufio.Reader
}

// Dial connects to a daemon; the connection is closed with the test.
func Dial(t testing.TB, addr string) *Client {
	t.Helper()
	sock, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	return &Client{t, sock.(*net.TCPConn), bufio.NewReader(sock)}
}

// LocalPort returns the port of this end.
func (c *Client) LocalPort() int { return c.sock.LocalAddr().(*net.TCPAddr).Port }

// Write sends bytes; '|' stands for the end of a message.
func (c *Client) Write(text string) {
	c.t.Helper()
	c.WriteRaw(strings.ReplaceAll(text, "|", "\x04"))
}

// WriteRaw sends bytes as they are.
func (c *Client) WriteRaw(text string) {
	c.t.Helper()
	_ = c.sock.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(c.sock, text); err != nil {
		c.t.Fatalf("cannot write: %v", err)
	}
}

// Read returns the next message without its end.
func (c *Client) Read() string {
	c.t.Helper()
	_ = c.sock.SetReadDeadline(time.Now().Add(timeout))
	message, err := c.reader.ReadString(4)
	if err != nil {
		c.t.Fatalf("no message: %v (after %q)", err, message)
	}
	return strings.TrimSuffix(message, "\x04")
}

// Expect reads a message for each of the given ones, and fails the test at the first difference.
func (c *Client) Expect(messages ...string) {
	c.t.Helper()
	for _, want := range messages {
		if got := c.Read(); got != want {
			c.t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// Ask sends a request in one piece, and returns the answer.
func (c *Client) Ask(request string) string {
	c.t.Helper()
	c.WriteRaw(request + "\x04")
	return c.Read()
}

// ExpectNothing checks that nothing was sent to this client, and that the client is still served:
// the answer to a ping comes after anything that was sent before.
func (c *Client) ExpectNothing() {
	c.t.Helper()
	c.WriteRaw("[2]\x04")
	c.Expect("[3]")
}

// HalfClose announces that nothing more will be sent.
func (c *Client) HalfClose() {
	c.t.Helper()
	if err := c.sock.CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// Close closes the connection.
func (c *Client) Close() { c.sock.Close() }

// Reset closes the connection so that the other end gets an error.
func (c *Client) Reset() {
	_ = c.sock.SetLinger(0)
	c.sock.Close()
}

// ExpectEnd checks that the other end closes, without another message.
func (c *Client) ExpectEnd() {
	c.t.Helper()
	_ = c.sock.SetReadDeadline(time.Now().Add(timeout))
	rest, err := io.ReadAll(c.reader)
	if err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		c.t.Fatalf("not closed: %v", err)
	}
	if len(rest) > 0 {
		c.t.Fatalf("a message came before the end: %q", rest)
	}
}

// ExpectEndAfterPings is like ExpectEnd, but allows pings before the end.
func (c *Client) ExpectEndAfterPings() {
	c.t.Helper()
	for {
		_ = c.sock.SetReadDeadline(time.Now().Add(timeout))
		message, err := c.reader.ReadString(4)
		switch {
		case err == nil && message == "[2]\x04":
		case err != nil && message == "" && !errors.Is(err, os.ErrDeadlineExceeded):
			return
		default:
			c.t.Fatalf("got %q, %v; want pings, then the end", message, err)
		}
	}
}

// WaitUntil waits until a condition is true.
func WaitUntil(t testing.TB, name string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v: %s", timeout, name)
		case <-tick.C:
		}
	}
}

// DecodeData returns the data of a response, decoded.
func DecodeData(t testing.TB, response string) map[string]any {
	t.Helper()
	var message []json.RawMessage
	if err := json.Unmarshal([]byte(response), &message); err != nil || len(message) != 2 {
		t.Fatalf("no response: %s", response)
	}
	var body struct{ Data map[string]any }
	if err := json.Unmarshal(message[1], &body); err != nil || body.Data == nil {
		t.Fatalf("no data: %s", response)
	}
	return body.Data
}
