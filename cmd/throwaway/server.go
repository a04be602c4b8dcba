// Package throwaway runs the servers that tests and benchmarks are tried with:
// a directory of their own, gone with them, and gone when the process that
// started them is. It knows nothing of what they serve.
package throwaway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Server is one server. Launch, Stop and Kill may be called in turn; what is in
// Dir stays until Close.
type Server struct {
	// Program is started with what Args returns at each Launch.
	Program string
	Args    func() []string
	// Ready returns nil once the server serves.
	Ready func(context.Context) error
	// Dir is the server's own. Its output goes to the file "log" there.
	Dir string

	mu      sync.Mutex // guards process
	process *process
}

// process is one life of the server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
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
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own keeps a terminal's ^C away from it: the test decides
	// when it ends. It dies with the thread that forked it, hence the lock.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	if err := s.await(p); err != nil {
		cmd.Process.Kill()
		<-p.exited
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
			return fmt.Errorf("%s ended at start: %s", s.Program, s.log())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer after %s: %w: %s", s.Program, startTimeout, err, s.log())
		case <-tick.C:
		}
	}
}

// Stop ends the server in an orderly way, Kill with SIGKILL. Both wait for it
// and do nothing when it is not running.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	if p == nil {
		return
	}
	s.process = nil
	p.cmd.Process.Signal(signal)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.cmd.Process.Kill()
		<-p.exited
	}
}

// Freeze stops the server from answering without closing anything, as a host
// that hangs does; Thaw ends that.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }
func (s *Server) Thaw()   { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.cmd.Process.Signal(signal)
	}
}

// PID is the id of the server's process, 0 when it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

// Exited is closed when the process that was launched last has ended by itself or
// was ended. Call it while that process runs.
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

// Tail is the end of a program's output.
func Tail(text []byte) string {
	const most = 2000
	text = bytes.TrimSpace(text)
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(text)
}

// FreePort is a loopback port that was free a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Lookup finds the first of the names. Debian keeps daemons out of an ordinary
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
