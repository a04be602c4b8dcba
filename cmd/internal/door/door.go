// Package door is the HTTP side of a daemon with many clients: its address, its tokens and
// certificates, its limit on connections, and the time that a request may take to arrive. The
// daemon handles the requests themselves.
package door

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"gloom/broker/guard"
	"gloom/cmd/internal/daemon"
)

// Options configure a Door.
type Options struct {
	guard.Options
	// Addr is the door's address: "host:port", which has TLS if there is a certificate,
	// "tcp://host:port", which never has TLS, or "unix:/path". Port 0 takes a free port.
	Addr string
	// MaxConns limits the connections; 0 stands for as many as the limit on open files allows.
	MaxConns int
	// ReservedFiles is the maximum number of files that the daemon opens for its work, in addition
	// to connections.
	ReservedFiles int

	// Password, unless it is empty, is the only token and has all scopes; there is then no
	// TokenFile. TrustLocal admits clients on this host without a token. Unless there is a
	// Password, it admits no other clients.
	Password   string
	TrustLocal bool
}

// AddFlags defines a flag for every option.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Addr, "addr", o.Addr, "`address` where clients connect: host:port, tcp://host:port without TLS, or unix:/path")
	f.Var(&namesFlag{&o.HTTPHosts}, "host", "a further Host name for the address, as behind a proxy; may be given several times")
	f.IntVar(&o.MaxConns, "max-conns", o.MaxConns, "maximum number of connections; 0: as many as the limit on open files allows")
	f.StringVar(&o.TokenFile, "token-file", o.TokenFile, "`file` of tokens, a line each; SIGHUP reads it again")
	f.StringVar(&o.TLSCert, "tls-cert", o.TLSCert, "`file` of the certificate (PEM), which turns TLS on; SIGHUP reads it again")
	f.StringVar(&o.TLSKey, "tls-key", o.TLSKey, "`file` of the key of --tls-cert (PEM)")
	f.StringVar(&o.TLSClientCA, "tls-client-ca", o.TLSClientCA, "`file` of CA certificates (PEM); clients must have a certificate that one of these CAs has signed")
	f.BoolVar(&o.Insecure, "insecure", o.Insecure, "allow an address beyond this host without tokens or client certificates")
}

// namesFlag is a flag whose values are joined by commas.
type namesFlag struct{ dst *string }

func (n *namesFlag) String() string {
	if n.dst == nil {
		return ""
	}
	return *n.dst
}

func (n *namesFlag) Set(v string) error {
	*n.dst = strings.TrimPrefix(*n.dst+","+v, ",")
	return nil
}

func (*namesFlag) Type() string { return "name" }

// Validate returns a *guard.OptionError for the first invalid option.
func (o *Options) Validate() error {
	if err := o.CheckTLS(); err != nil {
		return err
	}
	_, err := o.ParseAddresses("addr", o.Addr)
	return err
}

// Door is a listening HTTP address.
type Door struct {
	// Unauthorized counts requests with a missing or unknown token.
	Unauthorized atomic.Uint64

	options     Options
	limitOption string // the name of the limit on connections
	log         zerolog.Logger
	tokens      guard.Tokens
	certs       *guard.Certificates // nil without TLS
	limiter     *connLimiter
	address     guard.Address
	crossOrigin *http.CrossOriginProtection
	server      *http.Server
	closed      chan struct{} // closed by Shutdown
	closeOnce   sync.Once
}

// Listen binds the address. Scopes are the names of the tokens' scopes: the first is
// guard.Scope 1, the next 2, then 4. typed lets a token name the types that it covers.
func Listen(opt Options, log zerolog.Logger, typed bool, scopes ...string) (*Door, error) {
	d := newDoor(opt, "--max-conns", log, typed, scopes)
	if err := guard.Reload(&d.tokens, nil, log); err != nil {
		return nil, d.tokens.OptionError(err)
	}
	var err error
	if d.certs, err = d.options.LoadCertificates(log); err != nil {
		return nil, err
	}
	maxConns, _, err := guard.DivideFileLimit(d.limitOption, opt.MaxConns, SpareConns+opt.ReservedFiles, log)
	if err != nil {
		return nil, err
	}
	addresses, err := d.options.ParseAddresses("addr", opt.Addr)
	if err != nil {
		return nil, err
	}
	if len(addresses) != 1 {
		return nil, &guard.OptionError{Flag: "addr", Value: opt.Addr, Reason: "must be one address"}
	}
	d.address = addresses[0]
	ln, err := d.address.Listen()
	if err != nil {
		return nil, fmt.Errorf("--addr %s: %w", opt.Addr, err)
	}
	d.limiter = &connLimiter{Listener: ln, max: maxConns}
	return d, nil
}

func newDoor(opt Options, limit string, log zerolog.Logger, typed bool, scopes []string) *Door {
	d := &Door{options: opt, limitOption: limit, log: log, crossOrigin: http.NewCrossOriginProtection(), closed: make(chan struct{})}
	d.tokens.File, d.tokens.Scopes, d.tokens.AllowTypes = opt.TokenFile, scopes, typed
	return d
}

// NewOnListener is like Listen, but for daemons without flags, which have bound the address
// themselves: with a password or none, without TLS, and with at most opt.MaxConns connections and
// SpareConns more.
func NewOnListener(ln net.Listener, opt Options, log zerolog.Logger, scopes ...string) *Door {
	d := newDoor(opt, "max_connections", log, false, scopes)
	if opt.Password != "" {
		d.tokens.UseOnly(opt.Password)
	}
	d.limiter = &connLimiter{Listener: ln, max: opt.MaxConns}
	return d
}

const (
	headerTimeout = 10 * time.Second
	// bodyTimeout bounds the time for headers and body together, writeTimeout the time of the
	// handler and its answer.
	bodyTimeout    = 30 * time.Second
	writeTimeout   = 2 * time.Minute
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// Serve serves with h until Shutdown or Close. A handler that waits must read the body first: then
// the server lifts the deadline for reading, and notices when the client goes.
func (d *Door) Serve(h http.Handler) {
	d.server = &http.Server{
		Handler: guard.ReadOn(h), ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnState: d.limiter.onState, ConnContext: d.limiter.withConn,
		ErrorLog: guard.ErrorLog(d.log),
	}
	var ln net.Listener = d.limiter
	if d.address.HasTLS {
		ln = tls.NewListener(ln, d.certs.Config("http/1.1"))
	}
	if d.certs != nil {
		go d.warnOfCerts()
	}
	go func() {
		if err := d.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error().Err(err).Msg("the HTTP side has stopped")
		}
	}()
}

// certWarningInterval is the interval at which the log says that the certificate expires soon.
const certWarningInterval = 24 * time.Hour

// warnOfCerts logs a certificate that expires soon, again and again until Shutdown.
func (d *Door) warnOfCerts() {
	tick := time.NewTicker(certWarningInterval)
	defer tick.Stop()
	for {
		select {
		case <-d.closed:
			return
		case <-tick.C:
			d.certs.LogWarning()
		}
	}
}

// Addr returns the bound address.
func (d *Door) Addr() net.Addr { return d.limiter.Addr() }

// HasTLS reports whether the address has TLS.
func (d *Door) HasTLS() bool { return d.address.HasTLS }

// IsGuarded reports whether requests need a token.
func (d *Door) IsGuarded() bool { return d.tokens.Required() }

// RequiresToken reports whether this request needs a token.
func (d *Door) RequiresToken(r *http.Request) bool {
	return d.tokens.Required() && !(d.options.TrustLocal && isLocal(r))
}

// isLocal reports whether a request comes from this host, and not through a proxy on it.
func isLocal(r *http.Request) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && at.Addr().Unmap().IsLoopback() && r.Header["Forwarded"] == nil && r.Header["X-Forwarded-For"] == nil && r.Header["X-Real-Ip"] == nil
}

// IsExposed reports whether other hosts can reach the address without a token or a certificate.
func (d *Door) IsExposed() bool { return d.options.IsExposed(d.address) }

// MaxConns returns the maximum number of open connections.
func (d *Door) MaxConns() int { return d.limiter.max }

// Conns returns the number of open connections.
func (d *Door) Conns() int { return int(d.limiter.open.Load()) }

// grantOf returns the grant of a request's token; ok is false if the token is missing or
// unknown. Without a token file the grant is nil, which allows everything.
func (d *Door) grantOf(r *http.Request) (g *guard.Grant, ok bool) {
	if !d.tokens.Required() {
		return nil, true
	}
	token := guard.Bearer(r.Header.Get("Authorization"))
	if token == "" && d.options.TrustLocal && isLocal(r) {
		return nil, true
	}
	if g = d.tokens.Find([]byte(token)); g != nil {
		return g, true
	}
	d.Unauthorized.Add(1)
	d.log.Warn().Str("peer", r.RemoteAddr).Msg("a missing or unknown token was refused")
	if token != "" {
		guard.DelayRefusal(r.Context())
	}
	return nil, false
}

// Reload reads tokens and certificates again. If reading fails, the old ones stay in force.
func (d *Door) Reload() error { return guard.Reload(&d.tokens, d.certs, d.log) }

// Signals handles the signals of the process: SIGHUP reloads the tokens and certificates, and
// then calls reload. audit is the log of operators' actions.
func (d *Door) Signals(audit zerolog.Logger, reload ...func() error) *daemon.Signals {
	return daemon.Notify(func() {
		err := d.Reload()
		for _, f := range reload {
			err = errors.Join(err, f())
		}
		if err != nil {
			d.log.Error().Err(err).Msg("reloading failed; settings that could not be read stay as they were")
			return
		}
		audit.Info().Msg("tokens, certificates and files were read again")
	})
}

// Shutdown accepts no new connections and waits until all requests are answered, or ctx is
// done.
func (d *Door) Shutdown(ctx context.Context) error {
	d.closeOnce.Do(func() { close(d.closed) })
	if d.server == nil {
		return d.limiter.Close()
	}
	err := d.server.Shutdown(ctx)
	if err != nil {
		_ = d.server.Close()
	}
	return err
}
