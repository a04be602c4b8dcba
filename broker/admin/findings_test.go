package admin_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/settings"
)

var healthyFor = flag.Duration("healthy", 4*time.Second, "how long a broker under load is to yield no findings")

// scenario is a condition on a broker that a finding must report, about a type of its own. In
// frames and requests, TYP is replaced by its name.
type scenario struct {
	*world
	typ       string
	startedAt time.Time
	// undo lists the actions that end the condition; the last one runs first.
	undo []func()
}

func (s *scenario) withType(text string) string { return strings.ReplaceAll(text, "TYP", s.typ) }

// peer is a client that sends frames, and reads answers only on demand.
type peer struct {
	net.Conn
	scenario *scenario
}

func (s *scenario) dial(a net.Addr, reads bool) *peer {
	s.t.Helper()
	c, err := net.Dial("tcp", a.String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.undo = append(s.undo, func() { _ = c.Close() })
	if reads {
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	return &peer{c, s}
}

// dialUnread sends hello and reads nothing; its system buffers little.
func (s *scenario) dialUnread(a net.Addr) *peer {
	p := s.dial(a, false)
	_ = p.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	return p.send(`{"action":"hello","client":"TYP"}`)
}

func (p *peer) send(format string, args ...any) *peer {
	p.scenario.t.Helper()
	if err := p.try(format, args...); err != nil {
		p.scenario.t.Fatal(err)
	}
	return p
}

// try sends a frame, like send, but returns an error if the connection is lost.
func (p *peer) try(format string, args ...any) error {
	_, err := p.Write(frame(p.scenario.withType(format), args...))
	return err
}

func (s *scenario) addSubmitter() *peer { return s.dial(s.srv.SubmitAddr(), true) }

// addWorker adds a worker whose join has these keys, and which answers no jobs.
func (s *scenario) addWorker(join string) *peer {
	return s.dial(s.srv.WorkerAddr(), true).send(`{"action":"hello","client":"TYP"}`).send(`{"action":"join",%s}`, s.withType(join))
}

// addAnsweringWorker adds a worker that joins with these keys and gives each job the same answer.
func (s *scenario) addAnsweringWorker(join, answer string) { s.addSlowWorker(join, answer, 0) }

// addSlowWorker is like addAnsweringWorker, but the worker answers after the given time.
func (s *scenario) addSlowWorker(join, answer string, d time.Duration) {
	c := s.dial(s.srv.WorkerAddr(), false).send(`{"action":"join",%s}`, s.withType(join))
	go c.onEach(`"action":"job"`, func(string) []byte {
		time.Sleep(d)
		return frame("%s", s.withType(answer))
	})
}

// keepQueued adds a submitter that keeps n jobs of the type in the broker: it submits a new job for
// each result.
func (s *scenario) keepQueued(n int, typ, fields string) {
	c, i := s.dial(s.srv.SubmitAddr(), false), 0
	job := func(string) []byte {
		i++
		return frame(`{"action":"submit","id":"%s-%d","type":"%s","body":%s,"ack":false%s}`, c.LocalAddr(), i, s.withType(typ), body100, fields)
	}
	for range n {
		_, _ = c.Write(job(""))
	}
	go c.onEach(`"body"`, job)
}

// onEach answers each received frame that contains a text with the frame that answer returns, until
// the connection is lost.
func (p *peer) onEach(match string, answer func(text string) []byte) {
	for {
		text, err := readFrame(p)
		if err != nil {
			return
		}
		if strings.Contains(text, match) {
			if _, err := p.Write(answer(text)); err != nil {
				return
			}
		}
	}
}

func readFrame(r io.Reader) (string, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	p := make([]byte, int(head[0])<<24|int(head[1])<<16|int(head[2])<<8|int(head[3]))
	_, err := io.ReadFull(r, p)
	return string(p), err
}

// addJobs submits n jobs of the type, with more keys.
func (s *scenario) addJobs(n int, fields string) *peer {
	p := s.addSubmitter()
	for i := range n {
		p.send(`{"action":"submit","id":"%s-%d","type":"TYP","body":1%s}`, p.LocalAddr(), i, s.withType(fields))
	}
	return p
}

// repeat repeats something until the scenario is cleared. It runs concurrently with the
// test, so it does not touch the undo list and makes its own connections.
func (s *scenario) repeat(step func(i int)) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			step(i)
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	s.undo = append(s.undo, func() { close(done); wg.Wait() })
}

func (s *scenario) putJSON(path, body string) {
	method := "PUT"
	if strings.HasSuffix(path, "pause") || strings.HasSuffix(path, "drain") {
		method = "POST"
	}
	status := 200
	switch {
	case strings.HasPrefix(path, "/v1/groups/"):
		status = 201
	case strings.HasSuffix(path, "drain"):
		status = 202
	}
	s.call(method, s.withType(path), body, status)
}

// awaitRun waits until the only job of a type runs.
func (s *scenario) awaitRun(typ string) {
	s.t.Helper()
	eventually(s.t, "it runs", func() bool {
		return s.call("GET", s.withType("/v1/types/"+typ+"/demand"), "", 200)["demand"] == 1.0 && s.call("GET", s.withType("/v1/types/"+typ), "", 200)["running"] == 1.0
	})
}

func (s *scenario) findings() api.Findings {
	s.t.Helper()
	data, err := json.Marshal(s.call("GET", "/v1/findings", "", 200))
	if err != nil {
		s.t.Fatal(err)
	}
	var f api.Findings
	if err := json.Unmarshal(data, &f); err != nil {
		s.t.Fatal(err)
	}
	return f
}

func (s *scenario) finding(cause, subject string) *api.Finding {
	name, flag, _ := strings.Cut(cause, " ")
	for _, f := range s.findings().Items {
		if f.Cause == name && f.Limit == flag && (subject == "" || f.Subject == subject) {
			return &f
		}
	}
	return nil
}

const body100 = `"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"`

// TestFindingsLastAsLongAsTheirCause creates, on real brokers, conditions in which jobs do not
// progress or soon will not. Each condition is reported until it has ended.
func TestFindingsLastAsLongAsTheirCause(t *testing.T) {
	t.Parallel()
	sharedWorld := start(t, nil)
	base := &scenario{world: sharedWorld}
	eventually(t, "a calm broker", func() bool { return len(base.findings().Items) == 0 })
	ownBroker := func(*settings.Options) {}
	type scenarioCase struct {
		*scenario
		name, cause, subject string
	}
	var scenarios []scenarioCase
	group := func(rule string) func(s *scenario) {
		return func(s *scenario) {
			s.putJSON("/v1/groups/TYP-*", rule)
			s.addWorker(`"type":"TYP","prefetch":100`)
			s.addJobs(5, `,"groups":["TYP-1"]`)
		}
	}
	for i, c := range []struct {
		name, cause, subject string
		options              func(o *settings.Options)
		arrange              func(s *scenario)
	}{
		{"no worker", "no_worker", "TYP", nil, func(s *scenario) { s.addJobs(3, "") }},
		{"a worker of another type", "no_worker", "TYP", nil, func(s *scenario) { s.addWorker(`"type":"other-TYP"`); s.addJobs(3, "") }},
		{"patterns that do not fit", "no_worker", "TYP", ownBroker, func(s *scenario) { s.addWorker(`"types":["*"],"except":["TYP"]`); s.addJobs(1, "") }},
		{"paused", "paused", "TYP", nil, func(s *scenario) {
			s.putJSON("/v1/types/TYP/pause", "{}")
			s.addWorker(`"type":"TYP"`)
			s.addJobs(3, "")
			s.undo = append(s.undo, func() { s.call("POST", s.withType("/v1/types/TYP/resume"), "{}", 200) })
		}},
		{"concurrency of the type", "type_concurrency", "TYP", nil, func(s *scenario) {
			s.putJSON("/v1/types/TYP/limits", `{"concurrency":1}`)
			s.addWorker(`"type":"TYP","prefetch":10`)
			s.addJobs(3, "")
		}},
		{"rate of the type", "type_rate", "TYP", nil, func(s *scenario) {
			s.putJSON("/v1/types/TYP/limits", `{"rate":0.01}`)
			s.addWorker(`"type":"TYP","prefetch":10`)
			s.addJobs(3, "")
		}},
		{"a group that holds all", "group_limit", "TYP-1", nil, group(`{"concurrency":0}`)},
		{"concurrency of a group", "group_limit", "TYP-1", nil, group(`{"concurrency":2}`)},
		{"rate of a group", "group_limit", "TYP-1", nil, group(`{"rate":0.01}`)},
		{"a group behind many that are busier", "group_limit", "TYP-1", ownBroker, func(s *scenario) {
			s.addWorker(`"type":"busy","prefetch":1000`)
			busy := s.addSubmitter()
			for i := range 700 {
				busy.send(`{"action":"submit","id":"busy-%d","type":"busy","body":1,"groups":["busy-%d"]}`, i, i%70)
			}
			eventually(s.t, "they run", func() bool {
				n, ok := s.call("GET", "/v1/status", "", 200)["ledger"].(map[string]any)["running"].(float64)
				return ok && n == 700
			})
			group(`{"concurrency":0}`)(s)
		}},
		{"all at work", "all_busy", "TYP", nil, func(s *scenario) { s.addWorker(`"type":"TYP"`); s.addJobs(20, "") }},
		{"all at work for all types", "workers_away", "TYP", nil, func(s *scenario) {
			s.addWorker(`"types":["TYP*"],"prefetch":1`)
			s.addSubmitter().send(`{"action":"submit","id":"TYP","type":"TYP-other","body":1}`)
			s.awaitRun("TYP-other")
			s.addJobs(2, "")
		}},
		{"all left", "no_worker", "TYP", nil, func(s *scenario) {
			s.addWorker(`"type":"TYP"`).send(`{"action":"leave"}`)
			eventually(s.t, "it has left", func() bool { // otherwise this worker would get a job
				items := s.call("GET", s.withType("/v1/workers?type=TYP"), "", 200)["items"].([]any)
				return len(items) == 1 && items[0].(map[string]any)["left"] == true
			})
			s.addJobs(2, "")
		}},
		{"overdue", "overdue", "TYP", nil, func(s *scenario) {
			s.addWorker(`"type":"TYP"`)
			s.addJobs(1, `,"timeout_ms":100,"retries":0`)
		}},
		{"all fail", "failing", "TYP", nil, func(s *scenario) {
			s.addAnsweringWorker(`"type":"TYP"`, `{"action":"fail","reason":"no"}`)
			p := s.addSubmitter()
			s.repeat(func(i int) { _ = p.try(`{"action":"submit","id":"TYP-%d","type":"TYP","body":1,"retries":0}`, i) })
		}},
		{"more fail than are answered", "failing", "TYP", nil, func(s *scenario) {
			s.addAnsweringWorker(`"type":"TYP"`, `{"action":"fail","reason":"no"}`)
			s.addAnsweringWorker(`"type":"TYP"`, `{"action":"fail","reason":"neither"}`)
			s.addAnsweringWorker(`"type":"TYP"`, `{"action":"respond","body":1}`)
			p := s.addSubmitter()
			s.repeat(func(i int) {
				for k := range 3 {
					_ = p.try(`{"action":"submit","id":"TYP-%d-%d","type":"TYP","body":1,"retries":0}`, i, k)
				}
			})
		}},
		{"the same reason", "same_reason", "TYP", nil, func(s *scenario) {
			s.addAnsweringWorker(`"type":"TYP"`, `{"action":"fail","reason":"disk full","retry":false}`)
			p := s.addSubmitter()
			s.repeat(func(i int) { _ = p.try(`{"action":"submit","id":"TYP-%d","type":"TYP","body":1}`, i) })
		}},
		{"workers that are lost", "failing", "TYP", nil, func(s *scenario) {
			s.addJobs(1000, `,"retries":1000`)
			s.repeat(func(int) {
				c, err := net.Dial("tcp", s.srv.WorkerAddr().String())
				if err != nil {
					return
				}
				_, _ = c.Write(frame("%s", s.withType(`{"action":"join","type":"TYP"}`)))
				_, _ = readFrame(c)
				_, _ = readFrame(c)
				_ = c.Close()
			})
		}},
		{"deadlines", "expired", "TYP", nil, func(s *scenario) {
			p := s.addSubmitter()
			s.repeat(func(i int) {
				_ = p.try(`{"action":"submit","id":"TYP-%d","type":"TYP","body":1,"expires_ms":10}`, i)
			})
		}},
		{"given back", "given_back", "TYP", nil, func(s *scenario) {
			s.addSlowWorker(`"type":"TYP"`, `{"action":"release"}`, 5*time.Millisecond)
			s.addJobs(1, "")
		}},
		{"jobs", "limit max-jobs", "broker", func(o *settings.Options) { o.MaxJobs = 20 }, func(s *scenario) { s.addJobs(18, "") }},
		{"jobs of a type", "limit max-type-jobs", "TYP", func(o *settings.Options) { o.MaxTypeJobs = 20 }, func(s *scenario) { s.addJobs(19, "") }},
		{"jobs of a submitter", "limit max-submitter-jobs", "", func(o *settings.Options) { o.MaxSubmitterJobs = 20 }, func(s *scenario) { s.addJobs(19, "") }},
		{"bytes", "limit max-bytes", "broker", func(o *settings.Options) { o.MaxBytes = 1 << 20 }, func(s *scenario) {
			s.addSubmitter().send(`{"action":"submit","id":"TYP","type":"TYP","body":"%s"}`, strings.Repeat("x", 1000<<10))
		}},
		{"bytes of a type", "limit max-type-bytes", "TYP", func(o *settings.Options) { o.MaxTypeBytes = 1 << 20 }, func(s *scenario) {
			s.addSubmitter().send(`{"action":"submit","id":"TYP","type":"TYP","body":"%s"}`, strings.Repeat("x", 1000<<10))
		}},
		{"types", "limit max-types", "broker", func(o *settings.Options) { o.MaxTypes = 10 }, func(s *scenario) {
			p := s.addSubmitter()
			for i := range 9 {
				p.send(`{"action":"submit","id":"TYP-%d","type":"TYP%d","body":1}`, i, i)
			}
		}},
		{"groups", "limit max-groups", "broker", func(o *settings.Options) { o.MaxGroups = 10 }, func(s *scenario) {
			p := s.addSubmitter()
			for i := range 10 {
				p.send(`{"action":"submit","id":"TYP-%d","type":"TYP","body":1,"groups":["TYP-%d"]}`, i, i)
			}
		}},
		{"connections", "limit max-conns", "broker", func(o *settings.Options) { o.MaxConns = 10 }, func(s *scenario) {
			for range 9 {
				s.addSubmitter()
			}
		}},
		{"too many connections", "turned_away", "broker", func(o *settings.Options) { o.MaxConns = 2 }, func(s *scenario) {
			s.addSubmitter()
			s.addSubmitter()
			s.repeat(func(int) {
				if c, err := net.Dial("tcp", s.srv.SubmitAddr().String()); err == nil {
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				}
			})
		}},
		{"failed jobs kept", "limit dead-letters", "TYP", func(o *settings.Options) { o.DeadLetters = 10 }, func(s *scenario) {
			s.addAnsweringWorker(`"type":"TYP"`, `{"action":"fail","retry":false}`)
			s.addJobs(10, "")
			s.undo = append(s.undo, func() { s.call("POST", s.withType("/v1/dead/TYP/discard"), `{"all":true}`, 200) })
		}},
		{"bytes of failed jobs kept", "limit dead-bytes", "broker", func(o *settings.Options) { o.DeadBytes = 1 << 20 }, func(s *scenario) {
			s.addAnsweringWorker(`"type":"TYP"`, `{"action":"fail","retry":false}`)
			s.addSubmitter().send(`{"action":"submit","id":"TYP","type":"TYP","body":"%s"}`, strings.Repeat("x", 1000<<10))
			s.undo = append(s.undo, func() { s.call("POST", s.withType("/v1/dead/TYP/discard"), `{"all":true}`, 200) })
		}},
		{"memory", "limit max-memory", "broker", func(o *settings.Options) { o.MaxMemory = 8 << 20 }, func(s *scenario) {
			p := s.addSubmitter()
			for i := range 16 {
				p.send(`{"action":"submit","id":"TYP-%d","type":"TYP","body":"%s"}`, i, strings.Repeat("x", 500<<10))
			}
		}},
		{"frames in parts", "limit max-inbound", "broker", func(o *settings.Options) { o.MaxFrame, o.MaxInbound = 1<<20, 1<<20 }, func(s *scenario) {
			bigFrame := frame(`{"action":"submit","id":"big","type":"t","body":"%s"}`, strings.Repeat("x", 1020<<10))
			p := s.addSubmitter()
			_, _ = p.Write(bigFrame[:len(bigFrame)-1])
		}},
		{"refusals", "refused", "broker", func(o *settings.Options) { o.MaxJobs = 2 }, func(s *scenario) {
			p := s.addSubmitter()
			s.repeat(func(i int) { _ = p.try(`{"action":"submit","id":"TYP-%d","type":"TYP","body":1}`, i) })
		}},
		{"longer than usual", "overlong", "TYP", nil, func(s *scenario) {
			s.addSlowWorker(`"type":"TYP"`, `{"action":"respond","body":1}`, 5*time.Millisecond)
			s.keepQueued(20, "TYP", `,"priority":1`)
			s.keepQueued(1, "TYP", "")
		}},
		// This scenario is near the end, so that it lasts less than a minute: after a minute the system
		// closes a connection from which nothing is read.
		{"a submitter that does not read", "unread", "TYP", func(o *settings.Options) { o.MaxOutbound = 1 << 30 }, func(s *scenario) {
			s.addAnsweringWorker(`"type":"TYP"`, `{"action":"respond","body":"`+strings.Repeat("x", 1<<20)+`"}`)
			p := s.dialUnread(s.srv.SubmitAddr())
			for i := range 8 {
				p.send(`{"action":"submit","id":"TYP-%d","type":"TYP","body":1}`, i)
			}
		}},
		{"a worker that does not read", "unread", "TYP", func(o *settings.Options) { o.MaxOutbound = 1 << 30 }, func(s *scenario) {
			s.dialUnread(s.srv.WorkerAddr()).send(`{"action":"join","type":"TYP","prefetch":8}`)
			p := s.addSubmitter()
			for i := range 8 {
				p.send(`{"action":"submit","id":"TYP-%d","type":"TYP","body":"%s"}`, i, strings.Repeat("x", 1<<20))
			}
		}},
		{"draining", "draining", "broker", ownBroker, func(s *scenario) {
			s.addWorker(`"type":"TYP"`)
			s.addJobs(1, "")
			s.awaitRun("TYP")
			s.putJSON("/v1/drain", "{}")
		}},
	} {
		usedWorld := sharedWorld
		if c.options != nil {
			usedWorld = start(t, c.options)
		}
		s := &scenario{world: usedWorld, typ: fmt.Sprintf("t%d", i), startedAt: time.Now()}
		c.arrange(s)
		scenarios = append(scenarios, scenarioCase{s, c.name, c.cause, s.withType(c.subject)})
	}
	// await waits until done is true of every scenario, and logs how long that took.
	await := func(name string, done func(c *scenarioCase) bool) {
		pendingScenarios := scenarios
		defer func() {
			for _, c := range pendingScenarios {
				t.Logf("%s: not %s", c.name, name)
			}
		}()
		eventually(t, "all are "+name, func() bool {
			var not []scenarioCase
			for _, c := range pendingScenarios {
				if elapsed := time.Since(c.startedAt); !done(&c) {
					not = append(not, c)
				} else {
					t.Logf("%s: %s after %v", c.name, name, elapsed.Round(10*time.Millisecond))
				}
			}
			pendingScenarios = not
			return len(pendingScenarios) == 0
		})
	}
	await("found", func(c *scenarioCase) bool {
		f := c.finding(c.cause, c.subject)
		if f == nil {
			return false
		}
		if _, err := time.Parse(time.RFC3339, f.Since); err != nil || f.Advice == "" || (f.Kind == "broker") != (f.Subject == "broker") {
			t.Errorf("%s: %+v: %v", c.name, f, err)
		}
		t.Logf("%s, %s %s: %s; %s", f.Severity, f.Kind, f.Subject, f.Finding, f.Advice)
		return true
	})
	for i := range scenarios {
		scenarios[i].startedAt = time.Now()
		for _, undo := range slices.Backward(scenarios[i].undo) {
			undo()
		}
	}
	scenarios = slices.DeleteFunc(scenarios, func(c scenarioCase) bool { return c.cause == "draining" }) // for good
	await("gone", func(c *scenarioCase) bool { return c.finding(c.cause, c.subject) == nil })
}

// TestFailuresAreReportedBetweenRuns: a type whose runs all fail is still reported between two failures, with
// their reason.
func TestFailuresAreReportedBetweenRuns(t *testing.T) {
	t.Parallel()
	s := &scenario{world: start(t, nil), typ: "t"}
	s.addAnsweringWorker(`"type":"TYP"`, `{"action":"fail","reason":"disk full","retry":false}`)
	s.addJobs(3, "")
	isReported := func() bool { return s.finding("failing", "t") != nil && s.finding("same_reason", "t") != nil }
	eventually(t, "it is told", isReported)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if !isReported() {
			t.Fatalf("told no more: %+v", s.findings())
		}
	}
}

// TestHealthyBrokerHasNoFindings: a busy, healthy broker has no findings. On an overloaded machine, findings
// about short conditions are ignored, unless the test's duration is set by a flag.
func TestHealthyBrokerHasNoFindings(t *testing.T) {
	t.Parallel()
	s := &scenario{world: start(t, nil)}
	s.putJSON("/v1/types/t1", `{"fair":true}`)
	s.putJSON("/v1/groups/*", `{"concurrency":100}`)
	for i := range 16 {
		s.addAnsweringWorker(fmt.Sprintf(`"types":["t%d","u*"],"headers":true`, i%4), `{"action":"respond","body":1}`)
	}
	for i := range 4 {
		s.keepQueued(8, fmt.Sprintf("t%d", i), `,"groups":["acme"]`)
	}
	strict := false
	flag.Visit(func(f *flag.Flag) { strict = strict || f.Name == "healthy" })
	for end := time.Now().Add(*healthyFor); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, f := range s.findings().Items {
			since, err := time.Parse(time.RFC3339, f.Since)
			if lasts := time.Since(since); err != nil || strict || lasts > 10*time.Second {
				t.Fatalf("after %v: %+v", lasts, f)
			}
			t.Logf("for a moment: %+v", f)
		}
	}
	if n := s.call("GET", "/v1/status", "", 200)["ledger"].(map[string]any)["answered"].(float64); n < 100 {
		t.Errorf("only %v jobs were answered", n)
	}
}

// TestPausedTypeIsReportedInTime: a paused type with a job is reported two seconds later, even if
// requests in the meantime kept the broker from taking snapshots on its own. Snapshots are rarer
// while the machine is busy, so the best of three tries counts.
func TestPausedTypeIsReportedInTime(t *testing.T) {
	t.Parallel()
	for range 3 {
		var wg sync.WaitGroup
		var late atomic.Int32
		for i := range 8 {
			s := &scenario{world: start(t, nil), typ: "t"}
			wg.Go(func() {
				s.putJSON("/v1/types/TYP/pause", "{}")
				time.Sleep(time.Duration(i) * 125 * time.Millisecond)
				s.findings()
				s.addJobs(1, "")
				startedAt := time.Now()
				time.Sleep(600 * time.Millisecond)
				s.findings()
				time.Sleep(time.Until(startedAt.Add(2 * time.Second)))
				if s.finding("paused", "t") == nil {
					late.Add(1)
					t.Logf("number %d: not told after %v", i, time.Since(startedAt))
				}
			})
		}
		if wg.Wait(); late.Load() == 0 {
			return
		}
	}
	t.Error("in none of three tries were all told in time")
}

// TestLostWorkersAreReported: a job that lost several workers is reported by its id, and not among
// its type's failed jobs.
func TestLostWorkersAreReported(t *testing.T) {
	t.Parallel()
	s := &scenario{world: start(t, nil), typ: "t"}
	s.addSubmitter().send(`{"action":"submit","id":"killer","type":"TYP","body":1,"retries":100}`)
	for range 12 {
		c := s.dial(s.srv.WorkerAddr(), false).send(`{"action":"join","type":"TYP"}`)
		for text := ""; !strings.Contains(text, `"job"`); {
			var err error
			if text, err = readFrame(c); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.Close()
	}
	s.dial(s.srv.WorkerAddr(), true).send(`{"action":"join","type":"TYP"}`)
	eventually(t, "it is told", func() bool {
		f := s.finding("workers_lost", "t")
		return f != nil && strings.HasPrefix(f.Finding, `12 workers were lost while they ran its job "killer"`)
	})
	if f := s.finding("failing", "t"); f != nil {
		t.Errorf("told, too: %+v", f)
	}
}

// TestChangeEndsFindings: after an operator's change, the state before it is not
// reported.
func TestChangeEndsFindings(t *testing.T) {
	t.Parallel()
	s := &scenario{world: start(t, nil), typ: "t"}
	s.putJSON("/v1/types/TYP/limits", `{"concurrency":1}`)
	s.addWorker(`"type":"TYP"`)
	s.addWorker(`"type":"TYP"`)
	s.addJobs(3, "")
	eventually(t, "it is told", func() bool { return s.finding("type_concurrency", "t") != nil })
	s.findings()
	s.putJSON("/v1/types/TYP/limits", `{}`)
	if f := s.finding("type_concurrency", "t"); f != nil {
		t.Errorf("still told: %+v", f)
	}
}
