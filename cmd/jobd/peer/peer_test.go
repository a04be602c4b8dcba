package peer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/cmd/internal/testing/peertest"
	"gloom/cmd/jobd/peer"
)

// testServer is a server for a test, with routes that show how requests arrive.
type testServer struct {
	*peer.Server
	log           *throwaway.Log
	release       chan struct{} // lets "wait" go on, once for each value
	closedWaits   atomic.Int32  // number of "wait" requests that ended with their connection
	bigRequests   atomic.Int32  // number of "big" requests
	stallRequests atomic.Int32  // number of "stall" requests
}

func startServer(t *testing.T, opt peer.Options) *testServer {
	t.Helper()
	s := &testServer{log: &throwaway.Log{}, release: make(chan struct{})}
	routes := peer.Routes{
		"echo": {Handle: func(_ context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
			return data, nil
		}},
		"status": {Handle: func(context.Context, *peer.Conn, json.RawMessage) (any, error) {
			return "status", nil
		}},
		"fail": {Handle: func(_ context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
			return nil, errors.New("it failed")
		}},
		"panic": {Handle: func(context.Context, *peer.Conn, json.RawMessage) (any, error) {
			panic("oh no")
		}},
		"wait": {Waits: true, Handle: func(ctx context.Context, _ *peer.Conn, _ json.RawMessage) (any, error) {
			select {
			case <-s.release:
				return "waited", nil
			case <-ctx.Done():
				s.closedWaits.Add(1)
				return nil, ctx.Err()
			}
		}},
		"big": {Handle: func(context.Context, *peer.Conn, json.RawMessage) (any, error) {
			s.bigRequests.Add(1)
			return strings.Repeat("x", 1<<20), nil
		}},
		"stall": {Handle: func(ctx context.Context, _ *peer.Conn, _ json.RawMessage) (any, error) {
			s.stallRequests.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"call": {Waits: true, Handle: func(ctx context.Context, c *peer.Conn, data json.RawMessage) (any, error) {
			return c.Call(ctx, "back", data)
		}},
		"after": {Handle: func(ctx context.Context, c *peer.Conn, _ json.RawMessage) (any, error) {
			return peer.DeferredReply{Data: "first", Do: c.Ping}, nil
		}},
	}
	opt.Log = zerolog.New(s.log).Level(zerolog.TraceLevel)
	var err error
	if s.Server, err = peer.Listen("127.0.0.1", 0, opt); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		s.Serve(routes)
		close(done)
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return s
}

func (s *testServer) dial(t *testing.T) *peertest.Client { return peertest.Dial(t, s.Addr().String()) }

const malformed = `[1,{"no":0,"error":"malformed `

// framingCases holds inputs and their answers, "" for no answer; '|' ends a message.
var framingCases = []struct{ in, out string }{
	{`[2]|`, `[3]`},
	{`[2,{"no":1}]|`, `[3]`},
	{`[3]|`, ``},
	{`[1,{"no":77,"data":"ok"}]|`, ``},
	{`|`, ``},
	{`|||`, ``},
	{`nonsense|`, ``},
	{`[0,{"no":1|`, ``},
	{`{}|`, `[1,{"no":0,"error":"JSON array expected, got: [object Object]"}]`},
	{`5|`, `[1,{"no":0,"error":"JSON array expected, got: 5"}]`},
	{`null|`, `[1,{"no":0,"error":"JSON array expected, got: null"}]`},
	{`[]|`, `[1,{"no":0,"error":"unexpected type undefined"}]`},
	{`[4]|`, `[1,{"no":0,"error":"unexpected type 4"}]`},
	{`["0"]|`, `[1,{"no":0,"error":"unexpected type 0"}]`},
	{`[0]|`, malformed + `REQUEST message: data is not an object"}]`},
	{`[0,5]|`, malformed + `REQUEST message: data is not an object"}]`},
	{`[0,{}]|`, malformed + `REQUEST message: missing required field type"}]`},
	{`[0,{"no":1}]|`, malformed + `REQUEST message: missing required field type"}]`},
	{`[0,{"type":"echo"}]|`, malformed + `REQUEST message: missing required field no"}]`},
	{`[0,{"no":"1","type":"echo"}]|`, malformed + `REQUEST message: 'no' must be integer"}]`},
	{`[0,{"no":1,"type":[]}]|`, malformed + `REQUEST message: 'type' must be string"}]`},
	{`[0,{"no":1,"type":"echo","password":1}]|`, malformed + `REQUEST message: 'password' must be string"}]`},
	{`[0,{"no":1,"type":"echo","data":true}]|`, malformed + `REQUEST message: 'data' must be any of: string, number, object, array"}]`},
	{`[0,{"no":1,"type":"echo","data":null}]|`, `[1,{"no":1}]`},
	{`[1]|`, malformed + `RESPONSE message: data is not an object"}]`},
	{`[1,{}]|`, malformed + `RESPONSE message: missing required field no"}]`},
	{`[0,{"no":0,"type":"fail"}]|`, `[1,{"no":0,"error":"it failed"}]`},
	{`[0,{"no":-3,"type":"fail"}]|`, `[1,{"no":-3,"error":"it failed"}]`},
	{`[0,{"no":7.0,"type":"fail"}]|`, `[1,{"no":7,"error":"it failed"}]`},
	{`[0,{"no":1,"type":"nope"}]|`, `[1,{"no":1,"error":"unknown request type: 'nope'"}]`},
	{`[0,{"no":1,"type":"toString"}]|`, `[1,{"no":1,"error":"unknown request type: 'toString'"}]`},
	{`[0,{"no":1,"type":""}]|`, `[1,{"no":1,"error":"unknown request type: ''"}]`},
	{`[0,{"no":1,"type":"echo","data":{"a":"<&>\u0004é"}}]|`, `[1,{"no":1,"data":{"a":"<&>\u0004é"}}]`},
	{`[0,{"no":1,"type":"panic"}]|[2]|`, `[1,{"no":1,"error":"internal error"}]|[3]`},
	{`[0,{"no":1,"type":"after"}]|`, `[1,{"no":1,"data":"first"}]|[2]`},
	{`[0,{"no":1,"type":"fail"}]|x|[2]|[0,{"no":2,"type":"fail"}]|`,
		`[1,{"no":1,"error":"it failed"}]|[3]|[1,{"no":2,"error":"it failed"}]`},
}

func TestMessagesMayArriveInAnySegments(t *testing.T) {
	s := startServer(t, peer.Options{})
	for name, write := range map[string]func(*peertest.Client, string){
		"whole": (*peertest.Client).Write,
		"byte by byte": func(c *peertest.Client, text string) {
			for _, b := range []byte(text) {
				c.Write(string([]byte{b}))
			}
		},
	} {
		for _, tc := range framingCases {
			t.Run(name+"/"+tc.in, func(t *testing.T) {
				c := s.dial(t)
				write(c, tc.in)
				if tc.out != "" {
					c.Expect(strings.Split(tc.out, "|")...)
				}
				c.ExpectNothing()
			})
		}
	}
}

func TestMessagesMayBeCutAnywhere(t *testing.T) {
	s := startServer(t, peer.Options{})
	in := `[0,{"no":1,"type":"echo","data":{"a":"é\u0004"}}]|[2]|`
	for cut := range len(in) {
		c := s.dial(t)
		c.Write(in[:cut])
		c.Write(in[cut:])
		c.Expect(`[1,{"no":1,"data":{"a":"é\u0004"}}]`, `[3]`)
		c.Close()
	}
}

func TestOneSegmentMayHaveManyRequests(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	var in strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&in, `[0,{"no":%d,"type":"fail"}]|`, i)
	}
	go c.Write(in.String())
	for i := range 10_000 {
		c.Expect(fmt.Sprintf(`[1,{"no":%d,"error":"it failed"}]`, i))
	}
}

func TestRepliesKeepOrder(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	c.Write(`[0,{"no":1,"type":"wait"}]|[0,{"no":2,"type":"fail"}]|`)
	c.Expect(`[1,{"no":2,"error":"it failed"}]`)
	s.release <- struct{}{}
	c.Expect(`[1,{"no":1,"data":"waited"}]`)
	c.ExpectNothing()
}

func TestHalfClosedPeerGetsReplies(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	c.Write(`[0,{"no":1,"type":"wait"}]|[0,{"no":2,"type":"fail"}]|`)
	c.HalfClose()
	c.Expect(`[1,{"no":2,"error":"it failed"}]`)
	s.release <- struct{}{}
	c.Expect(`[1,{"no":1,"data":"waited"}]`)
	c.ExpectEnd()
	peertest.WaitUntil(t, "the connection is forgotten", func() bool { return s.Connections() == 0 })
}

func TestUnfinishedMessageIsDropped(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	c.Write(`[0,{"no":1,"type":"fail"}]`)
	c.HalfClose()
	c.ExpectEnd()
}

func TestWaitEndsWithConnection(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	c.Write(`[0,{"no":1,"type":"wait"}]|`)
	c.ExpectNothing()
	c.Reset()
	peertest.WaitUntil(t, "the handler is told", func() bool { return s.closedWaits.Load() == 1 })
}

func TestRequestsNeedPassword(t *testing.T) {
	const secret = "s3cret word"
	refused := func(number int) string { return fmt.Sprintf(`[1,{"no":%d,"error":"invalid password"}]`, number) }
	request := func(number int, password string) string {
		return fmt.Sprintf(`[0,{"no":%d,"type":"fail"%s}]|`, number, password)
	}
	correct := `,"password":"` + secret + `"`
	failed := func(number int) string { return fmt.Sprintf(`[1,{"no":%d,"error":"it failed"}]`, number) }
	tests := map[string]struct {
		in   string
		out  []string
		ends bool
	}{
		"right":                      {request(1, correct), []string{failed(1)}, false},
		"missing":                    {request(1, ""), []string{refused(1)}, true},
		"empty":                      {request(1, `,"password":""`), []string{refused(1)}, true},
		"wrong":                      {request(1, `,"password":"S3cret word"`), []string{refused(1)}, true},
		"rest of the batch dropped":  {request(1, "") + request(2, correct) + "[2]|", []string{refused(1)}, true},
		"right once, then none":      {request(1, correct) + request(2, ""), []string{failed(1), failed(2)}, false},
		"right once, then wrong":     {request(1, correct) + request(2, `,"password":"x"`), []string{failed(1), failed(2)}, false},
		"ping before":                {"[2]|" + request(1, correct), []string{"[3]", failed(1)}, false},
		"malformed before":           {"[4]|" + request(1, correct), []string{`[1,{"no":0,"error":"unexpected type 4"}]`, failed(1)}, false},
		"malformed with no password": {"[0,{}]|", []string{malformed + `REQUEST message: missing required field type"}]`}, false},
		"unknown without":            {`[0,{"no":9,"type":"nope"}]|`, []string{refused(9)}, true},
	}
	s := startServer(t, peer.Options{Password: secret})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := s.dial(t)
			c.Write(tc.in)
			c.Expect(tc.out...)
			if tc.ends {
				c.ExpectEnd()
			} else {
				c.ExpectNothing()
			}
		})
	}
	if strings.Contains(s.log.String(), "s3cret") || strings.Contains(s.log.String(), "S3cret") {
		t.Errorf("the log tells a password:\n%s", s.log)
	}
}

func TestLocalhostNeedsNoPassword(t *testing.T) {
	s := startServer(t, peer.Options{Password: "secret", AllowLocalhost: true})
	c := s.dial(t)
	if got := c.Ask(`[0,{"no":1,"type":"fail"}]`); got != `[1,{"no":1,"error":"it failed"}]` {
		t.Error(got)
	}
}

func TestTooLongMessageIsRefused(t *testing.T) {
	s := startServer(t, peer.Options{MaxMessage: 100})
	for name, text := range map[string]string{
		"unfinished": strings.Repeat("x", 101),
		"finished":   strings.Repeat("x", 101) + "|[2]|",
	} {
		t.Run(name, func(t *testing.T) {
			c := s.dial(t)
			c.Write("[2]|" + text)
			c.Expect(`[3]`, `[1,{"no":0,"error":"message is longer than 100 bytes"}]`)
			c.ExpectEnd()
		})
	}
	locked := startServer(t, peer.Options{Password: "p"})
	c := locked.dial(t)
	c.Write(strings.Repeat("x", 64<<10+1))
	c.Expect(`[1,{"no":0,"error":"message is longer than 65536 bytes"}]`)
	c.ExpectEnd()
	// After the password, larger messages are allowed.
	c = locked.dial(t)
	c.Write(`[0,{"no":1,"type":"fail","password":"p"}]|[0,{"no":2,"type":"fail","data":"` + strings.Repeat("x", 100<<10) + `"}]|`)
	c.Expect(`[1,{"no":1,"error":"it failed"}]`, `[1,{"no":2,"error":"it failed"}]`)
}

// TestLargeFirstCallArrives: a call may be larger than what a peer takes before it has the password.
func TestLargeFirstCallArrives(t *testing.T) {
	s := startServer(t, peer.Options{Password: "p"})
	large := strings.Repeat("x", 100<<10)
	for password, want := range map[string]string{"p": "", "wrong": "invalid password"} {
		c, err := peer.Dial(t.Context(), "127.0.0.1", s.Addr().(*net.TCPAddr).Port, peer.Options{Password: password, Log: zerolog.Nop()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 2 {
			got, err := c.Call(t.Context(), "echo", large)
			switch {
			case want == "" && (err != nil || len(got) != len(large)+2):
				t.Errorf("got %d bytes, %v", len(got), err)
			case want != "" && err == nil:
				t.Error("a wrong password was taken")
			case want != "" && err.Error() != want:
				t.Errorf("got %v, want %s", err, want)
			}
			if want != "" {
				break // the connection has ended
			}
		}
	}
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	s := startServer(t, peer.Options{MaxConnections: 2})
	a, b := s.dial(t), s.dial(t)
	a.ExpectNothing()
	b.ExpectNothing()
	c := s.dial(t)
	c.Expect(`[1,{"no":0,"error":"too many connections (limit 2)"}]`)
	c.ExpectEnd()
	a.Close()
	peertest.WaitUntil(t, "a place is free", func() bool { return s.Connections() == 1 })
	s.dial(t).ExpectNothing()
}

// TestSilentConnectionsMakeRoom: a connection that makes no request does not keep other connections
// out, whatever else it sends.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	s := startServer(t, peer.Options{MaxConnections: 2, SilentAfter: time.Millisecond})
	a := s.dial(t)
	a.Write(`[0,{"no":1,"type":"echo"}]|`)
	a.Expect(`[1,{"no":1}]`)
	for _, prefixes := range []string{"", "[", "[2]|"} {
		b := s.dial(t)
		b.Write(prefixes)
		if prefixes == "[2]|" {
			b.Expect(`[3]`)
		}
		time.Sleep(2 * time.Millisecond)
		c := s.dial(t)
		b.Expect(`[1,{"no":0,"error":"too many connections (limit 2), and no request came on this one"}]`)
		b.ExpectEnd()
		c.Close()
		peertest.WaitUntil(t, "a place is free", func() bool { return s.Connections() == 1 })
	}
	c := s.dial(t)
	c.Write(`[0,{"no":1,"type":"echo"}]|`)
	c.Expect(`[1,{"no":1}]`)
	time.Sleep(2 * time.Millisecond)
	d := s.dial(t)
	d.Expect(`[1,{"no":0,"error":"too many connections (limit 2)"}]`)
	d.ExpectEnd()
}

// TestHeardIsMonotonic: the times at which a peer connected and was heard are
// readings of the monotonic clock.
func TestHeardIsMonotonic(t *testing.T) {
	s := startServer(t, peer.Options{})
	c, err := peer.Dial(t.Context(), "127.0.0.1", s.Addr().(*net.TCPAddr).Port, peer.Options{Log: zerolog.Nop()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	connectedAt := c.LastHeard()
	if _, err := c.Call(t.Context(), "echo", 1); err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{connectedAt, c.LastHeard()} {
		if !strings.Contains(at.String(), " m=") || at.After(time.Now()) {
			t.Errorf("%v is no reading of the monotonic clock", at)
		}
	}
	if !c.LastHeard().After(connectedAt) {
		t.Errorf("heard at %v, came at %v", c.LastHeard(), connectedAt)
	}
}

func TestTooManyWaitsAreRefused(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	for i := range 1024 {
		c.Write(fmt.Sprintf(`[0,{"no":%d,"type":"wait"}]|`, i))
	}
	if got := c.Ask(`[0,{"no":5000,"type":"wait"}]`); got != `[1,{"no":5000,"error":"1024 requests of this connection are waiting already"}]` {
		t.Error(got)
	}
	s.release <- struct{}{}
	c.Read()
	c.ExpectNothing()
}

// TestUnreadRepliesDoNotPileUp: the server stops reading from a client that reads nothing, so that
// no replies pile up.
func TestUnreadRepliesDoNotPileUp(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	c.Write(strings.Repeat(`[0,{"no":1,"type":"big"}]|`, 200))
	for before := int32(-1); before != s.bigRequests.Load(); s.dial(t).ExpectNothing() { // this delays no other client
		before = s.bigRequests.Load()
	}
	if n := s.bigRequests.Load(); n > 100 {
		t.Errorf("%d replies of 1 MiB were made and none was read", n)
	}
	for i := range 200 {
		if got := c.Read(); len(got) != 1<<20+len(`[1,{"no":1,"data":""}]`) {
			t.Fatalf("reply %d has %d bytes", i, len(got))
		}
	}
	c.ExpectNothing()
}

// TestUnfinishedMessagesAreBounded: if a connection is closed because of its unfinished message,
// the memory of that message is free at once, whatever the connection's reader waits for. The
// server goes on reading from the other connections.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	for name, behind := range map[string]struct {
		requests string
		isBusy   func(s *testServer) bool
	}{
		"it reads nothing": {
			strings.Repeat(`[0,{"no":2,"type":"big"}]|`, 20),
			func(s *testServer) bool { return s.bigRequests.Load() > 1 },
		},
		"its requests take long": {
			strings.Repeat(`[0,{"no":2,"type":"stall"}]|`, 20),
			func(s *testServer) bool { return s.stallRequests.Load() > 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, peer.Options{MaxUnfinished: 1 << 20})
			hoarder, other := s.dial(t), s.dial(t)
			long := `[0,{"no":1,"type":"fail","data":"` + strings.Repeat("x", 600<<10)
			hoarder.Write(long)
			peertest.WaitUntil(t, "the message has arrived", func() bool { return s.UnfinishedBytes() > len(long) })
			hoarder.Write(`"}]|` + behind.requests)
			peertest.WaitUntil(t, "the requests are handled", func() bool { return behind.isBusy(s) })
			other.Write(long)
			other.Write(`"}]|`)
			other.Expect(`[1,{"no":1,"error":"it failed"}]`)
		})
	}
}

func TestBothSidesMayCall(t *testing.T) {
	s := startServer(t, peer.Options{Password: "secret"})
	addr := s.Addr().(*net.TCPAddr)
	clientRoutes := peer.Routes{"back": {Handle: func(_ context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
		if data == nil {
			return nil, errors.New("nothing came")
		}
		return []any{"back", data}, nil
	}}}
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	c, err := peer.Dial(ctx, "127.0.0.1", addr.Port, peer.Options{Password: "secret", Log: zerolog.Nop()}, clientRoutes)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Call(ctx, "call", map[string]int{"a": 1}); err != nil || string(got) != `["back",{"a":1}]` {
		t.Errorf("got %s, %v", got, err)
	}
	var remote *peer.RemoteError
	if _, err := c.Call(ctx, "call", nil); !errors.As(err, &remote) || remote.Text != "nothing came" {
		t.Errorf("got %v", err)
	}
	if got, err := c.Call(ctx, "echo", nil); err != nil || got != nil {
		t.Errorf("got %s, %v", got, err)
	}
	short, cancelShort := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancelShort()
	if _, err := c.Call(short, "wait", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, "wait", nil)
		failed <- err
	}()
	peertest.WaitUntil(t, "the call is made", func() bool { return strings.Count(s.log.String(), `"type":"wait"`) == 2 })
	s.Close()
	if err := <-failed; !errors.Is(err, peer.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Call(ctx, "echo", nil); !errors.Is(err, peer.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestShutdownAnswers(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	c.Write(`[0,{"no":1,"type":"wait"}]|`)
	c.ExpectNothing()
	down := make(chan struct{})
	go func() {
		s.Shutdown(context.Background())
		close(down)
	}()
	peertest.WaitUntil(t, "nobody new is served", func() bool {
		sock, err := net.Dial("tcp", s.Addr().String())
		if err == nil {
			sock.Close()
		}
		return err != nil
	})
	s.release <- struct{}{}
	c.Expect(`[1,{"no":1,"data":"waited"}]`)
	c.ExpectEnd()
	<-down
}

func TestShutdownEndsAfterTimeout(t *testing.T) {
	s := startServer(t, peer.Options{})
	c := s.dial(t)
	c.Write(`[0,{"no":1,"type":"wait"}]|`)
	c.ExpectNothing()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(ctx)
	if s.Connections() != 0 {
		t.Errorf("%d connections are left", s.Connections())
	}
	c.ExpectEnd()
}

func TestBusyPortIsAnError(t *testing.T) {
	s := startServer(t, peer.Options{})
	_, err := peer.Listen("127.0.0.1", s.Addr().(*net.TCPAddr).Port, peer.Options{})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

func TestMemoryUsageIsPlausible(t *testing.T) {
	m := peer.MemoryUsage()
	if m.RSS < 1<<20 || m.HeapTotal < m.HeapUsed || m.HeapUsed == 0 || m.External > m.RSS {
		t.Errorf("unlikely: %+v", m)
	}
	raw, err := peer.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, key := range []string{`{"rss":`, `,"heapTotal":`, `,"heapUsed":`, `,"external":`, `,"arrayBuffers":`} {
		i := strings.Index(string(raw), key)
		if i < at {
			t.Errorf("%s out of place in %s", key, raw)
		}
		at = i
	}
}

// TestServerListensOnConfiguredHost: the server listens on the address in the configuration.
func TestServerListensOnConfiguredHost(t *testing.T) {
	for host, want := range map[string]bool{"0.0.0.0": false, "127.0.0.1": false, "::": true, "::1": true} {
		s, err := peer.Listen(host, 0, peer.Options{Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		go s.Serve(nil)
		t.Cleanup(s.Close)
		c, err := net.Dial("tcp", net.JoinHostPort("::1", strconv.Itoa(s.Addr().(*net.TCPAddr).Port)))
		if err == nil {
			c.Close()
		}
		if (err == nil) != want {
			t.Errorf("host %s: over IPv6: %v", host, err)
		}
	}
}
