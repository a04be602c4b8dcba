// Package driver connects a fleet's machine with a hub and with NATS.
package driver

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"gloom/broker"
	"gloom/broker/fleet"
	"gloom/broker/hub"
)

// Driver is a broker's membership in a fleet.
type Driver struct {
	hub          *hub.Hub
	log          zerolog.Logger
	options      Options
	nc           atomic.Pointer[nats.Conn]
	machine      *fleet.Machine
	wake         chan struct{}
	stop         chan struct{}
	incoming     chan *nats.Msg
	sendMu       sync.Mutex      // held by the sender; guards sentMessages and sendBuffer
	hasMore      atomic.Bool     // there is more to send
	sentMessages []fleet.Message // sent last, kept for reuse
	sendBuffer   []byte
	latestConn   atomic.Pointer[natsConn] // the connection that was dialed last
	rawConn      atomic.Pointer[natsConn] // the client's connection, if it has no TLS
	maxPayload   atomic.Int64             // the maximum number of bytes that NATS accepts in one message; 0 if that is too few
	done         sync.WaitGroup
	closeMu      sync.Mutex // guards nc against a client that is made after Close

	mu            sync.Mutex // guards the fields below
	subscriptions []*nats.Subscription
	awayReason    string // why NATS is away or refuses subjects, "" if neither
	reasonsLogged int    // how many reasons were logged since NATS was last connected
	// subjectRefused reports that NATS has refused a subject since the last check,
	// recheckScheduled that another check is scheduled.
	subjectRefused, recheckScheduled bool

	bytesIn, bytesOut, messagesIn, messagesOut atomic.Uint64
	changedAt                                  atomic.Int64 // when NATS was last connected or lost, Unix ns
}

// member is the machine as the hub sees it: it wakes the driver.
type member struct {
	*fleet.Machine
	driver *Driver
}

// Step is the machine's Step, and reports whether the machine has something to send.
func (m member) Step(now int64) bool {
	m.Machine.Step(now)
	return m.HasPending()
}

// Send sends the messages at once unless another goroutine is sending. In that case the driver's
// goroutine sends the messages that are added in the meantime; otherwise the first sender might
// never finish.
func (m member) Send() {
	d := m.driver
	d.hasMore.Store(true)
	if !d.sendMu.TryLock() {
		return // the lock's holder checks d.hasMore afterwards
	}
	d.hasMore.Store(false)
	d.sendAll()
	d.sendMu.Unlock()
	if d.hasMore.Load() {
		select {
		case d.wake <- struct{}{}:
		default: // the driver has been woken already
		}
	}
}

// maxIncoming bounds the messages that have arrived and are not handled yet. They come from one
// read of the NATS client. Messages beyond it are dropped; the fleet copes with any lost message.
const maxIncoming = 1 << 12

// maxRoundBytes is roughly how many bytes of messages are handled under one lock.
const maxRoundBytes = 64 << 10

// reconnectPause is the pause before another attempt to connect.
const reconnectPause = 250 * time.Millisecond

// Join joins the fleet of opt, which has been validated. NATS may be away: then the broker
// runs alone until NATS is connected.
func Join(h *hub.Hub, opt Options, log zerolog.Logger) (*Driver, error) {
	d := &Driver{hub: h, log: log, options: opt, wake: make(chan struct{}, 1), stop: make(chan struct{}), incoming: make(chan *nats.Msg, maxIncoming)}
	d.done.Add(1)
	d.sendMu.Lock()
	d.changedAt.Store(time.Now().UnixNano())
	h.JoinFleet(func(core *broker.Broker, now int64, apply func([]broker.Effect)) hub.Fleet {
		d.machine = fleet.New(fleet.Config{Name: opt.Name, Epoch: uint64(time.Now().UnixNano()), MaxMessage: 256 << 10, MaxHeld: opt.MaxHeld}, core, now, apply)
		return member{d.machine, d}
	})
	if err := d.connect(); err != nil {
		return nil, err
	}
	d.sendMu.Unlock()
	d.wake <- struct{}{}
	go d.run()
	return d, nil
}

// connect makes the NATS client, which tries to connect until it succeeds, and reconnects after
// each loss of the connection.
func (d *Driver) connect() error {
	nc, err := nats.Connect(d.options.Servers, append(d.options.clientOptions(),
		nats.Name("gloomd "+d.options.Name), nats.NoEcho(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(reconnectPause), nats.ReconnectJitter(reconnectPause/4, reconnectPause/4), nats.ReconnectBufSize(-1),
		nats.SetCustomDialer(d), nats.WriteBufferSize(1),
		nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(2*time.Second),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { d.onDisconnect(err) }),
		nats.ConnectHandler(d.onConnect), nats.ReconnectHandler(d.onConnect),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if isSilentClose(err) {
				err = nil // our certificate is not the reason: NATS had accepted it
			}
			d.onDisconnect(err)
		}),
		nats.ErrorHandler(d.onError), nats.ClosedHandler(d.onClosed))...)
	if err != nil {
		return err
	}
	d.nc.Store(nc)
	d.mu.Lock()
	d.subscriptions = nil // the old subscriptions belonged to the previous client
	d.mu.Unlock()
	if d.subscribe() != nil {
		nc.Close() // onClosed makes another client
	}
	return nil
}

// onClosed makes another client. A client ends for good after a NATS error that it does not know,
// for example if a message exceeds a max_payload that was lowered.
func (d *Driver) onClosed(nc *nats.Conn) {
	if err := nc.LastError(); err != nil {
		d.onDisconnect(err)
	}
	time.AfterFunc(reconnectPause, d.connectAgain)
}

// connectAgain is connect for a driver that has not been closed. It tries again after an error.
func (d *Driver) connectAgain() {
	d.closeMu.Lock()
	defer d.closeMu.Unlock()
	select {
	case <-d.stop:
		return
	default:
	}
	if err := d.connect(); err != nil {
		d.onDisconnect(err)
		time.AfterFunc(reconnectPause, d.connectAgain)
	}
}

// subscribe subscribes to this broker's messages. It first ends the subscriptions of earlier calls.
func (d *Driver) subscribe() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.subscriptions {
		if err := s.Unsubscribe(); err != nil {
			return err
		}
	}
	d.subscriptions = nil
	for _, s := range []string{d.subject(""), d.subject(d.options.Name), d.noListenerSubject("*")} {
		// One channel for all: messages of a broker must keep their order.
		sub, err := d.nc.Load().ChanSubscribe(s, d.incoming)
		if err != nil {
			return err
		}
		d.subscriptions = append(d.subscriptions, sub)
	}
	return nil
}

// subject returns the subject on which a broker, or every broker (""), gets messages.
func (d *Driver) subject(to string) string {
	if to == "" {
		return d.options.Prefix + ".all"
	}
	return d.options.Prefix + ".to." + hex.EncodeToString([]byte(to))
}

// noListenerSubject returns the subject on which NATS reports that no broker listens on a broker's
// subject.
func (d *Driver) noListenerSubject(name string) string {
	return d.options.Prefix + ".none." + hex.EncodeToString([]byte(d.options.Name)) + "." + name
}

// handle passes a message from NATS to the machine.
func (d *Driver) handle(now int64, msg *nats.Msg) {
	if msg.Header.Get("Status") != "503" {
		d.machine.Receive(now, msg.Data)
		return
	}
	name, _ := hex.DecodeString(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:])
	d.machine.OnNoListener(now, string(name))
}

// maxOverhead bounds the bytes of a message besides its items. Each part of a divided item has at
// least minPart bytes.
const maxOverhead, minPart = 1 << 10, 512

func (d *Driver) onConnect(nc *nats.Conn) {
	if maxPayload := nc.MaxPayload(); maxPayload < maxOverhead+minPart {
		// Heartbeats might pass, and jobs not: jobs would be lent and lost.
		d.maxPayload.Store(0)
		d.setAway(fmt.Sprintf("it accepts messages of at most %d bytes (its max_payload), but a fleet needs %d", maxPayload, maxOverhead+minPart),
			"fleet: the max_payload of NATS is too small; this broker runs alone")
		return
	}
	d.changedAt.Store(time.Now().UnixNano())
	d.mu.Lock()
	d.awayReason, d.reasonsLogged = "", 0
	d.mu.Unlock()
	d.maxPayload.Store(nc.MaxPayload())
	if c := d.latestConn.Load(); nc.LocalAddr() == c.LocalAddr().String() {
		c.isConnected.Store(true)
		if _, err := nc.TLSConnectionState(); err == nil {
			c = nil
		}
		d.rawConn.Store(c)
	}
	part := int(min(256<<10, nc.MaxPayload()-maxOverhead))
	d.hub.Update(func(now int64) { d.machine.OnConnected(now, part) })
	d.log.Info().Str("nats", nc.ConnectedUrlRedacted()).Str("name", d.options.Name).Msg("fleet: joined")
}

// maxReasonsLogged bounds the reasons that are logged each time NATS is away.
const maxReasonsLogged = 4

// onDisconnect records why the connection was lost, or why an attempt to restore it failed. It logs
// new reasons.
func (d *Driver) onDisconnect(err error) {
	if c := d.latestConn.Load(); c != nil {
		c.isConnected.Store(false)
	}
	why := "it closed the connection"
	if err != nil {
		why = d.options.awayReason(err)
	}
	d.setAway(why, awayText)
}

const awayText = "fleet: NATS is away; this broker runs alone"

// isAuthError reports whether NATS no longer admits this broker.
func isAuthError(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// setAway records why the fleet is away, and logs a new reason.
func (d *Driver) setAway(why, text string) {
	d.mu.Lock()
	isNew := why != d.awayReason && d.reasonsLogged < maxReasonsLogged
	if isNew {
		d.reasonsLogged++
	}
	if d.awayReason == "" {
		d.changedAt.Store(time.Now().UnixNano())
	}
	d.awayReason = why
	d.mu.Unlock()
	select {
	case <-d.stop:
	default:
		if isNew {
			d.log.Warn().Str("error", why).Msg(text)
		}
	}
}

// recheckAfter is the time until a subject that NATS refused is tried again.
const recheckAfter = 2 * time.Second

// onError handles an error that NATS reports on a connection that stays open, or while it is being
// made.
func (d *Driver) onError(nc *nats.Conn, _ *nats.Subscription, err error) {
	refusesSubject := errors.Is(err, nats.ErrPermissionViolation)
	if isAuthError(err) || !refusesSubject && !nc.IsConnected() {
		d.setAway(d.options.awayReason(err), awayText)
		return
	}
	if !refusesSubject {
		d.log.Warn().Err(err).Msg("fleet: NATS reports an error")
		return
	}
	d.mu.Lock()
	known, checking := d.awayReason != "", d.recheckScheduled
	d.subjectRefused, d.recheckScheduled = true, true
	d.mu.Unlock()
	if !known {
		d.setAway(d.options.awayReason(err), "fleet: NATS refuses subjects of the fleet; this broker runs alone")
	}
	if !checking {
		time.AfterFunc(recheckAfter, d.recheckSubjects)
	}
}

// recheckSubjects finds out whether NATS still refuses subjects: NATS reports each refused message,
// but a refused subscription only when it is made.
func (d *Driver) recheckSubjects() {
	connected := d.nc.Load().IsConnected()
	d.mu.Lock()
	stillRefused := d.subjectRefused
	d.subjectRefused, d.recheckScheduled = false, stillRefused
	recovered := !stillRefused && d.awayReason != "" && connected && d.maxPayload.Load() > 0
	if recovered {
		d.awayReason, d.reasonsLogged = "", 0
		d.changedAt.Store(time.Now().UnixNano())
	}
	d.mu.Unlock()
	switch {
	case recovered:
		d.log.Info().Str("name", d.options.Name).Msg("fleet: NATS no longer refuses a subject")
	case stillRefused:
		_ = d.subscribe() // after an error, the next client subscribes
		time.AfterFunc(recheckAfter, d.recheckSubjects)
	}
}

// isAway reports whether the fleet is away, whether NATS is connected nevertheless, and why the
// fleet is away. It may block while a connection is being made, so the caller must hold no
// lock.
func (d *Driver) isAway() (away, connected bool, why string) {
	nc := d.nc.Load()
	connected, lastErr := nc.IsConnected(), nc.LastError()
	d.mu.Lock()
	defer d.mu.Unlock()
	why = d.awayReason
	if !connected && lastErr != nil {
		// No callback reports this case: the client could dial again, but then NATS refused the
		// client, or the client refused NATS.
		why = d.options.awayReason(lastErr)
	}
	return why != "" || !connected, connected, why
}

// handleIncoming handles the messages that have arrived, several of them under one lock.
func (d *Driver) handleIncoming() {
	for len(d.incoming) > 0 {
		d.hub.Update(func(now int64) {
			for n := 0; n < maxRoundBytes; {
				select {
				case msg := <-d.incoming:
					n += len(msg.Data)
					d.messagesIn.Add(1)
					d.bytesIn.Add(uint64(len(msg.Data)))
					d.handle(now, msg)
				default:
					return
				}
			}
		})
	}
}

// run sends the machine's messages. A message that cannot be sent is dropped; any message may be
// lost.
func (d *Driver) run() {
	defer d.done.Done()
	for {
		select {
		case <-d.stop:
			d.hub.Update(func(now int64) { d.machine.Leave(now) })
			d.sendMu.Lock()
			d.sendAll()
			d.sendMu.Unlock()
			_ = d.nc.Load().FlushTimeout(time.Second) // the last results
			return
		case <-d.wake:
			for d.hasMore.Load() {
				d.sendMu.Lock()
				d.hasMore.Store(false)
				d.sendAll()
				d.sendMu.Unlock()
			}
		}
	}
}

func (d *Driver) sendAll() {
	var events []fleet.Event
	d.hub.Update(func(int64) { d.sentMessages, events = d.machine.Messages(d.sentMessages), d.machine.Events() })
	for _, event := range events {
		d.logEvent(event)
	}
	rawConn := d.rawConn.Load()
	flush := func() {
		if len(d.sendBuffer) > 0 {
			// Publish would each time wake a goroutine that has nothing to do.
			_, _ = rawConn.Write(d.sendBuffer)
		}
		if d.sendBuffer = d.sendBuffer[:0]; cap(d.sendBuffer) > 2*maxSendBuffer {
			d.sendBuffer = nil
		}
	}
	for _, msg := range d.sentMessages {
		if len(msg.Data) > int(d.maxPayload.Load()) {
			continue // NATS would close the connection
		}
		// While the client connects, Publish would block.
		if c := d.latestConn.Load(); rawConn == nil && (c == nil || !c.isConnected.Load()) {
			continue
		}
		d.messagesOut.Add(1)
		d.bytesOut.Add(uint64(len(msg.Data)))
		subject, reply := d.subject(msg.To), ""
		if msg.WantReply {
			reply = d.noListenerSubject(hex.EncodeToString([]byte(msg.To)))
		}
		if rawConn == nil {
			_ = d.nc.Load().PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: msg.Data})
		} else if d.sendBuffer = appendPub(d.sendBuffer, subject, reply, msg.Data); len(d.sendBuffer) >= maxSendBuffer {
			flush()
		}
	}
	flush()
}

// maxSendBuffer is the number of bytes from which messages are written before more are added to the
// send buffer: the messages of one write are dropped together if they are too many.
const maxSendBuffer = 1 << 20

// Health says what is wrong with a fleet.
type Health struct {
	// Away reports that NATS is away or refuses subjects, for the reason Why and since Since.
	Away  bool
	Why   string
	Since time.Time
	// NameTaken reports that another broker has this broker's name.
	NameTaken bool
	// UpBrokers is the number of other brokers to which this broker may lend jobs.
	UpBrokers int
	// LostBrokers are brokers that were lost in the last ten minutes, OtherVersions are brokers that
	// use another version.
	LostBrokers, OtherVersions []string
}

// Health returns what is wrong with the fleet.
func (d *Driver) Health() (health Health) {
	d.hub.View(func(*broker.Broker, int64) {
		health.NameTaken, health.OtherVersions, health.LostBrokers, health.UpBrokers = d.machine.NameTaken(), d.machine.OtherVersions(), d.machine.LostBrokers(nil), d.machine.UpBrokers()
	})
	health.Away, _, health.Why = d.isAway()
	health.Since = time.Unix(0, d.changedAt.Load())
	return health
}

// LostBrokers returns the names of brokers that were lost lately and had workers for a type.
func (d *Driver) LostBrokers(typ []byte) (names []string) {
	d.hub.View(func(*broker.Broker, int64) { names = d.machine.LostBrokers(typ) })
	return names
}

func (d *Driver) logEvent(event fleet.Event) {
	switch event.Kind {
	case fleet.BrokerJoined:
		d.log.Info().Str("broker", event.Name).Msg("fleet: a broker joined")
	case fleet.BrokerLost:
		d.log.Warn().Str("broker", event.Name).Str("why", event.Reason).Msg("fleet: a broker is lost; the jobs lent to it were requeued")
	case fleet.BrokerLeft:
		d.log.Info().Str("broker", event.Name).Msg("fleet: a broker has left")
	case fleet.NameTaken:
		d.log.Error().Str("name", event.Name).Msg("fleet: another broker has this name; this one runs alone (--fleet-name gives it another)")
	case fleet.NameFree:
		d.log.Info().Str("name", event.Name).Msg("fleet: the name is free; this broker joins")
	case fleet.OtherVersion:
		d.log.Warn().Str("broker", event.Name).Msg("fleet: a broker uses another version; no jobs are lent to it or borrowed from it")
	}
}

// Info describes the fleet as this broker sees it.
type Info struct {
	fleet.Info
	// Connected is false while NATS is away or refuses subjects of the fleet; AwayReason says why. Since
	// is when this last changed, and URL is the address of the server.
	Connected  bool
	AwayReason string
	Since      time.Time
	URL        string
	// The following fields count the traffic to and from NATS since the start.
	MessagesIn, MessagesOut, BytesIn, BytesOut uint64
}

// Info describes the fleet as this broker sees it.
func (d *Driver) Info() Info {
	info := Info{
		Since: time.Unix(0, d.changedAt.Load()), URL: d.nc.Load().ConnectedUrlRedacted(),
		MessagesIn: d.messagesIn.Load(), MessagesOut: d.messagesOut.Load(), BytesIn: d.bytesIn.Load(), BytesOut: d.bytesOut.Load(),
	}
	away, _, why := d.isAway()
	info.Connected, info.AwayReason = !away, why
	d.hub.View(func(*broker.Broker, int64) { info.Info = d.machine.Info() })
	return info
}

// Memory returns how many bytes the streams to and from other brokers hold and NATS has not read
// yet.
func (m member) Memory() (n int64) {
	m.driver.hub.View(func(*broker.Broker, int64) { n = m.Machine.Memory() })
	if c := m.driver.latestConn.Load(); c != nil {
		n += c.pendingBytes()
	}
	return n
}

// WhyNotLent returns why no other broker has taken a waiting job of a type.
func (d *Driver) WhyNotLent(typ []byte) (why string) {
	away, connected, reason := d.isAway()
	var lost []string
	d.hub.View(func(*broker.Broker, int64) {
		lost = d.machine.LostBrokers(typ)
		switch brokers := d.machine.BrokersWanting(typ); {
		case away && connected && d.maxPayload.Load() == 0:
			why = "the fleet is away: NATS is connected, but " + reason
		case away && connected:
			why = "the fleet is away: NATS refuses its subjects"
		case away:
			why = "the fleet is away: NATS does not answer"
		case d.machine.NameTaken():
			why = "the fleet has another broker of this name, so this one is alone"
		case len(brokers) > 0:
			why = "it is offered to idle workers at other brokers: at " + firstFew(brokers)
		default:
			why = "no other broker of the fleet has an idle worker for it"
		}
	})
	if len(lost) > 0 {
		why += "; workers for it were at " + firstFew(lost) + ", lost lately"
	}
	return why
}

// firstFew returns the first few of many names, and how many more there are.
func firstFew(names []string) string {
	const maxNames = 3
	text := strings.Join(names[:min(maxNames, len(names))], ", ")
	if n := len(names) - maxNames; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// Close leaves the fleet. The hub must be closed first.
func (d *Driver) Close() {
	close(d.stop)
	d.done.Wait()
	d.closeMu.Lock()
	defer d.closeMu.Unlock()
	d.nc.Load().Close()
}
