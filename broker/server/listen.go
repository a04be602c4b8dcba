package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"gloom/wire"
)

// listener is a port that the accept loop serves.
type listener struct {
	net.Listener
	port   wire.Port
	secure bool
}

// keepAlive finds a dead peer after 30 s + 3 × 10 s. Its probes do not run while
// data is unacknowledged, when userTimeout does.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

const (
	userTimeout = 60 * time.Second
)

// socketNames are the names of sockets that systemd may hand over.
var socketNames = []string{"submit", "worker", "plain-submit", "plain-worker", "http"}

// listen binds all addresses. Sockets that systemd hands over come in place of
// the configured ones.
func (s *Server) listen() error {
	given, err := activation.ListenersWithNames()
	if err != nil {
		return fmt.Errorf("socket activation: %w", err)
	}
	return s.bind(given)
}

// bind binds what is not given, by the names of sockets.
func (s *Server) bind(given map[string][]net.Listener) error {
	for name := range given {
		if !slices.Contains(socketNames, name) {
			return fmt.Errorf("socket activation: a socket is named %.64q, FileDescriptorName= must be one of %s", name, strings.Join(socketNames, ", "))
		}
	}
	bind := func(flag, name, addr string) (net.Listener, error) {
		if l := given[name]; len(l) > 0 {
			return s.adopt(name, l)
		}
		l, err := listenOn(addr)
		if err != nil {
			return nil, fmt.Errorf("--%s %s: %w", flag, addr, err)
		}
		return l, nil
	}
	tls := s.certs != nil
	for _, a := range []struct {
		flag, name, addr string
		port             wire.Port
		secure           bool
	}{
		{"submit-addr", "submit", s.opt.SubmitAddr, wire.SubmitPort, tls},
		{"worker-addr", "worker", s.opt.WorkerAddr, wire.WorkerPort, tls},
		{"plain-submit-addr", "plain-submit", s.opt.PlainSubmitAddr, wire.SubmitPort, false},
		{"plain-worker-addr", "plain-worker", s.opt.PlainWorkerAddr, wire.WorkerPort, false},
	} {
		if a.addr == "" && len(given[a.name]) == 0 {
			continue
		}
		l, err := bind(a.flag, a.name, a.addr)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, &listener{l, a.port, a.secure})
	}
	if s.opt.HTTPAddr == "" && len(given["http"]) == 0 {
		return nil
	}
	l, err := bind("http-addr", "http", s.opt.HTTPAddr)
	if err != nil {
		return err
	}
	s.httpLn = l
	if tls {
		s.httpLn = s.certs.listener(s.httpLn)
	}
	return nil
}

// adopt takes a socket that systemd hands over. What is asked of addresses and
// set on sockets is the same for those of our own.
func (s *Server) adopt(name string, given []net.Listener) (net.Listener, error) {
	if len(given) > 1 {
		return nil, fmt.Errorf("socket activation: %d sockets are named %s, one can be", len(given), name)
	}
	l, ok := given[0].(*net.TCPListener)
	if !ok {
		return given[0], nil
	}
	guard := address{plain: strings.HasPrefix(name, "plain-")}
	if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() && !s.opt.Insecure && !s.opt.guarded(guard) {
		return nil, fmt.Errorf("socket activation: the socket %s on %s %s", name, a, reachable)
	}
	rc, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Multipath sockets know no such limit.
	if err := giveUpAfter(rc); err != nil && !errors.Is(err, unix.ENOPROTOOPT) && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, err
	}
	return keptAlive{l}, nil
}

// keptAlive sets on accepted connections what a listener of our own would.
type keptAlive struct{ *net.TCPListener }

func (l keptAlive) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	_ = c.SetKeepAliveConfig(keepAlive)
	return c, nil
}

// giveUpAfter has the connections that a listener will accept give up on data
// that is not acknowledged. They inherit it.
func giveUpAfter(c syscall.RawConn) (err error) {
	e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	return errors.Join(e, err)
}

func listenOn(addr string) (net.Listener, error) {
	network, address := split(addr)
	if network == "unix" {
		return listenUnix(address)
	}
	lc := net.ListenConfig{
		KeepAliveConfig: keepAlive,
		Control:         func(_, _ string, c syscall.RawConn) error { return giveUpAfter(c) },
	}
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), "tcp", address)
}

// listenUnix listens on a socket that only the same user can reach. It replaces
// nothing but a socket that nobody listens on.
func listenUnix(path string) (net.Listener, error) {
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("something that is no socket stands there")
		}
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("somebody listens there")
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

// connLimit is how many connections may be open: the option, or what the limit
// on open files leaves after a reserve for all else.
func connLimit(option int) (int, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("reading the limit on open files: %w", err)
	}
	files := int(min(r.Cur, 1<<24))
	reserve := min(128, max(24, files/4))
	if files <= reserve {
		return 0, fmt.Errorf("the limit on open files (ulimit -n) is %d, at least %d are needed", files, reserve+1)
	}
	if option > 0 {
		return min(option, files-reserve), nil
	}
	return files - reserve, nil
}

// accept lets connections in until the listener closes. Running out of file
// descriptors makes it pause, nothing else.
func (s *Server) accept(l *listener) {
	const first, longest = 5 * time.Millisecond, time.Second
	pause := first
	for {
		nc, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || s.draining.Load() {
				return
			}
			s.acceptErrors.Add(1)
			s.log.Warn().Err(err).Dur("pause", pause).Msg("cannot accept a connection")
			select {
			case <-s.stop:
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, longest)
			continue
		}
		pause = first
		s.welcome(l, nc)
	}
}

func (s *Server) welcome(l *listener, nc net.Conn) {
	if n := s.conns.Add(1); n > int64(s.maxConns) {
		s.conns.Add(-1)
		s.refusedConns.Add(1)
		s.turnAway(l, nc)
		return
	}
	s.accepted.Add(1)
	if l.secure {
		s.wg.Go(func() { s.serveSecure(nc, l.port) })
		return
	}
	if err := s.loops.enroll(s, nc, l.port); err != nil {
		s.conns.Add(-1)
		s.acceptErrors.Add(1)
		s.log.Warn().Err(err).Msg("cannot serve a connection")
	}
}

// turnAway tells a connection too many so.
func (s *Server) turnAway(l *listener, nc net.Conn) {
	s.log.Debug().Str("peer", remoteOf(nc)).Int("max_conns", s.maxConns).Msg("a connection too many")
	if !l.secure {
		_ = nc.SetDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = nc.Write(wire.AppendError(nil, wire.Overloaded, fmt.Sprintf("%d connections are open, no more may be (max-conns)", s.maxConns), nil))
		// What has come already is read, or closing would reset the connection
		// before the reason is.
		if c, ok := nc.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
		if sc, ok := nc.(syscall.Conn); ok {
			if rc, err := sc.SyscallConn(); err == nil {
				var junk [4096]byte
				_ = rc.Read(func(fd uintptr) bool {
					_, _ = unix.Read(int(fd), junk[:])
					return true
				})
			}
		}
	}
	_ = nc.Close()
}

func remoteOf(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil && a.Network() != "unix" {
		return a.String()
	}
	return "unix"
}
