package master_test

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gloom/cmd/internal/testing/peertest"
	"gloom/cmd/jobd-master/master"
	"gloom/cmd/jobd/peer"
)

// fakeClock is a Clock that stands still until a test moves it.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*fakeTimer
}

// fakeTimer is a timer of a fakeClock.
type fakeTimer struct {
	due time.Time
	f   func()
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{c.now.Add(d), f}
	c.timers = append(c.timers, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := len(c.timers)
		c.timers = slices.DeleteFunc(c.timers, func(other *fakeTimer) bool { return other == t })
		return len(c.timers) < n
	}
}

func (c *fakeClock) timerCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// advance moves the time and runs the timers that are due, in order.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		slices.SortStableFunc(c.timers, func(a, b *fakeTimer) int { return a.due.Compare(b.due) })
		if len(c.timers) == 0 || c.timers[0].due.After(end) {
			c.now = end
			c.mu.Unlock()
			return
		}
		t := c.timers[0]
		c.timers = c.timers[1:]
		c.now = t.due
		c.mu.Unlock()
		t.f()
		c.mu.Lock()
	}
}

// fixture is a master with a fake clock behind a real server.
type fixture struct {
	t        *testing.T
	clock    *fakeClock
	master   *master.Master
	server   *peer.Server
	registry *prometheus.Registry
}

const pokeThrottle = 500 * time.Millisecond

func start(t *testing.T, password string) *fixture {
	t.Helper()
	return startWith(t, password, 300*time.Millisecond)
}

func startWith(t *testing.T, password string, timeout time.Duration) *fixture {
	t.Helper()
	f := &fixture{t: t, clock: &fakeClock{now: time.Unix(1000, 0)}, registry: prometheus.NewRegistry()}
	m := master.New(master.Options{PingInterval: 30 * time.Second, PokeThrottle: pokeThrottle,
		WorkerTimeout: timeout, Clock: f.clock, Log: zerolog.Nop(), Metrics: f.registry})
	f.master = m
	var err error
	f.server, err = peer.Listen("127.0.0.1", 0, peer.Options{Password: password, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	go f.server.Serve(m.Routes())
	t.Cleanup(func() {
		f.server.Close()
		m.Close()
		if n := f.clock.timerCount(); n > 0 {
			// Only the timer for a worker's listenGap may be left.
			t.Logf("%d timers are left", n)
		}
	})
	return f
}

func (f *fixture) dial() *peertest.Client {
	f.t.Helper()
	return peertest.Dial(f.t, f.server.Addr().String())
}

// addWorker registers a fake worker.
func (f *fixture) addWorker(name string, targets ...string) *peertest.Client {
	f.t.Helper()
	w := f.dial()
	f.registerWorker(w, name, targets...)
	return w
}

func (f *fixture) registerWorker(w *peertest.Client, name string, targets ...string) {
	f.t.Helper()
	before := f.clock.timerCount()
	if got := w.Ask(fmt.Sprintf(`[0,{"no":1,"type":"register-worker","data":{"targets":["%s"],"name":"%s"}}]`,
		strings.Join(targets, `","`), name)); got != `[1,{"no":1,"data":"ok"}]` {
		f.t.Fatal(got)
	}
	peertest.WaitUntil(f.t, "the gap begins", func() bool { return f.clock.timerCount() > before })
	f.clock.advance(50 * time.Millisecond)
}

var requestNo = regexp.MustCompile(`^\[0,\{"no":(\d+),(.*)\}\]$`)

// readRequest reads the next request that a fake worker gets.
func readRequest(t *testing.T, w *peertest.Client) (number, rest string) {
	t.Helper()
	message := w.Read()
	parts := requestNo.FindStringSubmatch(message)
	if parts == nil {
		t.Fatalf("not a request: %s", message)
	}
	return parts[1], parts[2]
}

// answerRequest expects a request and answers it; reply is the part of the response after the
// number.
func answerRequest(t *testing.T, w *peertest.Client, want, reply string) {
	t.Helper()
	number, got := readRequest(t, w)
	if got != want {
		t.Fatalf("worker is asked %s, want %s", got, want)
	}
	w.Write(`[1,{"no":` + number + `,` + reply + `}]|`)
}

func pollFrame(targets ...string) string {
	return `"type":"poll","data":{"targets":["` + strings.Join(targets, `","`) + `"]}`
}

const okData = `"data":"ok"`

func (f *fixture) poke(c *peertest.Client, targets ...string) {
	f.t.Helper()
	if got := c.Ask(`[0,{"no":5,"type":"poke","data":{"targets":["` + strings.Join(targets, `","`) + `"]}}]`); got != `[1,{"no":5,"data":"ok"}]` {
		f.t.Fatal(got)
	}
}

func TestPokeReachesWorkersOfTargets(t *testing.T) {
	f := start(t, "")
	a, b, c := f.addWorker("a", "x", "y"), f.addWorker("b", "y", "z"), f.addWorker("c", "other")
	client := f.dial()
	f.poke(client, "z", "y", "nobody")
	answerRequest(t, a, pollFrame("y"), okData)
	answerRequest(t, b, pollFrame("y", "z"), okData)
	c.ExpectNothing()
	client.ExpectNothing()
	a.ExpectNothing()
	b.ExpectNothing()
}

func TestPokesAreThrottled(t *testing.T) {
	f := start(t, "")
	w := f.addWorker("w", "x", "y", "z")
	client := f.dial()
	f.poke(client, "x")
	answerRequest(t, w, pollFrame("x"), okData)
	for range 10 {
		f.poke(client, "y")
		f.poke(client, "x")
	}
	w.ExpectNothing()
	f.clock.advance(pokeThrottle - time.Millisecond)
	w.ExpectNothing()
	f.clock.advance(time.Millisecond)
	answerRequest(t, w, pollFrame("x", "y"), okData)
	w.ExpectNothing()
	f.clock.advance(10 * pokeThrottle)
	w.ExpectNothing()
	f.poke(client, "z")
	answerRequest(t, w, pollFrame("z"), okData)
}

// TestPollsOfSlowWorker: polls do not wait for answers, but polls to a worker with many unanswered
// polls are combined into one.
func TestPollsOfSlowWorker(t *testing.T) {
	f := startWith(t, "", time.Minute)
	w := f.addWorker("w", "x", "y", "z")
	client := f.dial()
	f.poke(client, "x")
	first, _ := readRequest(t, w)
	w.Write(`[1,{"no":` + first + `,"data":"ok"}]|`)
	var unanswered []string
	for range 16 {
		f.clock.advance(pokeThrottle)
		f.poke(client, "x")
		number, _ := readRequest(t, w)
		unanswered = append(unanswered, number)
	}
	for _, target := range []string{"y", "z", "y"} {
		f.clock.advance(pokeThrottle)
		f.poke(client, target)
	}
	w.Write(`[1,{"no":` + unanswered[0] + `,"data":"ok"}]|`)
	answerRequest(t, w, pollFrame("y", "z"), okData)
}

func TestPokesAreRemembered(t *testing.T) {
	f := start(t, "")
	client := f.dial()
	f.poke(client, "x", "toString", "y", "__proto__")
	f.poke(client, "z")
	f.clock.advance(pokeThrottle)
	if got := f.metric("jobd_master_remembered_pokes"); got != 5 {
		t.Errorf("%v pokes are remembered, want 5", got)
	}
	w := f.dial()
	if got := w.Ask(`[0,{"no":1,"type":"register-worker","data":{"targets":["other","z","toString","__proto__"],"name":"w"}}]`); got != `[1,{"no":1,"data":"ok"}]` {
		t.Fatal(got)
	}
	w.ExpectNothing() // an old worker would not listen yet
	f.clock.advance(9 * time.Millisecond)
	w.ExpectNothing()
	peertest.WaitUntil(t, "the gap begins", func() bool { return f.clock.timerCount() == 2 })
	f.clock.advance(50 * time.Millisecond)
	answerRequest(t, w, pollFrame("toString", "__proto__", "z"), okData)
	w.ExpectNothing()
	answerRequest(t, f.addWorker("second", "x", "z"), pollFrame("x"), okData)
	f.addWorker("third", "x", "z").ExpectNothing()
}

// TestRequestsWaitForListenGap: requests in the gap after a registration wait until the gap is over.
func TestRequestsWaitForListenGap(t *testing.T) {
	f := start(t, "")
	w, client := f.dial(), f.dial()
	if got := w.Ask(`[0,{"no":1,"type":"register-worker","data":{"targets":["x"],"name":"w"}}]`); got != `[1,{"no":1,"data":"ok"}]` {
		t.Fatal(got)
	}
	peertest.WaitUntil(t, "the gap begins", func() bool { return f.clock.timerCount() == 2 })
	f.poke(client, "x")
	client.Write(`[0,{"no":8,"type":"run-manual","data":{"jobs":[{"id":1,"target":"x"}]}}]|`)
	client.ExpectNothing()
	w.ExpectNothing()
	f.clock.advance(50 * time.Millisecond)
	var got []string
	for range 2 {
		number, rest := readRequest(t, w)
		got = append(got, rest)
		w.Write(`[1,{"no":` + number + `,"data":{"jobs":{"1":"r"}}}]|`)
	}
	slices.Sort(got)
	if want := []string{pollFrame("x"), `"type":"run-manual","data":{"ids":[1]}`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	client.Expect(`[1,{"no":8,"data":{"jobs":{"1":"r"}}}]`)
}

// TestPollOfLostWorkerIsRepeated: a poll is not lost if its worker ends before it answers.
func TestPollOfLostWorkerIsRepeated(t *testing.T) {
	f := start(t, "")
	w, client := f.addWorker("w", "x"), f.dial()
	f.poke(client, "x")
	readRequest(t, w)
	w.Close()
	peertest.WaitUntil(t, "the worker is gone", func() bool { return f.workerCount() == 0 })
	f.clock.advance(pokeThrottle)
	peertest.WaitUntil(t, "the poke is remembered", func() bool {
		f.clock.advance(pokeThrottle)
		return f.metric("jobd_master_remembered_pokes") == 1
	})
	answerRequest(t, f.addWorker("next", "x"), pollFrame("x"), okData)
}

// TestPollOfSilentWorkerIsRepeated: a worker stays connected for a while without answering: its
// machine may be gone, and a poll with it. The poll is not lost.
func TestPollOfSilentWorkerIsRepeated(t *testing.T) {
	f := start(t, "")
	w, client := f.addWorker("w", "x", "y"), f.dial()
	passTime := func() { // lets more time pass than a poll may take
		t.Helper()
		client.Write(`[0,{"no":6,"type":"status","data":{"poll_workers":1}}]|`)
		readRequest(t, w)
		client.Read()
	}
	f.poke(client, "x", "y")
	readRequest(t, w)
	passTime()
	answerRequest(t, w, pollFrame("x", "y"), okData) // the first poll is repeated
	for _, target := range []string{"y", "x"} {
		f.clock.advance(pokeThrottle)
		f.poke(client, target)
		readRequest(t, w)
	}
	passTime()
	f.clock.advance(pokeThrottle)
	f.poke(client, "x")
	answerRequest(t, w, pollFrame("x"), okData)
	w.Close()
	peertest.WaitUntil(t, "a poke is remembered", func() bool {
		f.clock.advance(pokeThrottle)
		return f.metric("jobd_master_remembered_pokes") > 0
	})
	// The answer about x may be read after the worker has gone: then x is polled again, too.
	if _, got := readRequest(t, f.addWorker("next", "x", "y")); !strings.Contains(got, `"y"`) {
		t.Errorf("the next worker got %q, want a poll of y", got)
	}
}

// TestFirstPollIsRepeated: the first poll to a worker is repeated, because the worker may not have
// listened yet.
func TestFirstPollIsRepeated(t *testing.T) {
	f := start(t, "")
	w, client := f.addWorker("w", "x"), f.dial()
	f.poke(client, "x")
	readRequest(t, w) // not answered
	answerRequest(t, w, pollFrame("x"), okData)
	w.ExpectNothing()
}

func (f *fixture) workerCount() int {
	return int(f.metric("jobd_master_workers"))
}

// metric returns the value of one metric.
func (f *fixture) metric(name string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if m := family.GetMetric(); family.GetName() == name && len(m) == 1 {
			return m[0].GetGauge().GetValue() + m[0].GetCounter().GetValue()
		}
	}
	f.t.Fatalf("no metric %s", name)
	return 0
}

func TestInvalidRegistrationIsRefused(t *testing.T) {
	f := start(t, "")
	c := f.dial()
	for data, want := range map[string]string{
		`{"name":"w"}`:                     "missing required field targets",
		`{"targets":[],"name":"w"}`:        "targets are empty",
		`{"targets":"x","name":"w"}`:       "targets must be array",
		`{"targets":[1],"name":"w"}`:       "all targets must be strings, number given",
		`{"targets":["x"],"name":5}`:       "name is missing or invalid",
		`{"targets":["x"],"name":null}`:    "name is missing or invalid",
		`"x"`:                              "missing required field targets",
		`{"targets":["x",null],"name":""}`: "all targets must be strings, object given",
	} {
		if got := c.Ask(`[0,{"no":1,"type":"register-worker","data":` + data + `}]`); got != `[1,{"no":1,"error":"`+want+`"}]` {
			t.Errorf("%s: %s", data, got)
		}
	}
	if f.workerCount() != 0 {
		t.Fatalf("%d workers are registered", f.workerCount())
	}
	w := f.dial()
	if got := w.Ask(`[0,{"no":1,"type":"register-worker","data":{"targets":["x"]}}]`); got != `[1,{"no":1,"data":"ok"}]` {
		t.Errorf("without a name: %s", got)
	}
	f.registerWorker(w, "later", "y", "z")
	status := peertest.DecodeData(t, c.Ask(`[0,{"no":1,"type":"status"}]`))
	want := fmt.Sprintf("[map[name:later remoteAddr:127.0.0.1 remotePort:%d targets:[y z]]]", w.LocalPort())
	if got := fmt.Sprint(status["workers"]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f.poke(c, "x", "y")
	answerRequest(t, w, pollFrame("y"), okData)
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	f := start(t, "")
	f.addWorker("w", "x")
	c := f.dial()
	for _, tc := range []struct{ typ, data, want string }{
		{"poke", ``, `"error":"missing required field targets"`},
		{"poke", `{"targets":[]}`, `"error":"targets are empty"`},
		{"poke", `{"targets":"x"}`, `"error":"targets must be array"`},
		{"poke", `{"targets":["` + strings.Repeat("x", 1025) + `"]}`, `"error":"name of a target is too long: 1025 bytes (limit 1024)"`},
		{"poke", `{"targets":[1]}`, `"error":"all targets must be strings, number given"`},
		{"pause", `{"targets":[]}`, `"error":"targets are empty"`},
		{"pause", `{"targets":["nobody"]}`, okData},
		{"continue", `{"targets":["nobody"]}`, okData},
		{"run-manual", ``, `"error":"jobs must be array"`},
		{"run-manual", `{"jobs":{}}`, `"error":"jobs must be array"`},
		{"run-manual", `{"jobs":[5]}`, `"error":"data is not an object"`},
		{"run-manual", `{"jobs":[{"target":"x"}]}`, `"error":"missing required field id"`},
		{"run-manual", `{"jobs":[{"id":"1","target":"x"}]}`, `"error":"'id' must be integer"`},
		{"run-manual", `{"jobs":[{"id":1}]}`, `"error":"missing required field target"`},
		{"run-manual", `{"jobs":[{"id":1,"target":5}]}`, `"error":"'target' must be string"`},
		{"run-manual", `{"jobs":[]}`, `"data":{}`},
		{"run-manual", `{"jobs":[{"id":9007199254740993,"target":"zzz"}]}`, `"data":{"errors":{"9007199254740993":"worker serving target 'zzz' not found"}}`},
		{"run-manual", `{"jobs":[{"id":7,"target":"zzz"},{"id":6,"target":"toString"}]}`,
			`"data":{"errors":{"6":"worker serving target 'toString' not found","7":"worker serving target 'zzz' not found"}}`},
		{"send-signal", ``, `"error":"jobs must be array"`},
		{"send-signal", `{"jobs":[{"id":1,"target":"x"}]}`, `"error":"missing required field signal"`},
		{"send-signal", `{"jobs":[{"id":1,"signal":"SIGTERM","target":"x"}]}`, `"error":"'signal' must be integer"`},
		{"send-signal", `{"jobs":[]}`, `"data":{}`},
		{"send-signal", `{"jobs":[{"id":9007199254740993,"signal":9,"target":"zzz"}]}`, `"data":{"errors":{"9007199254740993":"worker serving target 'zzz' not found"}}`},
		{"send-signal", `{"jobs":[{"id":2,"signal":9,"target":"zzz"}]}`, `"data":{"errors":{"2":"worker serving target 'zzz' not found"}}`},
		{"poll", ``, `"error":"unknown request type: 'poll'"`},
	} {
		request := `[0,{"no":3,"type":"` + tc.typ + `"`
		if tc.data != "" {
			request += `,"data":` + tc.data
		}
		if got, want := c.Ask(request+"}]"), `[1,{"no":3,`+tc.want+"}]"; got != want {
			t.Errorf("%s %s\ngot  %s\nwant %s", tc.typ, tc.data, got, want)
		}
	}
}

func TestPauseAndContinueReachWorkers(t *testing.T) {
	f := start(t, "")
	a, b, client := f.addWorker("a", "x", "y"), f.addWorker("b", "z"), f.dial()
	client.Write(`[0,{"no":1,"type":"pause"}]|[0,{"no":2,"type":"continue","data":{"targets":["y","x","nobody"]}}]|[0,{"no":3,"type":"pause","data":[]}]|`)
	answerRequest(t, a, `"type":"pause","data":{}`, okData)
	answerRequest(t, b, `"type":"pause","data":{}`, okData)
	client.Expect(`[1,{"no":1,"data":"ok"}]`)
	answerRequest(t, a, `"type":"continue","data":{"targets":["x","y"]}`, okData)
	client.Expect(`[1,{"no":2,"data":"ok"}]`)
	answerRequest(t, a, `"type":"pause","data":{}`, okData)
	// A silent worker delays the answer, but an answer comes, and it names the silent worker.
	client.Expect(`[1,{"no":3,"error":"worker 'b' (127.0.0.1:` + strconv.Itoa(b.LocalPort()) + `) did not pause: no answer within 300ms"}]`)
	readRequest(t, b)
	b.ExpectNothing()
}

func TestStatusListsWorkers(t *testing.T) {
	f := start(t, "")
	a, b, c, client := f.addWorker("a", "x"), f.addWorker("", "y"), f.addWorker("c", "z"), f.dial()
	client.Write(`[0,{"no":1,"type":"status","data":{"poll_workers":true}}]|`)
	answerRequest(t, a, `"type":"status"`, `"data":{"targets":{"z":{"paused":false},"2":1,"1":2},"x":"<&>\u0004"}`)
	answerRequest(t, c, `"type":"status"`, `"error":"no"`)
	readRequest(t, b) // and says nothing
	got := client.Read()
	memory := regexp.MustCompile(`"memoryUsage":\{"rss":\d+,"heapTotal":\d+,"heapUsed":\d+,"external":\d+,"arrayBuffers":\d+\}`)
	got = memory.ReplaceAllString(got, `"memoryUsage":MEMORY`)
	port := func(w *peertest.Client) string { return strconv.Itoa(w.LocalPort()) }
	want := `[1,{"no":1,"data":{"workers":[` +
		`{"remoteAddr":"127.0.0.1","remotePort":` + port(a) + `,"targets":["x"],"name":"a","workerStatus":{"targets":{"z":{"paused":false},"2":1,"1":2},"x":"<&>\u0004"}},` +
		`{"remoteAddr":"127.0.0.1","remotePort":` + port(b) + `,"targets":["y"],"name":"","workerStatusError":"no answer within 300ms"},` +
		`{"remoteAddr":"127.0.0.1","remotePort":` + port(c) + `,"targets":["z"],"name":"c","workerStatusError":"no"}],` +
		`"memoryUsage":MEMORY}}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := client.Ask(`[0,{"no":2,"type":"status","data":{"poll_workers":false}}]`); strings.Contains(got, "workerStatus") {
		t.Error(got)
	}
	a.ExpectNothing()
}

func TestRunManualGathersResults(t *testing.T) {
	f := start(t, "")
	a, b, client := f.addWorker("a", "x"), f.addWorker("b", "y"), f.dial()
	client.Write(`[0,{"no":1,"type":"run-manual","data":{"jobs":[{"id":10,"target":"x"},{"id":9,"target":"y"},{"id":8,"target":"zzz"},{"id":11,"target":"x"},{"id":10,"target":"x"}]}}]|`)
	answerRequest(t, a, `"type":"run-manual","data":{"ids":[10,11]}`, `"data":{"jobs":{"11":{"stdout":"\u0004"}},"errors":{"10":"e"}}`)
	client.ExpectNothing() // the master waits for the other workers
	answerRequest(t, b, `"type":"run-manual","data":{"ids":[9]}`, `"data":{"jobs":{"9":{"result":"ok"}}}`)
	client.Expect(`[1,{"no":1,"data":{"jobs":{"9":{"result":"ok"},"11":{"stdout":"\u0004"}},"errors":{"8":"worker serving target 'zzz' not found","10":"e"}}}]`)

	// A failing worker affects only its own jobs.
	client.Write(`[0,{"no":2,"type":"run-manual","data":{"jobs":[{"id":1,"target":"x"},{"id":2,"target":"x"},{"id":3,"target":"y"}]}}]|`)
	readRequest(t, a)
	a.Close()
	answerRequest(t, b, `"type":"run-manual","data":{"ids":[3]}`, `"data":{"jobs":{"3":1}}`)
	client.Expect(`[1,{"no":2,"data":{"jobs":{"3":1},"errors":{"1":"Socket is closed","2":"Socket is closed"}}}]`)
	client.Write(`[0,{"no":3,"type":"run-manual","data":{"jobs":[{"id":3,"target":"y"}]}}]|`)
	answerRequest(t, b, `"type":"run-manual","data":{"ids":[3]}`, `"error":"another client is already waiting for job 3"`)
	client.Expect(`[1,{"no":3,"data":{"errors":{"3":"another client is already waiting for job 3"}}}]`)
	client.Write(`[0,{"no":4,"type":"run-manual","data":{"jobs":[{"id":3,"target":"y"}]}}]|`)
	answerRequest(t, b, `"type":"run-manual","data":{"ids":[3]}`, `"data":{}`)
	client.Expect(`[1,{"no":4,"data":{"errors":{"3":"worker has answered without a result for job 3"}}}]`)
}

func TestSignalReachesServingWorkers(t *testing.T) {
	f := start(t, "")
	a, b, c, client := f.addWorker("a", "x"), f.addWorker("b", "x", "y"), f.addWorker("c", "z"), f.dial()
	client.Write(`[0,{"no":1,"type":"send-signal","data":{"jobs":[{"id":3,"signal":15,"target":"x"},{"id":1,"signal":9,"target":"y"},{"id":2,"signal":9,"target":"zzz"}]}}]|`)
	answerRequest(t, a, `"type":"send-signal","data":{"jobs":{"3":15}}`, `"data":{"3":true}`)
	answerRequest(t, b, `"type":"send-signal","data":{"jobs":{"3":15,"1":9}}`, `"data":{"3":false,"1":false}`)
	client.Expect(`[1,{"no":1,"data":{"1":false,"3":true,"errors":{"2":"worker serving target 'zzz' not found"}}}]`)

	client.Write(`[0,{"no":2,"type":"send-signal","data":{"jobs":[{"id":3,"signal":15,"target":"x"},{"id":5,"signal":1,"target":"z"}]}}]|`)
	answerRequest(t, a, `"type":"send-signal","data":{"jobs":{"3":15}}`, `"data":{"3":true}`)
	readRequest(t, b) // this worker does not answer, but the other one had the job
	readRequest(t, c)
	c.Close()
	client.Expect(`[1,{"no":2,"data":{"3":true,"errors":{"5":"Socket is closed"}}}]`)
}

func TestWorkerThatFallsSilentIsClosed(t *testing.T) {
	f := start(t, "")
	w, silentWorker, client := f.addWorker("w", "x"), f.addWorker("mute", "y"), f.dial()
	client.ExpectNothing()
	for i := range 5 {
		f.clock.advance(30 * time.Second)
		w.Expect("[2]")
		silentWorker.Expect("[2]")
		if i < 2 {
			w.Write("[3]|")
			w.ExpectNothing() // it has arrived
		}
		client.ExpectNothing()
		if f.workerCount() != 2 {
			t.Fatalf("%d workers are left after %d pings", f.workerCount(), i+1)
		}
	}
	// A worker that stops answering pings is disconnected; a worker that has never answered is not.
	peertest.WaitUntil(t, "a worker that fell silent is given up", func() bool {
		f.clock.advance(30 * time.Second)
		return f.workerCount() == 1
	})
	status := peertest.DecodeData(t, client.Ask(`[0,{"no":1,"type":"status"}]`))
	if got := fmt.Sprint(status["workers"]); !strings.Contains(got, "name:mute") {
		t.Errorf("left is %s", got)
	}
}

func TestWorkersNeedPassword(t *testing.T) {
	f := start(t, "secret")
	w := f.dial()
	w.Write(`[0,{"no":1,"type":"register-worker","data":{"targets":["x"],"name":"w"},"password":"wrong"}]|`)
	w.Expect(`[1,{"no":1,"error":"invalid password"}]`)
	w.ExpectEnd()
	w = f.dial()
	w.Write(`[0,{"no":1,"type":"register-worker","data":{"targets":["x"],"name":"w"},"password":"secret"}]|`)
	w.Expect(`[1,{"no":1,"data":"ok"}]`)
}

// TestConcurrentClientsDoNotRace: a worker and clients come and go while pokes arrive. This test is
// for the race detector.
func TestConcurrentClientsDoNotRace(t *testing.T) {
	f := start(t, "")
	var wg sync.WaitGroup
	addr := f.server.Addr().(*net.TCPAddr).String()
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				c := peertest.Dial(t, addr)
				if i%2 == 0 {
					c.Write(fmt.Sprintf(`[0,{"no":%d,"type":"register-worker","data":{"targets":["t%d"],"name":"w"}}]|`, n, i))
				} else {
					c.Write(fmt.Sprintf(`[0,{"no":%d,"type":"poke","data":{"targets":["t%d"]}}]|`, n, i-1))
				}
				c.Read()
				f.clock.advance(pokeThrottle)
				c.Close()
			}
		})
	}
	wg.Wait()
	peertest.WaitUntil(t, "all workers are gone", func() bool { return f.workerCount() == 0 })
}

// TestMasterAsksWorkersOncePerPeriod: the master asks workers of several kinds about themselves,
// and one worker of each table about waiting rows, once in a Period for all callers.
func TestMasterAsksWorkersOncePerPeriod(t *testing.T) {
	f := start(t, "")
	a, b := f.addWorker("a", "x", "y"), f.addWorker("b", "x")
	old, silentWorker := f.addWorker("old", "z"), f.addWorker("mute", "x")
	snapshots := make(chan *master.Snapshot, 2)
	for range 2 {
		go func() { snapshots <- f.master.Snapshot() }()
	}
	const table = `"table":"db/app.jobs","trouble":"","manual":0,"bounds":[1,2],"runs":[1,2,3]`
	answerRequest(t, a, `"type":"look"`, `"data":{`+table+`,"targets":[{"target":"x","paused":true,"concurrency":2,"queued":1,"running":2,"accepted":9,"ok":5,"fail":1},{"target":"y","concurrency":1}]}`)
	answerRequest(t, b, `"type":"look"`, `"data":{`+table+`,"targets":[{"target":"x","concurrency":3}]}`)
	answerRequest(t, old, `"type":"look"`, `"error":"unknown request type: 'look'"`)
	readRequest(t, silentWorker)
	answerRequest(t, old, `"type":"status"`, `"data":{"targets":{"z":{"paused":false,"concurrency":2,"length":3}},"jobPromisesCount":4}`)
	answerRequest(t, a, `"type":"waiting"`, `"data":{"waiting":[{"target":"x","rows":7,"more":true,"oldest":"1970-01-01T00:10:00Z"},{"target":"lost","rows":1,"more":false,"oldest":null}],"manual":[{"target":"y","rows":2,"more":false,"oldest":null}]}`)
	l := <-snapshots
	if l != <-snapshots {
		t.Error("two have looked at a time")
	}
	b.ExpectNothing()
	var targets, workers []string
	for _, x := range l.Targets {
		targets = append(targets, fmt.Sprintf("%s: %d/%d workers, %d of %d, %d queued, %d+%d wait, more %t, known %t", x.Target.Target, x.PausedBy, x.Workers, x.Running, x.Concurrency, x.Queued, x.Waiting, x.Manual, x.More, x.RowsCounted))
	}
	for _, w := range l.Workers {
		workers = append(workers, fmt.Sprintf("%s silent %t old %t %d", w.Name, w.Silent, w.ReportsNoRows, w.Manual))
	}
	if want := []string{
		"x: 1/3 workers, 2 of 5, 1 queued, 7+0 wait, more true, known true", "z: 0/1 workers, 2 of 2, 1 queued, 0+0 wait, more false, known false",
		"y: 0/1 workers, 0 of 1, 0 queued, 0+2 wait, more false, known true", "lost: 0/0 workers, 0 of 0, 0 queued, 1+0 wait, more false, known true",
	}; !slices.Equal(targets, want) {
		t.Errorf("targets %q, want %q", targets, want)
	}
	if want := []string{"a silent false old false 0", "b silent false old false 0", "old silent false old true 4", "mute silent true old false 0"}; !slices.Equal(workers, want) {
		t.Errorf("workers %q, want %q", workers, want)
	}
	if fmt.Sprint(l.Runs) != "[2 4 6]" {
		t.Errorf("runs %v", l.Runs)
	}
	if l != f.master.Snapshot() {
		t.Error("somebody has looked again within the period")
	}
	// After the Period the master asks the workers again. A target that has lost its last worker is
	// reported; counts that cannot be renewed stay for a while.
	old.Close()
	peertest.WaitUntil(t, "the worker is gone", func() bool { return f.workerCount() == 3 })
	for _, c := range []struct {
		after     time.Duration
		waiting   int
		uncounted string
	}{{master.Period, 7, ""}, {40 * time.Second, 0, "too slow"}} {
		if f.clock.advance(c.after); c.after > 30*time.Second {
			a.Expect(`[2]`)
			b.Expect(`[2]`)
		}
		go func() { snapshots <- f.master.Snapshot() }()
		answerRequest(t, a, `"type":"look"`, `"data":{`+table+`,"targets":[{"target":"x","concurrency":2}]}`)
		answerRequest(t, b, `"type":"look"`, `"data":{`+table+`,"targets":[{"target":"x","concurrency":3}]}`)
		answerRequest(t, a, `"type":"waiting"`, `"error":"too slow"`)
		l = <-snapshots
		x := l.Targets[slices.IndexFunc(l.Targets, func(x master.Target) bool { return x.Target.Target == "x" })]
		if x.Waiting != c.waiting || l.Workers[0].CountError != c.uncounted {
			t.Errorf("after %v: %d wait, uncounted %q", c.after, x.Waiting, l.Workers[0].CountError)
		}
	}
	left := slices.IndexFunc(l.Targets, func(x master.Target) bool { return x.LeftAt != nil })
	if left < 0 || l.Targets[left].Target.Target != "z" {
		t.Errorf("nobody knows that the last worker of z has left: %+v", l.Targets)
	}
}

// TestManyPokedTargetsAreLookedUp: workers have more targets than the number of remembered pokes.
// So every poked target is looked up among the served targets.
func TestManyPokedTargetsAreLookedUp(t *testing.T) {
	f := start(t, "")
	list := make([]string, 1<<16+1<<10)
	for i := range list {
		list[i] = fmt.Sprintf("target %06d", i)
	}
	w, other, client := f.addWorker("w", list...), f.addWorker("other", list[:1<<15]...), f.dial()
	f.poke(client, list...)
	readRequest(t, w)
	readRequest(t, other)
	other.Close()
	peertest.WaitUntil(t, "the worker is gone", func() bool { return f.workerCount() == 1 })
}

// TestOnlyServedTargetsArePokedWhenFull fills the remembered pokes: from then on only targets that
// are served can be poked.
func TestOnlyServedTargetsArePokedWhenFull(t *testing.T) {
	f := start(t, "")
	client := f.dial()
	list := make([]string, 1<<16)
	for i := range list {
		list[i] = fmt.Sprintf("nobody %06d", i)
	}
	f.poke(client, list...)
	poke := func(target string) string {
		f.clock.advance(pokeThrottle)
		return client.Ask(`[0,{"no":5,"type":"poke","data":{"targets":["` + target + `"]}}]`)
	}
	const served = `[1,{"no":5,"data":"ok"}]`
	const unserved = `[1,{"no":5,"error":"too many poked targets have no worker (limit 65536)"}]`
	expect := func(target, want string) {
		t.Helper()
		if got := poke(target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	w, other := f.addWorker("w", "both", "twice", "twice"), f.addWorker("other", "both")
	expect("twice", served)
	answerRequest(t, w, pollFrame("twice"), okData)
	f.registerWorker(w, "w", "new")
	expect("both", served)
	answerRequest(t, other, pollFrame("both"), okData)
	expect("twice", unserved)
	expect("new", served)
	other.Close()
	peertest.WaitUntil(t, "the worker is gone", func() bool { return f.workerCount() == 1 })
	expect("both", unserved)
}

// TestReportedTargetsAreBounded: a snapshot has hardly more targets than workers have registered,
// whatever they report.
func TestReportedTargetsAreBounded(t *testing.T) {
	f := startWith(t, "", 20*time.Second)
	a, b := f.addWorker("a", "x"), f.addWorker("b", "x")
	snapshots := make(chan *master.Snapshot)
	go func() { snapshots <- f.master.Snapshot() }()
	var targets []string
	for i := range 1000 {
		targets = append(targets, fmt.Sprintf(`{"target":"%d"}`, i))
	}
	answerRequest(t, a, `"type":"look"`, `"data":{"targets":[`+strings.Join(targets, ",")+`]}`)
	answerRequest(t, b, `"type":"look"`, `"data":{"targets":[{"target":"x"}]}`)
	l := <-snapshots
	if n := len(l.Targets); n != 1+100+1 || n != len(l.Workers[0].Targets)+len(l.Workers[1].Targets) {
		t.Errorf("%d targets", n)
	}
}

// TestTargetsOfAllWorkersAreBounded: a worker is refused while the targets of all workers would
// take too much memory with its own. A registration in place of an earlier registration counts
// once.
func TestTargetsOfAllWorkersAreBounded(t *testing.T) {
	f := start(t, "")
	list := make([]string, 12500)
	for i := range list {
		list[i] = fmt.Sprintf("%01000d", i)
	}
	w, second := f.addWorker("w", list...), f.addWorker("second", list...)
	f.registerWorker(w, "w", list...)
	third := f.dial()
	register := func() string {
		return third.Ask(`[0,{"no":1,"type":"register-worker","data":{"targets":["` + strings.Join(list, `","`) + `"],"name":"third"}}]`)
	}
	if got := register(); !strings.Contains(got, `"error":"workers have too many targets (limit 33554432 bytes`) {
		t.Errorf("a third worker: %s", got)
	}
	second.Close()
	peertest.WaitUntil(t, "the second worker is gone", func() bool { return f.workerCount() == 1 })
	if got := register(); got != `[1,{"no":1,"data":"ok"}]` {
		t.Errorf("after the second has left: %s", got)
	}

	// What a target takes in a snapshot counts towards the limit, too. Otherwise a snapshot could
	// take longer to make than it stays valid.
	w.Close()
	third.Close()
	peertest.WaitUntil(t, "all are gone", func() bool { return f.workerCount() == 0 })
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	for n := range 9 {
		f.addWorker(fmt.Sprint(n), list...)
	}
	third = f.dial()
	for n := range 2 {
		got := third.Ask(`[0,{"no":1,"type":"register-worker","data":{"targets":["` + strings.Join(list, `","`) + `"],"name":"third"}}]`)
		if want := n == 0; want != (got == `[1,{"no":1,"data":"ok"}]`) {
			t.Errorf("worker %d: %s", 10+n, got)
		}
		third = f.dial()
	}
}
