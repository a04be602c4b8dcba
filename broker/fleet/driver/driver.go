// Package driver connects a fleet's machine with a hub and with NATS.
package driver

import (
	"encoding/hex"
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
	hub     *hub.Hub
	log     zerolog.Logger
	opt     Options
	nc      *nats.Conn
	machine *fleet.Machine
	wake    chan struct{}
	stop    chan struct{}
	in      chan *nats.Msg
	sending sync.Mutex      // held by who sends; guards out and frames
	more    atomic.Bool     // there is more to send
	out     []fleet.Message // sent last
	frames  []byte
	dialled atomic.Pointer[cable] // last
	plain   atomic.Pointer[cable] // the NATS client's, if it has no TLS
	most    atomic.Int64          // bytes that NATS takes in one message
	done    sync.WaitGroup

	mu   sync.Mutex // guards what follows
	lost map[string]time.Time
	why  string // NATS is away
	said int    // how often that was logged since it was there

	bytesIn, bytesOut, messagesIn, messagesOut atomic.Uint64
	since                                      atomic.Int64 // when NATS came or went, Unix ns
}

// member is the machine as the hub sees it: it wakes the driver.
type member struct {
	*fleet.Machine
	d *Driver
}

// Step is the machine's, and tells whether that has something to send.
func (x member) Step(now int64) bool {
	x.Machine.Step(now)
	return x.Pending()
}

// Send sends it at once, unless somebody is sending: then a goroutine sends what
// comes meanwhile, or what it began would never end.
func (x member) Send() {
	d := x.d
	d.more.Store(true)
	if !d.sending.TryLock() {
		return // who has it looks again
	}
	d.more.Store(false)
	d.sendAll()
	d.sending.Unlock()
	if d.more.Load() {
		select {
		case d.wake <- struct{}{}:
		default: // it knows, and has not come yet
		}
	}
}

// maxPending bounds the messages that have arrived and are not taken in, which are
// those of one read of the NATS client; more are lost, as any may be.
const maxPending = 1 << 12

// atOnce is about how many bytes are taken in under one lock.
const atOnce = 64 << 10

// reconnect is how long it waits to connect again.
const reconnect = 250 * time.Millisecond

// Join joins the fleet of opt, which has been validated. NATS may be away: the broker
// goes on alone until it comes.
func Join(h *hub.Hub, opt Options, log zerolog.Logger) (*Driver, error) {
	d := &Driver{hub: h, log: log, opt: opt, wake: make(chan struct{}, 1), stop: make(chan struct{}), in: make(chan *nats.Msg, maxPending), lost: map[string]time.Time{}}
	d.done.Add(1)
	d.sending.Lock()
	d.since.Store(time.Now().UnixNano())
	h.Enlist(func(core *broker.Broker, now int64, apply func([]broker.Effect)) hub.Fleet {
		d.machine = fleet.New(fleet.Config{Name: opt.Name, Epoch: uint64(time.Now().UnixNano()), Part: 256 << 10}, core, now, apply)
		return member{d.machine, d}
	})
	var err error
	d.nc, err = nats.Connect(opt.Servers, append(opt.connect(),
		nats.Name("gloomd "+opt.Name), nats.NoEcho(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnect), nats.ReconnectJitter(reconnect/4, reconnect/4), nats.ReconnectBufSize(-1),
		nats.SetCustomDialer(d), nats.WriteBufferSize(1),
		nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(2*time.Second),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { d.away(err) }),
		nats.ConnectHandler(d.connected), nats.ReconnectHandler(d.connected),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { d.away(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			d.log.Warn().Err(err).Msg("fleet: NATS complains")
		}))...)
	if err != nil {
		return nil, err
	}
	for _, s := range []string{d.subject(""), d.subject(opt.Name), d.unheard("*")} {
		// One channel for both: what a broker sends must come in its order.
		if _, err := d.nc.ChanSubscribe(s, d.in); err != nil {
			d.nc.Close()
			return nil, err
		}
	}
	d.sending.Unlock()
	d.wake <- struct{}{}
	go d.send()
	return d, nil
}

// subject is where a broker hears what is meant for it, or all do ("").
func (d *Driver) subject(to string) string {
	if to == "" {
		return d.opt.Prefix + ".all"
	}
	return d.opt.Prefix + ".to." + hex.EncodeToString([]byte(to))
}

// unheard is where NATS says that nobody hears what is meant for a broker.
func (d *Driver) unheard(of string) string {
	return d.opt.Prefix + ".none." + hex.EncodeToString([]byte(d.opt.Name)) + "." + of
}

// takes takes in a message.
func (d *Driver) takes(now int64, msg *nats.Msg) {
	if msg.Header.Get("Status") != "503" {
		d.machine.Receive(now, msg.Data)
		return
	}
	name, _ := hex.DecodeString(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:])
	d.machine.Unheard(now, string(name))
}

func (d *Driver) connected(nc *nats.Conn) {
	d.since.Store(time.Now().UnixNano())
	d.mu.Lock()
	d.why, d.said = "", 0
	d.mu.Unlock()
	d.most.Store(nc.MaxPayload())
	if c := d.dialled.Load(); nc.LocalAddr() == c.LocalAddr().String() {
		c.live.Store(true)
		if _, err := nc.TLSConnectionState(); err == nil {
			c = nil
		}
		d.plain.Store(c)
	}
	// What a message has around its items is well below 1 KiB.
	part := int(max(512, min(256<<10, nc.MaxPayload()-1024)))
	d.hub.Do(func(_ *broker.Broker, now int64) []broker.Effect {
		d.machine.Connected(now, part)
		return nil
	})
	d.log.Info().Str("nats", nc.ConnectedUrlRedacted()).Str("name", d.opt.Name).Msg("fleet: joined")
}

// mostSaid is how many reasons are logged of one time that NATS is away.
const mostSaid = 4

// away is told that the connection is lost, and why each attempt failed to make it
// again; it logs what is new in that.
func (d *Driver) away(err error) {
	if c := d.dialled.Load(); c != nil {
		c.live.Store(false)
	}
	why := "it closed the connection"
	if err != nil {
		why = reason(err)
	}
	d.mu.Lock()
	news := why != d.why && d.said < mostSaid
	if news {
		d.said++
	}
	if d.why == "" {
		d.since.Store(time.Now().UnixNano())
	}
	d.why = why
	d.mu.Unlock()
	select {
	case <-d.stop:
	default:
		if news {
			d.log.Warn().Str("error", why).Msg("fleet: NATS is away; this broker goes on alone")
		}
	}
}

// takeIn takes in the messages that are there, some of them under one lock.
func (d *Driver) takeIn() {
	for len(d.in) > 0 {
		d.hub.Do(func(_ *broker.Broker, now int64) []broker.Effect {
			for n := 0; n < atOnce; {
				select {
				case msg := <-d.in:
					n += len(msg.Data)
					d.messagesIn.Add(1)
					d.bytesIn.Add(uint64(len(msg.Data)))
					d.takes(now, msg)
				default:
					return nil
				}
			}
			return nil
		})
	}
}

// send sends what the machine has to send. What cannot be sent is lost, as any
// message may be.
func (d *Driver) send() {
	defer d.done.Done()
	for {
		select {
		case <-d.stop:
			d.sending.Lock()
			d.sendAll()
			d.sending.Unlock()
			_ = d.nc.FlushTimeout(time.Second) // the last results
			return
		case <-d.wake:
			for d.more.Load() {
				d.sending.Lock()
				d.more.Store(false)
				d.sendAll()
				d.sending.Unlock()
			}
		}
	}
}

func (d *Driver) sendAll() {
	var news []fleet.News
	d.hub.Do(func(*broker.Broker, int64) []broker.Effect {
		d.out, news = d.machine.Take(d.out), d.machine.News()
		return nil
	})
	for _, v := range news {
		d.say(v)
	}
	plain := d.plain.Load()
	for _, x := range d.out {
		if len(x.Data) > int(d.most.Load()) {
			continue // NATS would close the connection
		}
		// While the client connects, it would keep Publish waiting.
		if c := d.dialled.Load(); plain == nil && (c == nil || !c.live.Load()) {
			continue
		}
		d.messagesOut.Add(1)
		d.bytesOut.Add(uint64(len(x.Data)))
		subject, reply := d.subject(x.To), ""
		if x.Asks {
			reply = d.unheard(hex.EncodeToString([]byte(x.To)))
		}
		if plain == nil {
			_ = d.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: x.Data})
		} else {
			d.frames = appendPub(d.frames, subject, reply, x.Data)
		}
	}
	if len(d.frames) > 0 {
		// Publish would wake a goroutine each time, to which nothing is left to do.
		_, _ = plain.Write(d.frames)
	}
	if d.frames = d.frames[:0]; cap(d.frames) > maxFrames {
		d.frames = nil
	}
}

// maxFrames bounds the buffer that is kept for what is sent, in bytes.
const maxFrames = 1 << 20

// lostFor is for how long a broker that is lost is told of, mostLost how many are.
const (
	lostFor  = 10 * time.Minute
	mostLost = 100
)

// Health is what is the matter with a fleet.
type Health struct {
	// Away: NATS is, for the reason Why.
	Away bool
	Why  string
	// Alone: another broker has this one's name.
	Alone bool
	// Lost are brokers that were lost a short while ago, Foreign those that speak
	// another version.
	Lost, Foreign []string
}

// Health tells what is the matter.
func (d *Driver) Health() (x Health) {
	d.hub.View(func(*broker.Broker, int64) { x.Alone, x.Foreign = d.machine.Alone(), d.machine.Foreign() })
	d.mu.Lock()
	defer d.mu.Unlock()
	x.Away, x.Why = !d.nc.IsConnected(), d.why
	for name, at := range d.lost {
		if time.Since(at) > lostFor {
			delete(d.lost, name)
		} else {
			x.Lost = append(x.Lost, name)
		}
	}
	return x
}

func (d *Driver) say(v fleet.News) {
	d.mu.Lock()
	if delete(d.lost, v.Name); v.What == fleet.Lost && len(d.lost) < mostLost {
		d.lost[v.Name] = time.Now()
	}
	d.mu.Unlock()
	switch v.What {
	case fleet.Met:
		d.log.Info().Str("broker", v.Name).Msg("fleet: a broker is there")
	case fleet.Lost:
		d.log.Warn().Str("broker", v.Name).Str("why", v.Why).Msg("fleet: a broker is lost; what was lent to it waits again")
	case fleet.Alone:
		d.log.Error().Str("name", v.Name).Msg("fleet: another broker has this name; this one goes on alone (--fleet-name gives it another)")
	case fleet.NotAlone:
		d.log.Info().Str("name", v.Name).Msg("fleet: the name is free; this broker joins")
	case fleet.Foreign:
		d.log.Warn().Str("broker", v.Name).Msg("fleet: a broker speaks another version; there is no lending with it")
	}
}

// Info is what can be seen of the fleet.
type Info struct {
	fleet.Info
	// Connected: NATS is there. Since is when it came or went, URL which server it is,
	// Away why it is away.
	Connected bool
	Away      string
	Since     time.Time
	URL       string
	// What was sent to and received from NATS, since the start.
	MessagesIn, MessagesOut, BytesIn, BytesOut uint64
}

// Info tells what there is.
func (d *Driver) Info() Info {
	x := Info{
		Connected: d.nc.IsConnected(), Since: time.Unix(0, d.since.Load()), URL: d.nc.ConnectedUrlRedacted(),
		MessagesIn: d.messagesIn.Load(), MessagesOut: d.messagesOut.Load(), BytesIn: d.bytesIn.Load(), BytesOut: d.bytesOut.Load(),
	}
	if d.mu.Lock(); !x.Connected {
		x.Away = d.why
	}
	d.mu.Unlock()
	d.hub.View(func(*broker.Broker, int64) { x.Info = d.machine.Info() })
	return x
}

// Why says why no other broker has taken a job of a type that waits.
func (d *Driver) Why(typ []byte) (why string) {
	if !d.nc.IsConnected() {
		return "the fleet is away: NATS does not answer"
	}
	d.hub.View(func(*broker.Broker, int64) {
		switch n := d.machine.Wanted(typ); {
		case d.machine.Alone():
			why = "the fleet has another broker of this name, so this one is alone"
		case n > 0:
			why = fmt.Sprintf("idle workers of other brokers that want it: at %d", n)
		default:
			why = "no other broker of the fleet has an idle worker for it"
		}
	})
	return why
}

// Close leaves the fleet. The hub is closed before.
func (d *Driver) Close() {
	close(d.stop)
	d.done.Wait()
	d.nc.Close()
}
