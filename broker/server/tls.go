package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"gloom/broker/hub"
	"gloom/wire"
)

const (
	// handshakeTime is how long a TLS handshake may take.
	handshakeTime = 10 * time.Second
	// atATime is how many bytes are written before the hub is told how many are
	// left.
	atATime = 256 << 10
)

// certificates are what TLS listeners show and ask for; they can be read again
// while connections stand.
type certificates struct {
	opt    *Options
	config atomic.Pointer[tls.Config]
}

func loadCertificates(opt *Options) (*certificates, error) {
	c := &certificates{opt: opt}
	return c, c.load()
}

func (c *certificates) load() error {
	cert, err := tls.LoadX509KeyPair(c.opt.TLSCert, c.opt.TLSKey)
	if err != nil {
		return &OptionError{"tls-cert", c.opt.TLSCert, err.Error()}
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if c.opt.TLSClientCA != "" {
		pem, err := os.ReadFile(c.opt.TLSClientCA)
		if err != nil {
			return &OptionError{"tls-client-ca", c.opt.TLSClientCA, err.Error()}
		}
		cfg.ClientCAs = x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
			return &OptionError{"tls-client-ca", c.opt.TLSClientCA, "holds no certificate in PEM form"}
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	c.config.Store(cfg)
	return nil
}

// current lets every handshake use what was read last.
func (c *certificates) current() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.config.Load(), nil
		},
	}
}

func (c *certificates) listener(l net.Listener) net.Listener {
	cfg := c.current()
	cfg.NextProtos = []string{"http/1.1"}
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.config.Load().Clone()
		now.NextProtos = []string{"http/1.1"}
		return now, nil
	}
	return tls.NewListener(l, cfg)
}

// secureConns are the open TLS connections.
type secureConns struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func (s *secureConns) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.open == nil {
		s.open = map[net.Conn]struct{}{}
	}
	s.open[c] = struct{}{}
	return true
}

func (s *secureConns) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

func (s *secureConns) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		_ = c.Close()
	}
}

// serveSecure serves a TLS connection: this goroutine reads, another writes.
func (s *Server) serveSecure(raw net.Conn, port wire.Port) {
	defer s.conns.Add(-1)
	defer raw.Close()
	if !s.secure.add(raw) {
		return
	}
	defer s.secure.remove(raw)
	nc := tls.Server(raw, s.certs.current())
	_ = raw.SetDeadline(time.Now().Add(handshakeTime))
	if err := nc.Handshake(); err != nil {
		s.log.Info().Str("peer", remoteOf(raw)).Err(err).Msg("a TLS handshake failed")
		return
	}
	_ = raw.SetDeadline(time.Time{})
	w := &tlsWriter{srv: s, nc: nc, raw: raw, wake: make(chan struct{}, 1), done: make(chan struct{})}
	w.sink = s.hub.NewSink(hub.Owner{
		Wake: func() {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		},
		// The writer may stand in a write that the peer does not read.
		Ends: func(_ *hub.Conn, atOnce bool) {
			if atOnce {
				_ = raw.Close()
				return
			}
			_ = raw.SetDeadline(time.Now().Add(lingerTime))
		},
	})
	p := &session{srv: s, port: port, shut: func() { _ = raw.Close() }}
	p.conn = s.hub.Open(port, w.sink, p, remoteOf(raw))
	p.opened()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.run()
	}()
	s.readSecure(p, nc)
	close(w.done)
	_ = raw.Close()
	<-written
	p.closed()
}

// readSecure feeds the session until the connection ends.
func (s *Server) readSecure(p *session, nc *tls.Conn) {
	defer func() {
		if e := recover(); e != nil {
			s.log.Error().Str("peer", p.conn.Remote).Bytes("stack", debug.Stack()).Msg(fmt.Sprintf("closed a connection on a fault of ours: %v", e))
		}
	}()
	buf := make([]byte, 0, 4<<10)
	thrown := 0
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := nc.Read(buf[len(buf):cap(buf)])
		if n > 0 && p.beat > 0 {
			p.heard.Store(s.hub.Now())
		}
		buf = buf[:len(buf)+n]
		b := s.batches.Get().(*batch)
		used := p.take(b, buf)
		s.batches.Put(b)
		buf = buf[:copy(buf, buf[used:])]
		if p.closing {
			if thrown += n; thrown > lingerBytes {
				return
			}
		} else {
			p.count(len(buf))
		}
		if err != nil {
			return
		}
	}
}

// tlsWriter writes the output of one TLS connection.
type tlsWriter struct {
	srv  *Server
	nc   *tls.Conn
	raw  net.Conn
	sink *hub.Sink
	wake chan struct{}
	done chan struct{}
}

func (w *tlsWriter) run() {
	var outs []hub.Output
	for {
		select {
		case <-w.done:
			return
		case <-w.wake:
		}
		outs = w.sink.Take(outs[:0])
		for i := range outs {
			if !w.write(&outs[i]) {
				return
			}
			outs[i] = hub.Output{}
		}
	}
}

func (w *tlsWriter) write(o *hub.Output) bool {
	if o.Abort {
		_ = w.raw.Close()
		return false
	}
	n := o.Len()
	w.srv.bytesOut.Add(uint64(n))
	left := n
	var err error
	for _, part := range o.Parts(nil) {
		for err == nil && len(part) > 0 {
			o.Conn.Writing(left)
			k := min(len(part), atATime)
			_, err = w.nc.Write(part[:k])
			part = part[k:]
			left -= k
		}
	}
	unsent := 0
	if err != nil {
		unsent = n
	}
	closing := o.Close
	w.sink.Done(o, unsent)
	if err != nil {
		_ = w.raw.Close()
		return false
	}
	if closing {
		_ = w.nc.CloseWrite()
		_ = w.raw.SetReadDeadline(time.Now().Add(lingerTime))
	}
	return true
}
