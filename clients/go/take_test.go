package gloom_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	gloom "gloom/clients/go"
)

// taker is a worker that sends its runs to channels.
type taker struct {
	*gloom.Worker
	runs     chan *gloom.Run
	unwanted chan error
}

func newTaker(v gloom.Serving) *taker {
	k := &taker{runs: make(chan *gloom.Run, 10_000), unwanted: make(chan error, 10_000)}
	k.Worker = &gloom.Worker{
		Types: v.Types, Except: v.Except, Prefetch: v.Prefetch,
		Take:       func(r *gloom.Run) { k.runs <- r },
		OnUnwanted: func(_ *gloom.Run, cause error) { k.unwanted <- cause },
	}
	return k
}

func (k *taker) start(t testing.TB, addr string, opts ...gloom.Option) {
	t.Helper()
	k.Options = append([]gloom.Option{gloom.Addrs(addr), quickBackoff}, opts...)
	if err := k.Start(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopped, cancel := context.WithCancel(context.Background())
		cancel()
		k.Stop(stopped)
		receive(t, k.Done(), "the worker's end")
	})
}

// TestRunsAreAnsweredInAnyOrder: runs are answered from another goroutine, in any order and in
// every way.
func TestRunsAreAnsweredInAnyOrder(t *testing.T) {
	b := startBroker(t)
	k := newTaker(gloom.Serving{Types: []string{"a", "b*"}, Prefetch: 100})
	k.start(t, b.WorkerAddr().String())
	s := b.newSubmitter()
	var ends []*gloom.Pending
	for n := range 100 {
		p, err := s.Submit(waitContext(t), gloom.Job{ID: fmt.Sprint(n), Type: []string{"a", "bc"}[n%2], Retries: 1})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, p)
	}
	var first []*gloom.Run
	for range 100 {
		first = append(first, receive(t, k.runs, "a run"))
	}
	var wg sync.WaitGroup
	for i := len(first) - 1; i >= 0; i-- {
		r := first[i]
		wg.Go(func() {
			switch i % 5 {
			case 0:
				r.Answer(map[string]string{"id": r.Job().ID}, nil)
			case 1:
				r.Answer(nil, gloom.Fatal(errors.New("no")))
			case 2:
				r.Answer(nil, errors.New("again"))
			case 3:
				r.Answer(nil, gloom.Release(0))
			case 4:
				r.Answer(1, nil)
				r.Answer(2, nil) // does nothing
			}
		})
	}
	for range 40 {
		r := receive(t, k.runs, "a second run")
		r.Answer("second", nil)
	}
	wg.Wait()
	endCounts := map[string]int{}
	for _, p := range ends {
		res, err := p.Result(waitContext(t))
		switch {
		case errors.Is(err, gloom.ErrJobFailed):
			endCounts["failed"]++
		case err != nil:
			t.Error(err)
		case string(res.Body) == `{"id":"`+res.ID+`"}`:
			endCounts["own"]++
		default:
			endCounts[string(res.Body)]++
		}
	}
	if fmt.Sprint(endCounts) != `map["second":40 1:20 failed:20 own:20]` {
		t.Error(endCounts)
	}
}

// TestServedTypesCanChange: the types that a worker serves can be changed at any time, even to
// none.
func TestServedTypesCanChange(t *testing.T) {
	b := startBroker(t)
	k := newTaker(gloom.Serving{Types: []string{"*"}, Prefetch: 0})
	k.start(t, b.WorkerAddr().String())
	s := b.newSubmitter()
	submit := func(typ string) {
		t.Helper()
		p, err := s.Submit(waitContext(t), gloom.Job{Type: typ, Detach: true})
		if err == nil {
			err = p.Ack(waitContext(t))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	serve := func(v gloom.Serving) {
		t.Helper()
		if err := k.Serve(v); err != nil {
			t.Fatal(err)
		}
	}
	submit("x")
	submit("y")
	submit("x")
	serve(gloom.Serving{Types: []string{"*"}, Except: []string{"x"}, Prefetch: 5})
	r := receive(t, k.runs, "a run")
	if r.Job().Type != "y" {
		t.Errorf("got a job of type %s", r.Job().Type)
	}
	serve(gloom.Serving{Types: []string{"*"}, Prefetch: 2}) // one more job at a time
	if x := receive(t, k.runs, "a run"); x.Job().Type != "x" {
		t.Errorf("got a job of type %s", x.Job().Type)
	}
	r.Answer(nil, nil)
	serve(gloom.Serving{Types: []string{"*"}})
	receive(t, k.runs, "a run")
	for _, serving := range []gloom.Serving{{}, {Types: []string{"*"}, Prefetch: -1}, {Types: []string{"\xff"}, Prefetch: 1}} {
		if k.Serve(serving) == nil {
			t.Errorf("%v was taken", serving)
		}
	}
}

// TestServeSendsExpectedFrames checks the frames of a worker that changes its types, and of a
// worker that stops while it serves no types.
func TestServeSendsExpectedFrames(t *testing.T) {
	f := newFakeBroker(t)
	k := newTaker(gloom.Serving{Types: []string{"a"}, Prefetch: 0})
	k.Options = []gloom.Option{gloom.Addrs(f.addr()), quickBackoff}
	runErr := make(chan error, 1)
	go func() { runErr <- k.Start(context.Background()) }()
	broker := f.accept()
	broker.expect(`{"action":"leave"}`)
	broker.send(`{"ok":true}`)
	if err := receive(t, runErr, "the start"); err != nil {
		t.Fatal(err)
	}
	k.Serve(gloom.Serving{Types: []string{"a", "b"}, Except: []string{"c"}, Prefetch: 3})
	broker.expect(`{"action":"join","types":["a","b"],"except":["c"],"prefetch":3,"cancel":true}`)
	broker.send(`{"ok":true}`, `{"action":"job","id":"1","type":"a","body":1}`, `{"action":"job","id":"2","type":"a","body":1}`,
		`{"action":"cancel","id":"1"}`)
	one, two := receive(t, k.runs, "run 1"), receive(t, k.runs, "run 2")
	if err := receive(t, k.unwanted, "the cancel"); !errors.Is(err, gloom.ErrCancelled) {
		t.Error(err)
	}
	k.Serve(gloom.Serving{Types: []string{"a"}})
	broker.expect(`{"action":"leave"}`)
	one.Answer(nil, nil)
	broker.expect(`{"action":"respond","id":"1","body":null}`)
	broker.send(`{"ok":true}`, `{"ok":true}`)
	stopErr := make(chan error, 1)
	go func() { stopErr <- k.Stop(waitContext(t)) }()
	broker.expect(`{"action":"leave"}`)
	broker.send(`{"ok":true}`)
	two.Answer(nil, gloom.RetryAfter(errors.New("later"), 0))
	broker.expect(`{"action":"fail","id":"2","reason":"later","delay_ms":0}`)
	broker.send(`{"ok":true}`)
	if err := receive(t, stopErr, "the stop"); err != nil {
		t.Error(err)
	}
}

// TestLostRunsAreCancelled: runs that are lost with their connection are cancelled, and the next
// connection serves the last types that were set.
func TestLostRunsAreCancelled(t *testing.T) {
	f := newFakeBroker(t)
	k := newTaker(gloom.Serving{Types: []string{"a"}, Prefetch: 1})
	k.Options = []gloom.Option{gloom.Addrs(f.addr()), quickBackoff}
	go k.Start(context.Background())
	t.Cleanup(func() {
		cancelledCtx, cancel := context.WithCancel(context.Background())
		cancel()
		k.Stop(cancelledCtx)
		receive(t, k.Done(), "the worker's end")
	})
	broker := f.accept()
	broker.expect(`{"action":"join","types":["a"],"prefetch":1,"cancel":true}`)
	broker.send(`{"ok":true}`, `{"action":"job","id":"1","type":"a","body":1}`)
	r := receive(t, k.runs, "a run")
	k.Serve(gloom.Serving{Types: []string{"b"}, Prefetch: 7})
	broker.expect(`{"action":"join","types":["b"],"prefetch":7,"cancel":true}`)
	broker.nc.Close()
	if err := receive(t, k.unwanted, "the loss"); !errors.Is(err, gloom.ErrLost) {
		t.Error(err)
	}
	r.Answer(1, nil)
	f.accept().expect(`{"action":"join","types":["b"],"prefetch":7,"cancel":true}`)
}
