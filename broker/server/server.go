// Package server runs a broker on sockets: it accepts connections, cuts their bytes into
// frames, checks their tokens, and lets the hub carry out their requests. It decides nothing
// about jobs.
package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker"
	"gloom/broker/fleet/driver"
	"gloom/broker/guard"
	"gloom/broker/hub"
	"gloom/broker/memory"
	"gloom/broker/settings"
	"gloom/broker/wording"
	"gloom/wire"
)

// Server is a running broker.
type Server struct {
	options     settings.Options
	log         zerolog.Logger
	hub         *hub.Hub
	limits      *settings.Limits
	loops       loops
	tokens      guard.Tokens
	certs       *guard.Certificates // nil without TLS
	defaultType string              // canonical
	maxConns    int
	fleet       *driver.Driver // nil without a fleet
	startedAt   time.Time

	listeners      []*listener
	httpLn         net.Listener
	httpSrv        *http.Server
	httpEnds       chan struct{} // closed before httpSrv waits for open requests to end
	inProcessConns atomic.Int64  // how many connections of Dial are open
	offloadSlots   chan struct{} // one value per offloaded frame; the capacity leaves the loops one processor

	conns         atomic.Int64
	largeDropped  chan struct{} // gets a value when a large unfinished frame was dropped
	bytesIn       atomic.Uint64
	bytesOut      atomic.Uint64
	acceptedConns atomic.Uint64
	refusedConns  atomic.Uint64
	acceptErrors  atomic.Uint64
	unauthorized  atomic.Uint64
	maxLags       [2]atomic.Int64 // the longest lag of a loop since each caller last called Lag, ns
	draining      atomic.Bool

	ctx            context.Context // done when the server closes
	cancel         context.CancelFunc
	drainRequested chan struct{}
	closeOnce      sync.Once
	acceptLoops    sync.WaitGroup
	streamsMu      sync.Mutex // keeps streams from being started during Close
	goroutines     sync.WaitGroup
	closeErr       error
}

// Start listens on the addresses of opt and serves them. A *guard.OptionError names the option
// that cannot be used.
func Start(opt settings.Options, log zerolog.Logger) (*Server, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	s := &Server{options: opt, log: log, httpEnds: make(chan struct{}), drainRequested: make(chan struct{}, 1), largeDropped: make(chan struct{}, 1), offloadSlots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)), startedAt: time.Now()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.defaultType = string(wire.Canonical(nil, opt.DefaultType))
	s.tokens.File, s.tokens.Scopes, s.tokens.AllowTypes = opt.TokenFile, scopeNames, true
	s.tokens.UntypedScopes = adminScope | watchScope
	if err := guard.Reload(&s.tokens, nil, log); err != nil {
		return nil, s.tokens.OptionError(err)
	}
	var err error
	if s.certs, err = s.options.LoadCertificates(log); err != nil {
		return nil, err
	}
	// Connections of operators must not use up the files that peers need.
	if s.maxConns, s.options.MaxHTTPConns, err = guard.DivideFileLimit("--max-conns", opt.MaxConns, opt.MaxHTTPConns, log); err != nil {
		return nil, err
	}
	cfg := opt.Hub()
	cfg.Core.Pages = memory.Pages{}
	_ = binary.Read(rand.Reader, binary.LittleEndian, &cfg.Core.Seed)
	s.hub = hub.New(cfg)
	s.limits = settings.NewLimits(s.hub, opt.MaxTypes)
	if err := s.limits.Load(opt.Limits); err != nil {
		return nil, fmt.Errorf("--limits %s: %w", opt.LimitsFile, err)
	}
	if err := s.startServing(); err != nil {
		_ = s.Close()
		return nil, err
	}
	s.goroutines.Go(func() { memory.ReturnUnused(s.Done(), s.largeDropped, s.trim) })
	s.goroutines.Go(s.monitorLoops)
	return s, nil
}

// startServing listens, serves, and joins the fleet.
func (s *Server) startServing() (err error) {
	if err = s.listen(); err != nil {
		return err
	}
	if err = s.newLoops(); err != nil {
		return fmt.Errorf("starting event loops: %w", err)
	}
	s.hub.SetReadAll(s.loops.readAll)
	for _, l := range s.listeners {
		s.acceptLoops.Go(func() { s.accept(l) })
	}
	return s.joinFleet()
}

// joinFleet joins the fleet that the options name, if any.
func (s *Server) joinFleet() (err error) {
	opt := s.options.Fleet
	if opt.Servers == "" {
		return nil
	}
	if s.options.MaxUnread > 0 {
		opt.MaxHeld = max(s.options.MaxUnread, 2*int64(s.options.MaxFrame))
	}
	if opt.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return &guard.OptionError{Flag: "fleet-name", Reason: "there is no host name to use: " + err.Error()}
		}
		_, port, _ := net.SplitHostPort(s.SubmitAddr().String())
		opt.Name = host + ":" + port
	}
	if s.fleet, err = driver.Join(s.hub, opt, s.log); err != nil {
		return &guard.OptionError{Flag: "fleet", Value: opt.Servers, Reason: err.Error()}
	}
	return nil
}

// Fleet returns the driver of the fleet that the broker has joined, nil if it is in none.
func (s *Server) Fleet() *driver.Driver { return s.fleet }

// Hub returns the hub, for requests of operators.
func (s *Server) Hub() *hub.Hub { return s.hub }

// Limits returns the settings of types and groups.
func (s *Server) Limits() *settings.Limits { return s.limits }

// Options returns the options in force.
func (s *Server) Options() settings.Options { return s.options }

// MaxConns returns the number of connections that may be open.
func (s *Server) MaxConns() int { return s.maxConns }

// Started returns the time at which the broker was started.
func (s *Server) Started() time.Time { return s.startedAt }

// Draining reports whether the broker takes no new jobs because it is shutting down.
func (s *Server) Draining() bool { return s.draining.Load() }

// SubmitAddr returns the address where submitters connect: the last one configured.
func (s *Server) SubmitAddr() net.Addr { return s.Addrs(wire.SubmitPort)[0] }

// WorkerAddr returns the address where workers connect: the last one configured.
func (s *Server) WorkerAddr() net.Addr { return s.Addrs(wire.WorkerPort)[0] }

// Addrs returns all addresses where the peers of a port connect, as bound.
func (s *Server) Addrs(port wire.Port) (addrs []net.Addr) {
	for _, l := range s.listeners {
		if l.port == port {
			addrs = append(addrs, l.Addr())
		}
	}
	return addrs
}

// HTTPAddr returns the address where operators connect, nil if there is none.
func (s *Server) HTTPAddr() net.Addr {
	if s.httpLn == nil {
		return nil
	}
	return s.httpLn.Addr()
}

// Reload reads tokens and certificates again. If the reading fails, the old ones stay in force.
func (s *Server) Reload() error { return guard.Reload(&s.tokens, s.certs, s.log) }

// CertificateWarning returns the Warning about the TLS certificate.
func (s *Server) CertificateWarning(now time.Time) (text string, invalid bool) {
	return s.certs.Warning(now)
}

// AskDrain begins a drain and asks the program that runs the broker to shut it down (see
// DrainAsked).
func (s *Server) AskDrain() {
	notify(s.drainRequested)
	s.Drain()
}

// DrainAsked returns a channel that receives a value when AskDrain is called.
func (s *Server) DrainAsked() <-chan struct{} { return s.drainRequested }

// drainPoll is how often a drain checks whether all jobs have ended.
const drainPoll = 10 * time.Millisecond

// Drain refuses new jobs and connections from now on.
func (s *Server) Drain() {
	if s.draining.Swap(true) {
		return
	}
	s.closeListeners()
	s.hub.Do(func(core *broker.Broker, _ int64) []broker.Effect {
		core.Drain()
		return nil
	})
}

// Shutdown drains: it refuses new jobs and connections, and waits until all jobs have ended and
// submitters have read their outcomes, or ctx is done. Then it ends the jobs that are left with
// an error, and closes.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	t := time.NewTicker(drainPoll)
	defer t.Stop()
	for timeUp := false; ; {
		leftovers := s.Leftovers()
		if leftovers.Jobs() == 0 && (timeUp || leftovers.Unread == 0) {
			break
		}
		select {
		case <-ctx.Done():
			if !timeUp && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				s.log.Warn().Msgf("the drain timeout has passed; given up: %s", leftovers)
			}
			s.endLeftovers()
			timeUp = true
		case <-s.Done():
			return s.Close()
		case <-t.C:
		}
	}
	s.closeConns()
	if s.httpSrv != nil {
		// An operator who asked over HTTP for the drain still gets the reply.
		lingerCtx, cancel := context.WithTimeout(context.Background(), lingerTimeout)
		defer cancel()
		_ = s.httpSrv.Shutdown(lingerCtx)
	}
	return s.Close()
}

// Leftovers returns what a drain would wait for now.
func (s *Server) Leftovers() (leftovers wording.Leftovers) {
	s.hub.View(func(core *broker.Broker, _ int64) {
		t := core.Totals()
		leftovers = wording.Leftovers{Running: t.Running, Borrowed: uint64(core.BorrowedRuns()), Queued: t.Queued, Delayed: t.Delayed}
	})
	leftovers.Unread, _, _ = s.hub.Backlog()
	return leftovers
}

// endLeftovers ends the jobs that are left, in slices, so that other commands get their turn.
func (s *Server) endLeftovers() {
	for more := true; more; {
		s.hub.Do(func(core *broker.Broker, now int64) (effects []broker.Effect) {
			effects, more = core.EndLeftovers(now)
			return effects
		})
	}
}

// closeConns closes all connections after their last frames, and gives the peers a moment to
// read these.
func (s *Server) closeConns() {
	s.hub.CloseAll()
	for end := time.Now().Add(lingerTimeout); s.conns.Load()+s.inProcessConns.Load() > 0 && time.Now().Before(end); {
		time.Sleep(drainPoll)
	}
}

// Close stops the broker at once.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.draining.Store(true)
		s.streamsMu.Lock()
		s.cancel()
		s.streamsMu.Unlock()
		s.closeListeners()
		if s.httpSrv != nil {
			s.closeErr = s.httpSrv.Close()
		} else if s.httpLn != nil {
			s.closeErr = s.httpLn.Close()
		}
		// No goroutine may give an accepted connection to a stopped loop.
		s.acceptLoops.Wait()
		s.loops.stop()
		s.hub.Close()
		if s.fleet != nil {
			s.fleet.Close()
		}
		s.goroutines.Wait()
	})
	return s.closeErr
}

// Done returns a channel that is closed when the broker begins to close.
func (s *Server) Done() <-chan struct{} { return s.ctx.Done() }

// trim frees memory that is kept for reuse. It also limits the history so that everything
// together fits in three quarters of MaxMemory.
func (s *Server) trim() {
	s.hub.Trim()
	hubBytes := s.hub.Memory().Total()
	s.hub.Do(func(core *broker.Broker, now int64) []broker.Effect {
		if limit := s.options.MaxMemory; limit > 0 {
			coreMemory := core.Memory()
			core.LimitHistory(limit*3/4 - hubBytes - (coreMemory.Total() - coreMemory.History))
		}
		// Each command frees the slabs that the command before it emptied, so end with a
		// command.
		return core.Tick(now)
	})
}

// httpBuffer is how many bytes of a response the system may hold for a client.
const httpBuffer = 256 << 10

// ServeHTTP serves operators with h on the HTTP address, if there is one.
func (s *Server) ServeHTTP(h http.Handler) {
	if s.httpLn == nil {
		return
	}
	s.httpSrv = &http.Server{
		Handler: guard.ReadOn(h), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ConnState: guard.NewConnLimiter(s.options.MaxHTTPConns, httpBuffer, s.log).OnState,
		ErrorLog:  guard.ErrorLog(s.log),
	}
	s.httpSrv.RegisterOnShutdown(sync.OnceFunc(func() { close(s.httpEnds) }))
	s.goroutines.Go(func() {
		if err := s.httpSrv.Serve(s.httpLn); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error().Err(err).Msg("the HTTP server has stopped")
		}
	})
}

// HTTPEnds returns a channel that is closed when requests that would otherwise not end, such as
// streams, must end.
func (s *Server) HTTPEnds() <-chan struct{} { return s.httpEnds }

// Counts holds the counts of events since the start, the open connections, and the bytes of
// unfinished frames.
type Counts struct {
	Conns, InboundBytes                       int64
	BytesIn, BytesOut                         uint64
	AcceptedConns, RefusedConns, AcceptErrors uint64
	UnauthorizedRequests                      uint64
}

// Counts returns the counts of the server.
func (s *Server) Counts() Counts {
	return Counts{
		Conns: s.conns.Load(), InboundBytes: s.hub.Memory().Input,
		BytesIn: s.bytesIn.Load(), BytesOut: s.bytesOut.Load(),
		AcceptedConns: s.acceptedConns.Load(), RefusedConns: s.refusedConns.Load(),
		AcceptErrors: s.acceptErrors.Load(), UnauthorizedRequests: s.unauthorized.Load(),
	}
}

// These are the callers of Lag. Each of them has a maximum of its own.
const (
	LagForMetrics = iota
	LagForFindings
)

// Lag returns the longest time that a loop has taken to reach a task since the last call for
// the same caller (LagForMetrics or LagForFindings).
func (s *Server) Lag(caller int) time.Duration { return time.Duration(s.maxLags[caller].Swap(0)) }
