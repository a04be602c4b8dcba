// Package live tests the clients of all languages against a real broker, each with the
// same table of scenarios.
package live

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/clients/live/agent"
)

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

var languages []agent.Language

func TestMain(m *testing.M) {
	scratch, err := os.MkdirTemp("", "gloom-live-")
	if err == nil {
		languages, err = agent.Languages("..", scratch)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// TestEveryClientPassesScenarios runs each scenario with each client.
func TestEveryClientPassesScenarios(t *testing.T) {
	throwaway.TrackSources()
	for _, l := range languages {
		t.Run(l.Name, func(t *testing.T) {
			for _, s := range scenarios {
				t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) { s.run(&world{T: t, language: l}) })
			}
		})
	}
}

// world is the environment of one scenario, which can start brokers and programs in it.
type world struct {
	*testing.T
	language agent.Language
	tags     atomic.Int64
}

// broker starts a broker in this process.
func (w *world) broker(change ...func(*settings.Options)) *server.Server {
	w.Helper()
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
	for _, c := range change {
		c(&opt)
	}
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { srv.Close() })
	return srv
}

// submitter is a program that submits jobs, with its reports.
type submitter struct {
	*agent.Agent
	w      *world
	events map[string][]agent.Event
}

func (w *world) start(role string, options agent.Options) *agent.Agent {
	w.Helper()
	if options.Backoff == [2]int{} {
		options.Backoff = [2]int{1, 50}
	}
	said := &said{}
	a, err := w.language.Start(role, options, said)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		a.Kill()
		a.Wait(patience)
		if w.Failed() {
			w.Logf("%s said:\n%s", role, said.String())
		}
	})
	return a
}

// submitter starts a program that submits.
func (w *world) submitter(options agent.Options) *submitter {
	w.Helper()
	return &submitter{Agent: w.start("submitter", options), w: w, events: map[string][]agent.Event{}}
}

// do begins a command and returns its tag.
func (s *submitter) do(c agent.Command) string {
	s.w.Helper()
	c.Tag = fmt.Sprint(s.w.tags.Add(1))
	if c.Do == "submit" && c.Body == "" {
		c.Body = "null"
	}
	if err := s.Tell(c); err != nil {
		s.w.Fatal(err)
	}
	return c.Tag
}

// next waits for the next report under a tag.
func (s *submitter) next(tag string) agent.Event {
	s.w.Helper()
	timeout := time.After(patience)
	for len(s.events[tag]) == 0 {
		select {
		case e, ok := <-s.Events:
			if !ok {
				s.w.Fatal("the program ended")
			}
			s.events[e.Tag] = append(s.events[e.Tag], e)
		case <-timeout:
			s.w.Fatalf("nothing was reported about command %s within %v", tag, patience)
		}
	}
	e := s.events[tag][0]
	s.events[tag] = s.events[tag][1:]
	return e
}

// awaitAck waits until the broker has a job.
func (s *submitter) awaitAck(tag string) {
	s.w.Helper()
	if e := s.next(tag); !e.Acked {
		s.w.Fatalf("told %s instead of the ack", show(e))
	}
}

// awaitBegun waits until a job has reported progress, which a worker does as it begins.
func (s *submitter) awaitBegun(tag string) {
	s.w.Helper()
	for e := s.next(tag); e.Progress == nil; e = s.next(tag) {
		if !e.Acked {
			s.w.Fatalf("told %s instead of progress", show(e))
		}
	}
}

// end waits for a job's end, past acks and progress.
func (s *submitter) end(tag string) agent.Event {
	s.w.Helper()
	for {
		if e := s.next(tag); !e.Acked && e.Progress == nil {
			return e
		}
	}
}

// wantAnswer demands that a job ends with this answer.
func (s *submitter) wantAnswer(tag, want string) {
	s.w.Helper()
	if e := s.end(tag); e.Result == nil || *e.Result != want {
		s.w.Errorf("job ended with %s, want the answer %.200s", show(e), want)
	}
}

// submitUntilAnswered submits a job until it is answered. A client may report that a connection was
// lost before it could send the job, which then never ran.
func (s *submitter) submitUntilAnswered(c agent.Command, want string) {
	s.w.Helper()
	for {
		e := s.end(s.do(c))
		if e.Error != nil && e.Error.Kind == "lost" && !e.Error.Sent {
			continue
		}
		if e.Result == nil || *e.Result != want {
			s.w.Errorf("job ended with %s, want the answer %.200s", show(e), want)
		}
		return
	}
}

// wantFailure demands that a job or command ends with this kind of error, and code.
func (s *submitter) wantFailure(tag, kind, code string) agent.Failure {
	s.w.Helper()
	e := s.end(tag)
	if e.Error == nil || e.Error.Kind != kind || e.Error.Code != code {
		s.w.Errorf("ended with %s, want %s %s", show(e), kind, code)
		return agent.Failure{}
	}
	return *e.Error
}

// wantDone demands that a command ends without an error.
func (s *submitter) wantDone(tag string) {
	s.w.Helper()
	if e := s.end(tag); !e.OK {
		s.w.Fatalf("ended with %s, want ok", show(e))
	}
}

func show(e agent.Event) string {
	switch {
	case e.Error != nil:
		return fmt.Sprintf("error %+v", *e.Error)
	case e.Result != nil:
		return fmt.Sprintf("result %.200s", *e.Result)
	case e.Progress != nil:
		return fmt.Sprintf("progress %.200s", *e.Progress)
	}
	return fmt.Sprintf("%+v", e)
}

// worker starts a program that works, and waits until it has joined.
func (w *world) worker(options agent.Options) *agent.Agent {
	w.Helper()
	a := w.start("worker", options)
	w.awaitEvent(a, "joined", func(e agent.Event) bool { return e.Joined })
	return a
}

// awaitEvent waits until a worker's program reports an event for which matches returns true.
func (w *world) awaitEvent(a *agent.Agent, event string, matches func(agent.Event) bool) {
	w.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-a.Events:
			if !ok {
				w.Fatalf("the worker ended without telling %s: %v", event, a.Wait(patience))
			}
			if matches(e) {
				return
			}
		case <-timeout:
			w.Fatalf("the worker did not tell %s within %v", event, patience)
		}
	}
}

// within returns a context that ends after patience.
func (w *world) within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// jobs returns a submitter of the Go client, for scenarios about workers.
func (w *world) jobs(srv *server.Server, options ...gloom.Option) *gloom.Submitter {
	w.Helper()
	options = append([]gloom.Option{gloom.Addrs(srv.SubmitAddr().String())}, options...)
	jobs, err := gloom.Dial(w.within(), options...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { jobs.Close() })
	return jobs
}

// serve starts a worker of the Go client, for scenarios about submitters.
func (w *world) serve(srv *server.Server, worker *gloom.Worker) *gloom.Worker {
	w.Helper()
	worker.Options = append(worker.Options, gloom.Addrs(srv.WorkerAddr().String()))
	if err := worker.Start(w.within()); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { worker.Stop(w.within()) })
	return worker
}

func echoes(_ context.Context, job *gloom.Job) (any, error) { return job.Body, nil }

func addrs(srvs ...*server.Server) agent.Options {
	var o agent.Options
	for _, s := range srvs {
		o.Addrs = append(o.Addrs, s.SubmitAddr().String())
	}
	return o
}

func workers(types ...string) func(srvs ...*server.Server) agent.Options {
	return func(srvs ...*server.Server) agent.Options {
		o := agent.Options{Types: types}
		for _, s := range srvs {
			o.Addrs = append(o.Addrs, s.WorkerAddr().String())
		}
		return o
	}
}
