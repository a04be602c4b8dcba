package fleetprobe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/broker/admin/api"
)

// fleet is three brokers a, b, c and NATS servers, each at its own site.
type fleet struct {
	lan     *lan
	brokers []*broker
	nats    []*natsServer
}

// natsServer is a NATS server at a site of its own.
type natsServer struct {
	*throwaway.Server
	site *site
}

func (n *natsServer) url() string { return "nats://" + n.site.ip + ":4222" }

// newFleet starts a fleet with that many NATS servers and waits until it is complete.
func newFleet(servers int, options ...string) (f *fleet, err error) {
	f = &fleet{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.lan, err = newLAN(3 + servers); err != nil {
		return f, err
	}
	var routes, urls []string
	for _, s := range f.lan.sites[3:] {
		routes = append(routes, "nats://"+s.ip+":6222")
		urls = append(urls, "nats://"+s.ip+":4222")
	}
	for _, s := range f.lan.sites[3:] {
		var extraConfig []string
		if servers > 1 {
			extraConfig = []string{"--cluster_name", "probe", "--cluster", "nats://" + s.ip + ":6222", "--routes", strings.Join(routes, ",")}
		}
		n, err := newNATS(s, extraConfig...)
		if err != nil {
			return f, err
		}
		f.nats = append(f.nats, n)
	}
	for i, s := range f.lan.sites[:3] {
		b := newBroker(s, string(rune('a'+i)), append([]string{"--fleet=" + strings.Join(urls, ","), "--insecure"}, options...)...)
		f.brokers = append(f.brokers, b)
		if err := b.start(); err != nil {
			return f, err
		}
	}
	return f, f.awaitWhole()
}

func newNATS(s *site, extraConfig ...string) (*natsServer, error) {
	program := throwaway.Lookup("nats-server")
	if program == "" {
		return nil, errors.New("nats-server is not installed: install the Debian package nats-server (make deps)")
	}
	dir, err := os.MkdirTemp(scratchDir, "nats-")
	if err != nil {
		return nil, err
	}
	cmd := s.command(append([]string{program, "-a", "0.0.0.0", "-p", "4222"}, extraConfig...)...)
	n := &natsServer{site: s, Server: &throwaway.Server{
		Program: cmd.Path, Dir: dir, Args: func() []string { return cmd.Args[1:] },
		Ready: func(ctx context.Context) error {
			c, err := s.dial(ctx, "tcp", "127.0.0.1:4222")
			if err == nil {
				c.Close()
			}
			return err
		},
	}}
	return n, n.Launch()
}

// awaitWhole waits until every running broker gets heartbeats from all other brokers.
func (f *fleet) awaitWhole() error {
	return waitUntil("the fleet is whole", func() error {
		running := 0
		for _, b := range f.brokers {
			if b.isRunning() {
				running++
			}
		}
		for _, b := range f.brokers {
			if !b.isRunning() {
				continue
			}
			v, err := b.fleet()
			if err != nil {
				return err
			}
			count := 0
			for _, o := range v.Brokers {
				if o.State == "up" {
					count++
				}
			}
			if count != running-1 {
				return fmt.Errorf("%s hears %d of %d: %+v", b.name, count, running-1, v)
			}
		}
		return nil
	})
}

func (f *fleet) close() error {
	var errs error
	for _, b := range f.brokers {
		errs = errors.Join(errs, b.stop())
	}
	for _, n := range f.nats {
		n.Close()
	}
	if f.lan != nil {
		f.lan.close()
	}
	return errs
}

// waitUntil repeats a check until there is no error.
func waitUntil(name string, check func() error) error {
	end := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %s that %s: %w", patience, name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// broker is one gloomd, started once or several times.
type broker struct {
	site    *site
	name    string
	options []string
	ports   int // distinguishes brokers of one site
	http    *http.Client

	mu            sync.Mutex // guards those below
	daemonProcess *throwaway.Daemon
	isUp          bool
}

func newBroker(s *site, name string, options ...string) *broker {
	return &broker{site: s, name: name, options: options, http: &http.Client{
		Timeout:   patience,
		Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true},
	}}
}

func (b *broker) start() error {
	bin, err := gloomd()
	if err != nil {
		return err
	}
	d, err := throwaway.Start(b.site.command(append([]string{bin, "--submit-addr=" + b.addr("9998"), "--worker-addr=" + b.addr("9999"),
		"--http-addr=" + b.addr("9997"), "--fleet-name=" + b.name, "--drain-timeout=3s", "--max-memory=4GiB"}, b.options...)...), "gloomd is ready")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.daemonProcess, b.isUp = d, err == nil
	return err
}

func (b *broker) addr(port string) string { return fmt.Sprintf("127.0.0.1:%d%s", 1+b.ports, port[1:]) }

func (b *broker) daemon() *throwaway.Daemon {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.daemonProcess
}

func (b *broker) isRunning() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isUp
}

func (b *broker) markDown() *throwaway.Daemon {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isUp = false
	return b.daemonProcess
}

func (b *broker) kill() { b.markDown().Kill() }

// stop drains and stops the broker, and checks how it ran.
func (b *broker) stop() error {
	d := b.markDown()
	if d == nil {
		return nil
	}
	d.Signal(syscall.SIGCONT)
	if err := d.Stop(); err != nil {
		return fmt.Errorf("broker %s: %w", b.name, err)
	}
	return nil
}

func (b *broker) log() string {
	if d := b.daemon(); d != nil {
		return "broker " + b.name + " said:\n" + throwaway.Tail([]byte(d.Log.String()))
	}
	return ""
}

// ask sends an HTTP request. The answer is decoded into out; an answer that is no success becomes
// an *api.Error.
func (b *broker) ask(method, path string, in, out any) error {
	answer, err := b.send(method, path, in)
	for err != nil && errors.Is(err, errUnread) {
		answer, err = b.send(method, path, in)
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		e := &api.Error{Status: answer.StatusCode}
		if json.Unmarshal(text, e) != nil {
			e.Reason = string(text)
		}
		return e
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *string:
		*out = string(text)
		return nil
	}
	return json.Unmarshal(text, out)
}

// headerTime is the time that a broker waits for a request on a new connection, less a margin for
// clocks. Then it closes the connection without an answer.
const headerTime = 10*time.Second - 100*time.Millisecond

var errUnread = errors.New("this process got no processor, so the broker closed the connection before there was a request on it")

// send sends a request. The error is errUnread if the broker cannot have read it.
func (b *broker) send(method, path string, in any) (*http.Response, error) {
	start := time.Now()
	var connected atomic.Bool
	var wrote atomic.Int64 // nanoseconds since start; 0 if it has not happened
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		ConnectDone:  func(string, string, error) { connected.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) { wrote.Store(int64(time.Since(start))) },
	})
	req, err := api.NewRequest(ctx, method, "http://"+b.addr("9997")+path, "", in)
	if err != nil {
		return nil, err
	}
	answer, err := b.http.Do(req)
	if err == nil {
		return answer, nil
	}
	// The broker's wait begins after start, but this process may learn late that it is connected.
	failed, written := time.Since(start), time.Duration(wrote.Load())
	if connected.Load() && cmp.Or(written, failed) >= headerTime {
		return nil, fmt.Errorf("%w: %w", errUnread, err)
	}
	return nil, fmt.Errorf("%w (request written after %v, failed after %v)", err, written, failed)
}

func (b *broker) fleet() (v api.Fleet, err error) {
	err = b.ask("GET", "/v1/fleet", nil, &v)
	return v, err
}

func (b *broker) status() (v api.Status, err error) {
	err = b.ask("GET", "/v1/status", nil, &v)
	return v, err
}

// dial connects to its port for submitters or workers.
func (b *broker) dial(port string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return b.site.dial(ctx, "tcp", b.addr(port))
}

// shared is the fleet for all tests that leave it complete.
var shared sharedFleet

// sharedFleet starts a fleet when a test first needs it.
type sharedFleet struct {
	once  sync.Once
	fleet *fleet
	err   error
}

func (s *sharedFleet) end() error {
	if s.fleet == nil {
		return nil
	}
	return s.fleet.close()
}

func awaitSharedFleet(t *testing.T) []*broker {
	t.Helper()
	shared.once.Do(func() { shared.fleet, shared.err = newFleet(1) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	running := shared.fleet.brokers
	t.Cleanup(func() {
		if t.Failed() {
			for _, b := range running {
				t.Log(b.log())
			}
		}
	})
	return running
}
