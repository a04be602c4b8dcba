// Package mariadbtest starts throw-away MariaDB servers for tests and
// benchmarks: own data directory, own socket, own loopback port, gone when the
// process that started them is gone. It knows nothing of jobd's table.
package mariadbtest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Options chooses what Start runs.
type Options struct {
	// Durable leaves the server's commit durability at its default, one flush
	// per commit. Otherwise it is relaxed, which makes tests quick.
	Durable bool
	// Args are further arguments for mariadbd; they win over ours.
	Args []string
	// Parent is where the data directory is made; empty means os.TempDir.
	Parent string
}

// Server is one MariaDB server. Stop, Kill and Launch may be called in turn;
// socket, port and data stay the same.
type Server struct {
	opt     Options
	program string
	dir     string
	port    int

	mu      sync.Mutex // guards process
	process *process
}

// process is one life of the server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start makes a data directory and starts a server on it. Close ends it.
func Start(opt Options) (*Server, error) {
	found, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(opt.Parent, "gloom-mariadb-")
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, program: found.server, dir: dir}
	if err := s.create(found.install); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := s.Launch(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// Socket is the path of the unix socket, Port the TCP port on 127.0.0.1.
func (s *Server) Socket() string { return filepath.Join(s.dir, "sock") }
func (s *Server) Port() int      { return s.port }

// Config is how root, who has no password, reaches a database over TCP. An
// empty name selects none.
func (s *Server) Config(database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User = "root"
	c.Net = "tcp"
	c.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	c.DBName = database
	c.Timeout = 5 * time.Second
	c.MultiStatements = true
	c.Logger = silent{} // a killed server is what tests are about
	return c
}

type silent struct{}

func (silent) Print(...any) {}

// Open returns a pool on a database. The caller closes it.
func (s *Server) Open(database string) (*sql.DB, error) {
	connector, err := mysql.NewConnector(s.Config(database))
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (s *Server) create(install string) error {
	args := []string{"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"), "--skip-test-db",
		"--auth-root-authentication-method=normal", "--innodb-log-file-size=16M"}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	out, err := exec.Command(install, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", install, err, tail(out))
	}
	s.port, err = freePort()
	return err
}

// Launch starts the server again after Stop or Kill, and returns when it
// answers.
func (s *Server) Launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return errors.New("server is already running")
	}
	args := []string{"--no-defaults",
		"--datadir=" + filepath.Join(s.dir, "data"),
		"--socket=" + s.Socket(),
		"--port=" + strconv.Itoa(s.port),
		"--bind-address=127.0.0.1",
		"--pid-file=" + filepath.Join(s.dir, "pid"),
		"--tmpdir=" + s.dir,
		"--skip-name-resolve",
		"--innodb-log-file-size=64M",
	}
	if !s.opt.Durable {
		args = append(args, "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0",
			"--innodb-doublewrite=0", "--innodb-fast-shutdown=2", "--innodb-log-file-size=16M")
	}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.program, append(args, s.opt.Args...)...)
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
	db, err := s.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended at start: %s", s.program, s.log())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer after %s: %w: %s", s.program, startTimeout, err, s.log())
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

// Close kills the server and removes its data.
func (s *Server) Close() {
	s.Kill()
	os.RemoveAll(s.dir)
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return tail(text)
}

func tail(text []byte) string {
	const most = 2000
	text = bytes.TrimSpace(text)
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(text)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
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

// SetArgs replaces the further arguments, from the next Launch on.
func (s *Server) SetArgs(args ...string) { s.opt.Args = args }
