// Package link connects a door to its broker, which is embedded in the process or shared.
// It uses the Go client in both cases.
package link

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"gloom/broker"
	"gloom/broker/guard"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/wire"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
)

// Config selects the broker.
type Config struct {
	Program string // the client name that shared brokers see

	// SubmitAddr and WorkerAddr are the addresses of a shared broker, each a list separated
	// by commas. If both are empty, the door starts a broker of its own.
	SubmitAddr, WorkerAddr string
	// SubmitOnly says that the door has no workers of its own, and needs no WorkerAddr.
	SubmitOnly bool
	Token      string
	// Lease is the time that other daemons wait before they take over the jobs of a silent door; 0
	// stands for ten seconds.
	Lease time.Duration
	// TLSCA, TLSCert, TLSKey and TLSServerName are as in cli.ClientTLS; any of them turns TLS on.
	// TLSPrefix is the beginning of the names of these options.
	TLSCA, TLSCert, TLSKey, TLSServerName, TLSPrefix string

	// OnNotice is called with the events of connections. side is SubmitterSide or the name of a
	// worker. If it is nil, the events are logged until Context ends.
	OnNotice func(side string, n gloom.Notice)
	Context  context.Context

	// ListenHTTP makes the embedded broker listen for operators, too.
	ListenHTTP bool
	// MaxFrame is the limit of the embedded broker; 0 is 64 MiB.
	MaxFrame int
	// Configure changes further options of the embedded broker; may be nil.
	Configure func(*settings.Options)
}

// AddFlags binds the flags that select the broker.
func (c *Config) AddFlags(f *pflag.FlagSet) {
	c.TLSPrefix = "--broker-tls-"
	f.StringVar(&c.SubmitAddr, "broker", c.SubmitAddr, "submit `addresses` of a shared broker, separated by commas; by default a broker runs inside this process")
	if !c.SubmitOnly {
		f.StringVar(&c.WorkerAddr, "broker-workers", c.WorkerAddr, "worker `address` of the shared broker; by default the submit address with the next port")
	}
	f.StringVar(&c.Token, "broker-token", c.Token, "`token` for the broker; it is safer in the environment")
	f.StringVar(&c.TLSCA, "broker-tls-ca", c.TLSCA, "`file` of the CA certificates (PEM) that have signed the broker's certificate; each of the --broker-tls- options turns TLS on")
	f.StringVar(&c.TLSCert, "broker-tls-cert", c.TLSCert, "`file` of the certificate to show to the broker")
	f.StringVar(&c.TLSKey, "broker-tls-key", c.TLSKey, "`file` of the key of --broker-tls-cert")
	f.StringVar(&c.TLSServerName, "broker-tls-server-name", c.TLSServerName, "`name` that the broker's certificate must have")
}

// Validate checks the options, and sets the default address of workers.
func (c *Config) Validate() error {
	switch {
	case c.SubmitAddr == "" && c.WorkerAddr != "":
		return &guard.OptionError{Flag: "broker-workers", Value: c.WorkerAddr, Reason: "must be given together with --broker"}
	case c.SubmitAddr == "" || c.WorkerAddr != "" || c.SubmitOnly:
		return nil
	}
	var workers []string
	for addr := range strings.SplitSeq(c.SubmitAddr, ",") {
		addr = strings.TrimSpace(addr)
		at := strings.LastIndexByte(addr, ':')
		port, err := strconv.Atoi(addr[at+1:])
		if at < 0 || err != nil || port < 1 || port >= 1<<16-1 {
			return &guard.OptionError{Flag: "broker", Value: addr, Reason: "is not host:port; then --broker-workers must say where workers connect"}
		}
		workers = append(workers, addr[:at+1]+strconv.Itoa(port+1))
	}
	c.WorkerAddr = strings.Join(workers, ",")
	return nil
}

// Link is the connection to a broker.
type Link struct {
	server     *server.Server // the embedded broker; nil if the broker is shared
	folder     *socketFolder  // directory of the embedded broker's sockets
	submitAddr string
	workAddr   string
	options    []gloom.Option // options of submitter and workers
	onNotice   func(side string, n gloom.Notice)
	log        zerolog.Logger
	ctx        context.Context

	mu          sync.Mutex // guards the following
	failures    map[string]error
	loggedSides map[string]bool // sides whose failed attempt was logged, and which are not connected since
	deniedErr   error           // why a job was refused for lack of rights
	deniedAt    time.Time
	deniedType  string         // type whose rights are missing, "" for none
	rightsTries sync.WaitGroup // goroutines of RetryRights
}

const (
	minPause     = 50 * time.Millisecond // before connecting again
	maxPause     = 3 * time.Second
	defaultLease = 10 * time.Second
)

// heartbeatFor returns the interval at which a door with this lease must be heard by a broker. A
// broker drops a door as lost after two beats without a byte. This happens before the lease
// expires, even if a quarter of the lease had passed when the door fell silent. So when another
// door takes over, perhaps at another broker of a fleet, the lost door's jobs are no longer queued
// at its old broker, which the new door may not know.
func heartbeatFor(lease time.Duration) time.Duration {
	return max(wire.MinHeartbeatMS*time.Millisecond, cmp.Or(lease, defaultLease)/3).Truncate(time.Millisecond)
}

// Open starts the door's embedded broker, or prepares the connection to a shared broker.
func Open(c Config, log zerolog.Logger) (*Link, error) {
	l := &Link{submitAddr: c.SubmitAddr, workAddr: c.WorkerAddr, onNotice: c.OnNotice, log: log, ctx: c.Context, failures: make(map[string]error), loggedSides: make(map[string]bool)}
	if l.onNotice == nil {
		l.onNotice = l.logNotice
	}
	l.options = []gloom.Option{gloom.Backoff(minPause, maxPause), gloom.TrustBodies()}
	if c.SubmitAddr == "" && c.WorkerAddr == "" {
		return l, l.startEmbedded(c, log)
	}
	l.options = append(l.options, gloom.ClientName(c.Program), gloom.Heartbeat(heartbeatFor(c.Lease)))
	if c.Token != "" {
		l.options = append(l.options, gloom.Token(c.Token))
	}
	if c.TLSCA+c.TLSCert+c.TLSServerName != "" {
		conf, err := cli.ClientTLS(c.TLSPrefix, c.TLSCA, c.TLSCert, c.TLSKey, c.TLSServerName)
		if err != nil {
			return nil, err
		}
		l.options = append(l.options, gloom.TLS(conf))
	}
	return l, nil
}

// startEmbedded starts a broker on sockets that only this user can reach.
func (l *Link) startEmbedded(c Config, log zerolog.Logger) error {
	removeStale(os.TempDir())
	var err error
	if l.folder, err = makeFolder(); err != nil {
		return err
	}
	l.submitAddr, l.workAddr = l.folder.socket(submitName), l.folder.socket(workName)
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = l.submitAddr, l.workAddr, ""
	if c.ListenHTTP {
		opt.HTTPAddr = l.folder.socket(httpName)
	}
	opt.DeadLetters, opt.History = 0, 0 // the door's store keeps the history of its jobs
	if opt.MaxFrame = c.MaxFrame; opt.MaxFrame == 0 {
		opt.MaxFrame = 64 << 20
	}
	if c.Configure != nil {
		c.Configure(&opt)
	}
	if l.server, err = server.Start(opt, log.Level(zerolog.WarnLevel).With().Str("part", "broker").Logger()); err != nil {
		l.Close()
		return fmt.Errorf("start the broker: %w", err)
	}
	l.options = append(l.options, gloom.MaxFrame(opt.MaxFrame))
	return nil
}

// Close ends the embedded broker. Before that, the contexts passed to RetryRights must end.
func (l *Link) Close() {
	l.rightsTries.Wait()
	if l.server != nil {
		l.server.Close()
	}
	if l.folder != nil {
		l.folder.remove()
	}
}

// SubmitterSide is the name of the submitter's side, for Config.OnNotice.
const SubmitterSide = "submitter"

// SubmitterOptions returns the options of a submitter.
func (l *Link) SubmitterOptions() []gloom.Option { return l.submitterOptions(SubmitterSide) }

func (l *Link) submitterOptions(side string) []gloom.Option {
	return l.clientOptions(side, l.submitAddr, wire.SubmitPort)
}

// WorkerOptions returns the options of a worker with a name of its own.
func (l *Link) WorkerOptions(name string) []gloom.Option {
	return l.clientOptions(name, l.workAddr, wire.WorkerPort)
}

func (l *Link) clientOptions(side, addr string, port wire.Port) []gloom.Option {
	var addrs []string
	for a := range strings.SplitSeq(addr, ",") {
		addrs = append(addrs, strings.TrimSpace(a))
	}
	opts := append([]gloom.Option{gloom.Addrs(addrs...), gloom.Notify(func(n gloom.Notice) { l.handleNotice(side, n) })}, l.options...)
	if l.server != nil {
		opts = append(opts, gloom.Dialer(func(context.Context, string, string) (net.Conn, error) { return l.server.Dial(port) }))
	}
	return opts
}

func (l *Link) handleNotice(side string, n gloom.Notice) {
	l.mu.Lock()
	switch n.Event {
	case gloom.EventConnected, gloom.EventJoined:
		delete(l.failures, side)
	case gloom.EventLost, gloom.EventFailed, gloom.EventGivenUp:
		l.failures[side] = n.Err
	}
	l.mu.Unlock()
	l.onNotice(side, n)
}

// logNotice logs the first failed attempt of an outage, and its end, not each attempt.
func (l *Link) logNotice(side string, n gloom.Notice) {
	l.mu.Lock()
	wasLogged := l.loggedSides[side]
	switch n.Event {
	case gloom.EventConnected, gloom.EventJoined:
		delete(l.loggedSides, side)
	case gloom.EventFailed:
		l.loggedSides[side] = true
	}
	l.mu.Unlock()
	log := l.log.With().Str("side", side).Str("addr", n.Addr).Logger()
	switch n.Event {
	case gloom.EventConnected, gloom.EventJoined:
		if wasLogged {
			log.Info().Msg("the broker has been reached")
			return
		}
		log.Debug().Stringer("event", n.Event).Msg("broker")
	case gloom.EventPanic:
		l.log.Error().Err(n.Err).Msg("a slot panicked")
	default:
		if l.ctx != nil && l.ctx.Err() != nil || n.Event == gloom.EventFailed && wasLogged {
			return
		}
		log.Warn().Err(n.Err).Stringer("event", n.Event).Dur("wait", n.Wait).Msg("broker")
	}
}

// ForgetSide removes a side that has ended.
func (l *Link) ForgetSide(side string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failures, side)
	delete(l.loggedSides, side)
}

func (l *Link) setDenied(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deniedErr, l.deniedAt = err, time.Now()
}

// Health returns nil if all sides are connected and no job was refused lately for lack of rights.
func (l *Link) Health() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deniedErr != nil && time.Since(l.deniedAt) < deniedPeriod {
		return fmt.Errorf("the broker refuses jobs: %w", l.deniedErr)
	}
	for side, err := range l.failures {
		return fmt.Errorf("the broker is away (%s): %w", side, err)
	}
	return nil
}

// EmbeddedBroker returns the embedded broker, nil if the broker is shared.
func (l *Link) EmbeddedBroker() *server.Server { return l.server }

// IdleWorkers returns how many idle workers of the embedded broker serve a type; for a shared
// broker that is unknown.
func (l *Link) IdleWorkers(typ string) (n int, known bool) {
	if l.server == nil {
		return 0, false
	}
	name := wire.Canonical(nil, typ)
	l.server.Hub().View(func(b *broker.Broker, _ int64) { n = b.IdleWorkerCount(name) })
	return n, true
}

// WorkerAddr returns the address of workers, "" for none. Only the same user on this host can reach
// that of an embedded broker.
func (l *Link) WorkerAddr() string { return l.workAddr }
