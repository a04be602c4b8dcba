package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startWithin = 10 * time.Second
	stopWithin  = 5 * time.Second
)

// process is a child that ends with us.
type process struct {
	cmd  *exec.Cmd
	dir  string
	tail *tail
	done chan struct{}
	err  error // set before done is closed
}

// spawn starts a program in an empty directory of its own. lines, if not nil,
// is called with what the program writes to stderr.
func spawn(path string, args []string, lines func([]byte)) (*process, error) {
	dir, err := os.MkdirTemp("", "gloom-bench-")
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(path, args...), dir: dir, tail: &tail{line: lines}, done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.tail, p.tail
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks, then forces.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return os.RemoveAll(p.dir)
}

// reach waits until something accepts connections at addr.
func (p *process) reach(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once: %v: %s", p.cmd.Path, p.err, p.tail)
		case <-ctx.Done():
			return fmt.Errorf("%s did not listen on %s: %w: %s", p.cmd.Path, addr, err, p.tail)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// freePort finds a TCP port nobody uses right now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port, l.Close()
}

// tail keeps the end of what is written to it, and hands on whole lines.
type tail struct {
	mu   sync.Mutex
	last []byte
	part []byte
	line func([]byte)
}

const tailSize = 2 << 10

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if over := len(t.last) - tailSize; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	if t.line != nil {
		t.part = append(t.part, p...)
		for {
			l, rest, ok := bytes.Cut(t.part, []byte("\n"))
			if !ok {
				break
			}
			t.line(l)
			t.part = append([]byte(nil), rest...)
		}
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.last))
}
