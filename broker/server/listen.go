package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"gloom/broker/guard"
	"gloom/broker/poll"
	"gloom/wire"
)

// listener is a port that the accept loop serves.
type listener struct {
	net.Listener
	port   wire.Port
	hasTLS bool
}

// socketNames are the names under which systemd may hand over sockets.
var socketNames = []string{"submit", "worker", "plain-submit", "plain-worker", "http"}

// listen binds all addresses. Sockets that systemd hands over replace configured addresses.
func (s *Server) listen() error {
	activated, err := activation.ListenersWithNames()
	if err != nil {
		return fmt.Errorf("socket activation: %w", err)
	}
	return s.bindAddresses(activated)
}

// bindAddresses binds the addresses for which no socket was handed over.
func (s *Server) bindAddresses(activated map[string][]net.Listener) error {
	for name := range activated {
		if !slices.Contains(socketNames, name) {
			return fmt.Errorf("socket activation: a socket has the name %.64q; FileDescriptorName= must be one of %s", name, strings.Join(socketNames, ", "))
		}
	}
	for _, p := range []struct {
		port                 wire.Port
		name, values, socket string
	}{
		{wire.SubmitPort, "submit", s.options.SubmitAddr, s.options.SubmitSocket},
		{wire.WorkerPort, "worker", s.options.WorkerAddr, s.options.WorkerSocket},
	} {
		add := func(ln net.Listener, secure bool) { s.listeners = append(s.listeners, &listener{ln, p.port, secure}) }
		if err := s.openSockets("plain-"+p.name, activated, "", add); err != nil {
			return err
		}
		if err := s.openSockets(p.name, activated, p.values, add); err != nil {
			return err
		}
		if len(activated[p.name]) == 0 {
			s.bindSocket(p.port, p.socket)
		}
	}
	return s.openSockets("http", activated, s.options.HTTPAddr, func(ln net.Listener, secure bool) {
		if secure {
			ln = tls.NewListener(ln, s.certs.Config("http/1.1"))
		}
		s.httpLn = cmp.Or(s.httpLn, ln)
	})
}

// openSockets adds the sockets that systemd hands over under this name, after the same checks as for
// addresses. If there are none, it binds the addresses in values. The last address comes first,
// because a user who appends a flag to a command line expects the broker to report its address.
func (s *Server) openSockets(name string, activated map[string][]net.Listener, values string, add func(ln net.Listener, secure bool)) error {
	for _, ln := range activated[name] {
		a, tcp := ln.Addr().(*net.TCPAddr)
		secure := tcp && s.certs != nil && !strings.HasPrefix(name, "plain-")
		if tcp && !a.IP.IsLoopback() && !s.options.Insecure && !s.options.IsGuarded(secure) {
			return fmt.Errorf("socket activation: the socket %s on %s %s", name, a, guard.UnguardedReason)
		}
		add(ln, secure)
	}
	if len(activated[name]) > 0 || values == "" {
		return nil
	}
	addresses, err := s.options.ParseAddresses(name+"-addr", values)
	if err != nil {
		return err
	}
	for _, a := range slices.Backward(addresses) {
		ln, err := a.Listen()
		if err != nil {
			return fmt.Errorf("--%s %s: %w", a.Flag, a.Value, err)
		}
		add(ln, a.HasTLS)
	}
	return nil
}

// bindSocket opens a unix socket. If that fails, the broker runs without the socket.
func (s *Server) bindSocket(port wire.Port, path string) {
	if path == "" {
		return
	}
	_ = os.Mkdir(filepath.Dir(path), 0o700)
	ln, err := guard.ListenUnix(path)
	if err != nil {
		s.log.Info().Str("path", path).Err(err).Msgf("no unix socket for the %s", port)
		return
	}
	s.listeners = append(s.listeners, &listener{ln, port, false})
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

// accept accepts connections until the listener closes. If an accept fails, as it does when
// file descriptors run out, it pauses.
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
			s.log.Warn().Err(err).Stringer("pause", pause).Msg("cannot accept a connection")
			select {
			case <-s.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, longest)
			continue
		}
		pause = first
		s.serveConn(l, nc)
	}
}

// keepAlive makes the system find a dead peer after 30 s + 3 × 10 s. While data is
// unacknowledged, no probes are sent, and userTimeout applies.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

const userTimeout = 60 * time.Second

// setSocketOptions sets how soon the system closes a connection whose peer is gone. The socket may
// come from a listener of systemd or of the broker.
func setSocketOptions(nc net.Conn) {
	c, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	_ = c.SetKeepAliveConfig(keepAlive)
	if rc, err := c.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		})
	}
}

func (s *Server) serveConn(l *listener, nc net.Conn) {
	n := s.conns.Add(1)
	if tooMany := n > int64(s.maxConns); tooMany || l.hasTLS && !s.hub.ReserveTLS(tlsIdleBytes) {
		s.conns.Add(-1)
		s.refusedConns.Add(1)
		s.log.Debug().Str("peer", remoteOf(nc)).Int("max_conns", s.maxConns).Bool("tls_memory", !tooMany).Msg("refused a connection: too many are open")
		s.refuseConn(l, nc)
		return
	}
	s.acceptedConns.Add(1)
	setSocketOptions(nc)
	if l.hasTLS {
		if !s.serveUntilClose(nc, func() { s.serveSecure(nc, l.port) }) {
			_ = nc.Close()
		}
		return
	}
	if err := s.loops.addConn(s, nc, l.port); err != nil {
		s.countAcceptError(err)
	}
}

// countAcceptError counts and logs an accepted connection that cannot be served.
func (s *Server) countAcceptError(err error) {
	s.conns.Add(-1)
	s.acceptErrors.Add(1)
	s.log.Warn().Err(err).Msg("cannot serve a connection")
}

// refuseConn closes a new connection beyond the limit. Without TLS, it tells the peer why.
func (s *Server) refuseConn(l *listener, nc net.Conn) {
	if l.hasTLS {
		_ = nc.Close()
		return
	}
	fd, err := duplicateFD(nc)
	if err != nil {
		return
	}
	_, _ = poll.Send(fd, wire.AppendError(nil, wire.Overloaded, fmt.Sprintf("the limit of %d open connections is reached (max-conns)", s.maxConns), nil))
	// Read what has arrived: with unread input, a close would reset the connection before the
	// peer has read the reason.
	_ = unix.Shutdown(fd, unix.SHUT_WR)
	_, _ = poll.Receive(fd, make([]byte, 4096))
	_ = unix.Close(fd)
}

func remoteOf(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil && a.Network() != "unix" {
		return a.String()
	}
	return "unix"
}
