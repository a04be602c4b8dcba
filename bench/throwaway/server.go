// Package throwaway runs the processes that tests and benchmarks need: servers with a directory of
// their own, which can be started again, and single runs of this repository's daemons. Servers and
// daemons end with the process that started them. The package does not know their protocols.
package throwaway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Server is a server that can be started several times. It may be stopped or killed and launched
// again; Dir stays until Close.
type Server struct {
	// Program is started at each Launch with the arguments that Args returns then.
	Program string
	Args    func() []string
	// Ready returns nil once the server serves.
	Ready func(context.Context) error
	// Dir is the server's directory. Its output goes to the file "log" there.
	Dir string

	port int

	mu      sync.Mutex // guards process
	process *process
}

// New makes a server with a directory of its own and a loopback port that was free a moment ago.
// Start or Launch starts it, once Args and Ready are set.
func New(program string) (*Server, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gloom-"+filepath.Base(program)+"-")
	return &Server{Program: program, Dir: dir, port: port}, err
}

// Port returns the port that New has chosen for the server.
func (s *Server) Port() int { return s.port }

// Addr returns the server's address, 127.0.0.1 and Port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Accepts is a function for Ready: it returns nil if Addr accepts connections.
func (s *Server) Accepts(ctx context.Context) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	return c.Close()
}

// Answers returns a function for Ready, which returns nil if an HTTP server at Addr answers a request for
// path with status 200.
func (s *Server) Answers(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.Addr()+path, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	}
}

// Start launches the server for the first time. If that fails, the server is closed.
func (s *Server) Start() error {
	err := s.Launch()
	if err != nil {
		s.Close()
	}
	return err
}

// Launch starts the server, for the first time or after Stop or Kill, and
// returns when it serves.
func (s *Server) Launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return errors.New("server is already running")
	}
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.Program, s.Args()...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), "TMPDIR="+s.Dir) // files of a killed server are removed with the directory
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	if err := s.await(p); err != nil {
		p.end(syscall.SIGKILL, syscall.SIGKILL)
		return err
	}
	s.process = p
	return nil
}

func (s *Server) await(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended during its start: %s", s.Program, s.log())
		case <-ctx.Done():
			return fmt.Errorf("%s did not answer within %s: %w: %s", s.Program, startTimeout, err, s.log())
		case <-tick.C:
		}
	}
}

// Stop ends the server with SIGTERM and waits for its end. It does nothing if the server does not run.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill is like Stop, but ends the server with SIGKILL.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	if p == nil {
		return
	}
	s.process = nil
	p.end(signal, syscall.SIGKILL)
}

// Reload makes the server read its configuration again.
func (s *Server) Reload() { s.signal(syscall.SIGHUP) }

// Freeze stops the server's process without closing anything, like a host that hangs.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw continues a process that Freeze has stopped.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.signal(signal)
	}
}

// PID returns the id of the server's process, 0 if it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

// Exited returns a channel that is closed when the process launched last has ended. Call it while
// that process runs.
func (s *Server) Exited() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.exited
}

// Close kills the server and removes its directory.
func (s *Server) Close() {
	s.Kill()
	os.RemoveAll(s.Dir)
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	return Tail(text)
}

// TB is the part of testing.TB that the packages of the individual servers need.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Tail returns the end of a program's output.
func Tail(text []byte) string {
	const maxBytes = 2000
	text = bytes.TrimSpace(text)
	if len(text) > maxBytes {
		text = text[len(text)-maxBytes:]
	}
	return string(text)
}

// FreePort returns a loopback port that was free a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Lookup finds the first of the names. Debian keeps daemons outside of an ordinary
// user's PATH.
func Lookup(names ...string) string {
	for _, name := range names {
		for _, place := range []string{"", "/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/bin"} {
			if path, err := exec.LookPath(filepath.Join(place, name)); err == nil {
				return path
			}
		}
	}
	return ""
}
