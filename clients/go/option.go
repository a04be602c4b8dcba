package gloom

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"math"
	"net"
	"slices"
	"time"
	"unicode/utf8"

	"gloom/wire"
)

// These are the defaults of the options.
const (
	DefaultSubmitAddr  = "127.0.0.1:9998"
	DefaultWorkerAddr  = "127.0.0.1:9999"
	DefaultWindow      = 1024
	DefaultMaxFrame    = 16 << 20
	DefaultDialTimeout = 10 * time.Second
	DefaultBackoffBase = 100 * time.Millisecond
	DefaultBackoffMax  = 15 * time.Second
	DefaultStopTimeout = 30 * time.Second
)

// Option configures Dial, NewSubmitter and Worker.
type Option func(*config)

type config struct {
	addrs            []string
	socket           string // the socket to try first, "" if addresses were given
	token, client    string
	tls              *tls.Config
	dialFunc         func(ctx context.Context, network, addr string) (net.Conn, error)
	maxFrame, window int
	notify           func(Notice)
	trustBodies      bool

	heartbeat, dialTimeout, backoffBase, backoffMax time.Duration
}

// Addrs sets the brokers: "host:port", "tls://host:port", or "unix:/path" for a unix socket.
// The default, without TLS, is the socket of this host's broker (submit.sock or worker.sock in
// $XDG_RUNTIME_DIR/gloom, for root in /run/gloom) if it accepts connections, otherwise
// DefaultSubmitAddr or DefaultWorkerAddr.
func Addrs(addrs ...string) Option {
	addrs = slices.Clone(addrs)
	return func(c *config) { c.addrs, c.socket = addrs, "" }
}

// Token authenticates every connection. Token, ClientName and Heartbeat make connections begin
// with a hello.
func Token(token string) Option { return func(c *config) { c.token = token } }

// ClientName sets the name of this client in the broker's logs, such as "mailer/1.4".
func ClientName(name string) Option { return func(c *config) { c.client = name } }

// Heartbeat asks the broker to ping at this interval, 100 ms … an hour. The client gives up a
// connection after three beats without a byte, the broker after two.
func Heartbeat(interval time.Duration) Option { return func(c *config) { c.heartbeat = interval } }

// TLS encrypts connections to all addresses. Without it, only those to "tls://host:port" are encrypted,
// and verified with the system's certificate authorities. If conf has no ServerName, the certificate must
// name the host of the address. If conf has GetConfigForClient, each connection calls it with nil and
// uses the result, so that files can be read again. conf must not change afterwards.
func TLS(conf *tls.Config) Option { return func(c *config) { c.tls = conf } }

// Dialer sets the function that opens connections, on the network "tcp" or "unix". TLS is added on top.
func Dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.dialFunc = dial }
}

// DialTimeout limits an attempt to connect, TLS handshake included, and then the reply to
// hello and join. The default is DefaultDialTimeout.
func DialTimeout(d time.Duration) Option { return func(c *config) { c.dialTimeout = d } }

// MaxFrame sets the largest frame, in bytes, that the broker accepts (its --max-frame). It applies
// to connections without a hello; the reply to a hello gives the broker's limit. It is at least 1024,
// and DefaultMaxFrame by default. Larger jobs and answers are refused with ErrSizeError, and not sent.
func MaxFrame(bytes int) Option { return func(c *config) { c.maxFrame = bytes } }

// Window sets how many jobs of a submitter may be outstanding: submitted and not ended. It is at
// least 1; the default is DefaultWindow.
func Window(jobs int) Option { return func(c *config) { c.window = jobs } }

// Backoff sets the random waits between attempts to connect. Their limit begins at base,
// doubles with each failure up to max, and is reset once a connection has lasted for max.
// The defaults are DefaultBackoffBase and DefaultBackoffMax.
func Backoff(base, max time.Duration) Option {
	return func(c *config) { c.backoffBase, c.backoffMax = base, max }
}

// Notify sets a function that is told about events of connections and panics of handlers. It is called
// from several goroutines and must return soon. Without it, the standard logger logs panics.
func Notify(notify func(Notice)) Option { return func(c *config) { c.notify = notify } }

// TrustBodies skips the check that bodies are JSON. A body that is not JSON breaks the
// connection and everything pending on it, or changes the meaning of the frame.
func TrustBodies() Option { return func(c *config) { c.trustBodies = true } }

func newConfig(port wire.Port, addr string, opts []Option) (*config, error) {
	c := &config{
		addrs:       []string{addr},
		socket:      port.Socket(),
		dialTimeout: DefaultDialTimeout,
		maxFrame:    DefaultMaxFrame,
		window:      DefaultWindow,
		backoffBase: DefaultBackoffBase,
		backoffMax:  DefaultBackoffMax,
	}
	for _, o := range opts {
		o(c)
	}
	if c.dialFunc == nil {
		c.dialFunc = dialer.DialContext
	}
	if c.notify == nil {
		c.notify = logPanics
	}
	return c, c.validate()
}

func (c *config) validate() error {
	maxFrameLimit := math.MaxInt32 - wire.MaxPayloadOut(0)
	const minBeat, maxBeat = wire.MinHeartbeatMS * time.Millisecond, wire.MaxHeartbeatMS * time.Millisecond
	for _, a := range c.addrs {
		if _, _, _, err := splitAddr(a); err != nil {
			return err
		}
	}
	return cmp.Or(
		errorIf(len(c.addrs) == 0, "no broker address"),
		errorIf(c.dialTimeout <= 0, "dial timeout %v: must be above 0", c.dialTimeout),
		errorIf(c.maxFrame < 1024 || c.maxFrame > maxFrameLimit, "max frame %d: must be 1024 … %d", c.maxFrame, maxFrameLimit),
		errorIf(c.window < 1, "window %d: must be at least 1", c.window),
		errorIf(c.backoffBase <= 0 || c.backoffMax < c.backoffBase, "backoff %v … %v: base must be above 0, max at least base", c.backoffBase, c.backoffMax),
		errorIf(c.heartbeat != 0 && (c.heartbeat < minBeat || c.heartbeat > maxBeat), "heartbeat %v: must be %v … %v", c.heartbeat, minBeat, maxBeat),
		errorIf(!utf8.ValidString(c.token) || !utf8.ValidString(c.client), "token and client name must be UTF-8"),
	)
}

// errorIf returns an error with the formatted text if wrong is set.
func errorIf(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf("gloom: "+format, args...)
}

// withTimeout limits one step of connecting to a broker.
func (c *config) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.dialTimeout,
		fmt.Errorf("no answer within %v: %w", c.dialTimeout, context.DeadlineExceeded))
}

// logPanics is used without Notify: a panic must not go unnoticed.
func logPanics(n Notice) {
	if n.Event == EventPanic {
		log.Print(n.Err)
	}
}
