package probe

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// tb has the methods of testing.TB that the tests need. *testing.T and *parallelT implement it.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

// packFrame returns the frame of a payload: the length, then the payload.
func packFrame(payload string) []byte {
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(payload)), uint32(len(payload)))
	return append(out, payload...)
}

// announceFrame returns the header of a frame of n bytes.
func announceFrame(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// quote returns s as a JSON string.
func quote(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// frame is a message of the broker. Its values are not parsed.
type frame struct {
	raw  string
	keys map[string]json.RawMessage
}

// parse reads a payload and checks what must hold for every frame.
func parse(payload []byte) (frame, error) {
	f := frame{raw: string(payload)}
	if !utf8.Valid(payload) {
		return f, fmt.Errorf("frame is not UTF-8: %.200q", payload)
	}
	if err := json.Unmarshal(payload, &f.keys); err != nil || f.keys == nil {
		return f, fmt.Errorf("frame is not a JSON object: %.200q", payload)
	}
	if ok, has := f.keys["ok"]; has && string(ok) != "true" {
		return f, fmt.Errorf("ok is not the boolean true: %.200s", payload)
	}
	if _, has := f.keys["error"]; has {
		if f.text("error") == "" || f.text("reason") == "" {
			return f, fmt.Errorf("error or reason is missing or empty in an error frame: %.200s", payload)
		}
		if _, has := f.keys["ok"]; has {
			return f, fmt.Errorf("both ok and error: %.200s", payload)
		}
	}
	return f, nil
}

// text returns the value of a key, or "" if it is not a string.
func (f frame) text(key string) string {
	var s string
	if json.Unmarshal(f.keys[key], &s) != nil {
		return ""
	}
	return s
}

func (f frame) has(key string) bool { _, has := f.keys[key]; return has }

// sortedKeys returns the keys of the frame, sorted.
func (f frame) sortedKeys() string {
	var names []string
	for k := range f.keys {
		names = append(names, k)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// kind tells the kind of a frame from its keys alone.
func (f frame) kind() string {
	switch f.sortedKeys() {
	case "ok":
		return "ok"
	case "id ok":
		return "ack"
	case "action body id type":
		if f.text("action") == "job" {
			return "job"
		}
	case "body id":
		return "result"
	case "id progress":
		return "progress"
	case "action":
		return f.text("action")
	case "action id":
		return f.text("action")
	}
	if f.has("error") {
		return "error"
	}
	return "unknown kind"
}

func (f frame) String() string {
	if len(f.raw) > 300 {
		return fmt.Sprintf("%s… (%d bytes)", f.raw[:300], len(f.raw))
	}
	return f.raw
}

// conn is a connection to the broker.
type conn struct {
	t   tb
	net net.Conn
	in  *bufio.Reader
}

// splitAddr splits an address, as the daemon writes it, into the parts for net.Dial.
func splitAddr(addr string) (network, address string) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return "unix", path
	}
	return "tcp", addr
}

func dial(t tb, addr string) *conn {
	t.Helper()
	c, err := dialTry(addr)
	if err != nil {
		t.Fatalf("dial %s: %v", addr, err)
	}
	c.t = t
	t.Cleanup(c.close)
	return c
}

// dialTry connects to a daemon that may refuse the connection. The caller must close it.
func dialTry(addr string) (*conn, error) {
	network, address := splitAddr(addr)
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return nil, err
	}
	return &conn{net: c, in: bufio.NewReader(c)}, nil
}

// write sends raw bytes.
func (c *conn) write(b []byte) error {
	_ = c.net.SetWriteDeadline(time.Now().Add(patience))
	_, err := c.net.Write(b)
	return err
}

func (c *conn) writeRaw(b []byte) {
	c.t.Helper()
	if err := c.write(b); err != nil {
		c.t.Fatalf("write %d bytes: %v", len(b), err)
	}
}

// send writes one frame.
func (c *conn) send(format string, args ...any) {
	c.t.Helper()
	c.writeRaw(packFrame(fmt.Sprintf(format, args...)))
}

// next reads one frame, which must arrive within limit.
func (c *conn) next(limit time.Duration) (frame, error) {
	_ = c.net.SetReadDeadline(time.Now().Add(limit))
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > 256<<20 {
		return frame{}, fmt.Errorf("the broker announced a frame of %d bytes", n)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(c.in, payload); err != nil {
		return frame{}, fmt.Errorf("inside a frame of %d bytes: %w", n, err)
	}
	return parse(payload)
}

// recv reads the next frame, of any kind, and returns it.
func (c *conn) recv() frame {
	c.t.Helper()
	f, err := c.next(patience)
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return f
}

// want reads the next frame, which must be of this kind, and returns it.
func (c *conn) want(kind string) frame {
	c.t.Helper()
	f := c.recv()
	if f.kind() != kind {
		c.t.Fatalf("got %s, want kind %s", f, kind)
	}
	return f
}

// wantOK reads the next frame, which must be exactly {"ok":true}.
func (c *conn) wantOK() { c.t.Helper(); c.want("ok") }

// wantAck expects {"ok":true,"id":id}.
func (c *conn) wantAck(id string) {
	c.t.Helper()
	if f := c.want("ack"); f.text("id") != id {
		c.t.Fatalf("ack for id %q, want %q", f.text("id"), id)
	}
}

// wantError reads an error frame, which must have one of the codes, split by "|".
func (c *conn) wantError(codes string) frame {
	c.t.Helper()
	f := c.want("error")
	if !slices.Contains(strings.Split(codes, "|"), f.text("error")) {
		c.t.Fatalf("got %s, want error %s", f, codes)
	}
	return f
}

// wantErrorFor reads an error frame, which must be about this job.
func (c *conn) wantErrorFor(code, id string) frame {
	c.t.Helper()
	f := c.wantError(code)
	if f.text("id") != id {
		c.t.Fatalf("got %s, want id %q in it", f, id)
	}
	return f
}

// wantResult reads the answer of a job, which must have exactly this body.
func (c *conn) wantResult(id, body string) {
	c.t.Helper()
	f := c.want("result")
	if f.text("id") != id || string(f.keys["body"]) != body {
		c.t.Fatalf("got %s, want result %.200q with body %.200s", f, id, body)
	}
}

// wantQuiet checks that no frame is on its way to this peer. It sends a request that changes
// nothing; the next frame must be the reply.
func (c *conn) wantQuiet() {
	c.t.Helper()
	c.send(`{"action":"are you quiet?"}`)
	if f := c.recv(); f.text("error") != "unknown_action" {
		c.t.Fatalf("got %s, want silence", f)
	}
}

// wantSilence checks that no frame arrives for a short while. A timer or the end of another
// connection might cause such a frame.
func (c *conn) wantSilence(d time.Duration) {
	c.t.Helper()
	if f, err := c.next(d); err == nil {
		c.t.Fatalf("got %s, want silence", f)
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("want silence, read: %v", err)
	}
}

// wantEOF checks that the broker closes the connection without another frame.
func (c *conn) wantEOF() {
	c.t.Helper()
	if err := c.awaitClose(patience); err != nil {
		c.t.Fatalf("want the end of the connection: %v", err)
	}
}

func (c *conn) awaitClose(limit time.Duration) error {
	f, err := c.next(limit)
	switch {
	case err == nil:
		return fmt.Errorf("got %s", f)
	case isEnd(err):
		return nil
	}
	return err
}

// isEnd reports whether an error means that the connection has ended, and not only that it is
// slow.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// close ends the connection with a FIN.
func (c *conn) close() { _ = c.net.Close() }

// reset ends it with an RST.
func (c *conn) reset() {
	if tcp, ok := c.net.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.net.Close()
}

// halfClose closes the sending side and keeps reading.
func (c *conn) halfClose() {
	if closer, ok := c.net.(interface{ CloseWrite() error }); ok {
		_ = closer.CloseWrite()
	}
}
