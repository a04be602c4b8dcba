package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/cli"
	"gloom/cmd/jobd/eot"
)

// Options are the limits and passwords of connections.
type Options struct {
	Password       string // "" demands none
	AllowLocalhost bool   // loopback peers need no password
	MaxConnections int    // default 1024
	// SilentAfter is the time without a request after which a connection counts as silent. At
	// MaxConnections, a silent connection is closed to make room for another connection. The default
	// is ten seconds.
	SilentAfter   time.Duration
	MaxMessage    int // bytes of one message from the peer, default 16 MiB
	MaxUnfinished int // bytes of incomplete messages, of all accepted connections together; default 256 MiB
	Log           zerolog.Logger
}

func (o *Options) setDefaults() {
	if o.MaxConnections == 0 {
		o.MaxConnections = 1024
	}
	if o.SilentAfter == 0 {
		o.SilentAfter = 10 * time.Second
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 16 << 20
	}
	if o.MaxUnfinished == 0 {
		o.MaxUnfinished = 256 << 20
	}
}

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// Server accepts connections and serves them.
type Server struct {
	opt        Options
	listener   net.Listener
	unfinished *unfinishedBudget

	mu        sync.Mutex
	conns     map[*Conn]struct{}
	isClosed  bool
	connTasks sync.WaitGroup
}

// Listen opens the port; no connection is accepted before Serve. Port 0 means a free port.
func Listen(host string, port int, opt Options) (*Server, error) {
	opt.setDefaults()
	config := net.ListenConfig{KeepAliveConfig: keepAlive, Control: setUserTimeout}
	listener, err := config.Listen(context.Background(), cli.ListenNetwork(host), net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return &Server{opt: opt, listener: listener, unfinished: newUnfinished(opt.MaxUnfinished), conns: make(map[*Conn]struct{})}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve accepts connections and serves their requests with routes. It returns after Shutdown or
// Close.
func (s *Server) Serve(routes Routes) {
	pause := time.Duration(0)
	for {
		sock, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// The process is out of descriptors or memory; other goroutines may free some.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.opt.Log.Error().Err(err).Stringer("pause", pause).Msg("cannot accept")
			time.Sleep(pause)
			continue
		}
		pause = 0
		s.start(sock, routes)
	}
}

func (s *Server) start(sock net.Conn, routes Routes) {
	c := newConn(sock, s.opt, routes, false)
	c.unfinished = s.unfinished
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		sock.Close()
		return
	}
	if len(s.conns) >= s.opt.MaxConnections && !s.makeRoom() {
		c.log.Warn().Int("limit", s.opt.MaxConnections).Msg("too many connections")
		refuse(sock, fmt.Sprintf("too many connections (limit %d)", s.opt.MaxConnections))
		return
	}
	c.log.Info().Msg("new connection")
	s.conns[c] = struct{}{}
	s.connTasks.Go(func() {
		c.run()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.log.Info().Msg("connection closed")
	})
}

// makeRoom closes the oldest connection that has made no request at all, if there is one;
// s.mu is held. Bytes and pings do not count, because clients without a password can send
// them.
func (s *Server) makeRoom() bool {
	var victim *Conn
	for c := range s.conns {
		if !c.hasRequested.Load() && (victim == nil || c.acceptedAt.Before(victim.acceptedAt)) {
			victim = c
		}
	}
	if victim == nil || time.Since(victim.acceptedAt) < s.opt.SilentAfter {
		return false
	}
	delete(s.conns, victim)
	victim.refuse(fmt.Sprintf("too many connections (limit %d), and no request came on this one", s.opt.MaxConnections))
	return true
}

// refuse sends the reason and closes the socket. It needs no goroutine, because the text fits into
// the socket's buffer.
func refuse(sock net.Conn, reason string) {
	_ = sock.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = sock.Write(eot.Message{Kind: eot.Response, Error: reason}.Append(nil))
	sock.Close()
}

// Shutdown stops accepting connections and reading, waits until all requests are answered or ctx
// ends, and closes all connections.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.isClosed = true
	s.listener.Close()
	for c := range s.conns {
		_ = c.sock.SetReadDeadline(time.Now())
	}
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.Close)()
	s.connTasks.Wait()
}

// Close stops accepting connections and closes all of them at once.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed = true
	s.listener.Close()
	for c := range s.conns {
		c.Close()
	}
}

// Dial connects to a daemon. The password is sent with the first call; routes, which may be nil,
// serve the peer's requests.
func Dial(ctx context.Context, host string, port int, opt Options, routes Routes) (*Conn, error) {
	opt.setDefaults()
	dialer := net.Dialer{KeepAliveConfig: keepAlive, Control: setUserTimeout}
	sock, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	c := newConn(sock, opt, routes, true)
	go c.run()
	return c, nil
}
