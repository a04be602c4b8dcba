package live

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/clients/live/agent"
)

// until waits for a condition.
func (w *world) until(event string, isReached func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !isReached(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %v: %s", patience, event)
		}
	}
}

func cutSubmitter(w *world) {
	srv := w.broker()
	w.serve(srv, &gloom.Worker{Type: "echo", Handler: echoes})
	p := newProxy(w, srv.SubmitAddr().String())
	s := w.submitter(agent.Options{Addrs: []string{p.addr()}})
	tag := s.do(agent.Command{Do: "submit", Type: "nobody"})
	s.awaitAck(tag)
	p.cut()
	if failure := s.wantFailure(tag, "lost", ""); !failure.Acked || !failure.Sent {
		w.Errorf("told %+v of an acked job", failure)
	}
	s.submitUntilAnswered(agent.Command{Do: "submit", Type: "echo", Body: `1`}, `1`)
}

func cutKept(w *world) {
	srv := w.broker()
	p := newProxy(w, srv.SubmitAddr().String())
	s := w.submitter(agent.Options{Addrs: []string{p.addr()}})
	var tags []string
	for i := range 20 {
		tag := s.do(agent.Command{Do: "submit", Type: "echo", Body: fmt.Sprint(i), Keep: 60_000})
		s.awaitAck(tag)
		tags = append(tags, tag)
	}
	p.cut()
	w.serve(srv, &gloom.Worker{Type: "echo", Handler: echoes})
	for i, tag := range tags {
		s.wantAnswer(tag, fmt.Sprint(i))
	}
	if p.connections() < 2 {
		w.Error("nothing was cut")
	}
}

// cuts is the largest number of bytes after which a connection is cut, in each direction. A hello,
// a job and its answer together have fewer.
const cuts = 400

// cuttingProxy returns a proxy that cuts each connection one byte later than the one before: first
// among the bytes to the broker, then among those from it. done reports whether every place was
// tried.
func cuttingProxy(w *world, to string) (p *proxy, done func() bool) {
	step := int64(1)
	if testing.Short() {
		step = 7
	}
	var n atomic.Int64
	p = newProxy(w, to)
	p.limit(func() (int64, int64) {
		switch at := n.Add(step); {
		case at <= cuts:
			return at, -1
		case at <= 2*cuts:
			return -1, at - cuts
		}
		return -1, -1
	})
	return p, func() bool { return n.Load() >= 2*cuts }
}

func cutSubmitterAtEveryByte(w *world) {
	srv := w.broker()
	w.serve(srv, &gloom.Worker{Type: "echo", Handler: echoes, Concurrency: 4})
	p, done := cuttingProxy(w, srv.SubmitAddr().String())
	s := w.submitter(agent.Options{Addrs: []string{p.addr()}, Backoff: [2]int{1, 2}})
	for i := 0; !done(); i++ {
		body := fmt.Sprintf(`"job %d"`, i)
		s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: body, Keep: 60_000, AtLeastOnce: true}), body)
		if i > 4*cuts {
			w.Fatalf("%d connections in %d jobs", p.connections(), i)
		}
	}
}

func cutWorkerAtEveryByte(w *world) {
	srv := w.broker()
	p, done := cuttingProxy(w, srv.WorkerAddr().String())
	w.start("worker", agent.Options{Addrs: []string{p.addr()}, Types: []string{"echo"}, Backoff: [2]int{1, 2}})
	jobs := w.jobs(srv)
	for i := 0; !done(); i++ {
		body := fmt.Sprintf(`"job %d"`, i)
		r, err := jobs.Do(w.within(), gloom.Job{Type: "echo", Body: json.RawMessage(body), Retries: 1000})
		if err != nil || string(r.Body) != body {
			w.Fatalf("job %d: %s, %v", i, r.Body, err)
		}
		if i > 4*cuts {
			w.Fatalf("%d connections in %d jobs", p.connections(), i)
		}
	}
}

func brokerRestarts(w *world) {
	srv := w.broker()
	submitAddr, workerAddr := srv.SubmitAddr().String(), srv.WorkerAddr().String()
	w.worker(workers("echo")(srv))
	s := w.submitter(addrs(srv))
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: `1`}), `1`)
	tag := s.do(agent.Command{Do: "submit", Type: "nobody"})
	s.awaitAck(tag)
	if err := srv.Close(); err != nil {
		w.Fatal(err)
	}
	if e := s.end(tag); e.Error == nil || e.Error.Kind != "lost" && e.Error.Code != "draining" {
		w.Errorf("told %s", show(e))
	}
	w.broker(func(o *settings.Options) { o.SubmitAddr, o.WorkerAddr = submitAddr, workerAddr })
	s.submitUntilAnswered(agent.Command{Do: "submit", Type: "echo", Body: `2`}, `2`)
}

func brokerForgotKeptJob(w *world) {
	oldBroker, srv := w.broker(), w.broker()
	p := newProxy(w, oldBroker.SubmitAddr().String())
	s := w.submitter(agent.Options{Addrs: []string{p.addr()}})
	onceTag := s.do(agent.Command{Do: "submit", ID: "once", Type: "echo", Body: `1`, Keep: 60_000})
	s.awaitAck(onceTag)
	repeatableTag := s.do(agent.Command{Do: "submit", ID: "again", Type: "echo", Body: `2`, Keep: 60_000, AtLeastOnce: true})
	s.awaitAck(repeatableTag)
	p.redirect(srv.SubmitAddr().String())
	p.cut()
	if failure := s.wantFailure(onceTag, "lost", ""); !failure.Acked {
		w.Errorf("told %+v of an acked job", failure)
	}
	w.serve(srv, &gloom.Worker{Type: "echo", Handler: echoes})
	s.wantAnswer(repeatableTag, `2`)
}

func secondBroker(w *world) {
	first, second := w.broker(), w.broker()
	for _, srv := range []*server.Server{first, second} {
		w.serve(srv, &gloom.Worker{Type: "echo", Handler: echoes})
	}
	s := w.submitter(addrs(first, second))
	for i := range 3 {
		s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: fmt.Sprint(i)}), fmt.Sprint(i))
		if i == 0 {
			first.Close()
			w.until("the second broker is found", func() bool {
				e := s.end(s.do(agent.Command{Do: "submit", Type: "echo", Body: `0`}))
				return e.Result != nil
			})
		}
	}
}

func brokerDrains(w *world) {
	first, second := w.broker(), w.broker()
	begun, finish := make(chan struct{}), make(chan struct{})
	w.serve(first, &gloom.Worker{Type: "slow", Handler: func(context.Context, *gloom.Job) (any, error) {
		close(begun)
		<-finish
		return "finished", nil
	}})
	w.serve(second, &gloom.Worker{Type: "slow", Handler: func(context.Context, *gloom.Job) (any, error) { return "second", nil }})
	s := w.submitter(addrs(first, second))
	running := s.do(agent.Command{Do: "submit", Type: "slow"})
	<-begun
	first.Drain()
	// The next job is refused, so the client turns to the second broker.
	w.until("the second broker is found", func() bool {
		e := s.end(s.do(agent.Command{Do: "submit", Type: "slow"}))
		if e.Error != nil && e.Error.Code != "draining" {
			w.Fatalf("told %s", show(e))
		}
		return e.Result != nil && *e.Result == `"second"`
	})
	close(finish)
	s.wantAnswer(running, `"finished"`)
}

func twoBrokers(w *world) {
	first, second := w.broker(), w.broker()
	work := workers("echo")(first, second)
	a := w.worker(work)
	w.awaitEvent(a, "that it joined the second broker", func(e agent.Event) bool { return e.Joined })
	for _, srv := range []*server.Server{first, second} {
		if r, err := w.jobs(srv).Do(w.within(), gloom.Job{Type: "echo", Body: json.RawMessage(`1`)}); err != nil || string(r.Body) != `1` {
			w.Errorf("%s, %v", r.Body, err)
		}
	}
}

func workerDies(w *world) {
	srv := w.broker()
	mortalWorker := w.worker(workers("echo")(srv))
	s := w.submitter(addrs(srv))
	oneRetry := 1
	tag := s.do(agent.Command{Do: "submit", Type: "echo", Body: `{"exit":true}`, Retries: &oneRetry})
	s.awaitAck(tag)
	mortalWorker.Wait(patience)
	w.serve(srv, &gloom.Worker{Type: "echo", Handler: echoes})
	s.wantAnswer(tag, `{"exit":true}`)
	// Without a retry, the submitter is told that the lost worker may have done the job.
	w.worker(workers("other")(srv))
	noRetries := 0
	if failure := s.wantFailure(s.do(agent.Command{Do: "submit", Type: "other", Body: `{"exit":true}`, Retries: &noRetries}), "job", "job_failed"); !failure.Lost {
		w.Errorf("told %+v of a job that was lost", failure)
	}
}

func workerStops(w *world) {
	srv := w.broker()
	work := workers("echo")(srv)
	work.Concurrency = 2
	a := w.worker(work)
	s := w.submitter(addrs(srv))
	noRetries := 0
	const begins = `{"progress":1,"sleep":300}`
	var tags []string
	for range 4 {
		tag := s.do(agent.Command{Do: "submit", Type: "echo", Body: begins, Progress: true, Retries: &noRetries})
		tags = append(tags, tag)
	}
	for _, tag := range tags[:2] { // a job that has not begun may be given back
		s.awaitBegun(tag)
	}
	a.Stop(syscall.SIGTERM)
	for _, tag := range tags[:2] {
		s.wantAnswer(tag, begins)
	}
	w.awaitEvent(a, "that it left", func(e agent.Event) bool { return e.Left })
	if err := a.Wait(patience); err != nil {
		w.Errorf("the worker ended with %v", err)
	}
	// The jobs that the worker had not begun have not used up a run.
	w.serve(srv, &gloom.Worker{Type: "echo", Handler: echoes})
	for _, tag := range tags[2:] {
		s.wantAnswer(tag, begins)
	}
}

func unixSockets(w *world) {
	folder := w.TempDir()
	submit, work := "unix:"+filepath.Join(folder, "s"), "unix:"+filepath.Join(folder, "w")
	w.broker(func(o *settings.Options) { o.SubmitAddr, o.WorkerAddr = submit, work })
	w.worker(agent.Options{Addrs: []string{work}, Types: []string{"echo"}})
	s := w.submitter(agent.Options{Addrs: []string{submit}})
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: `1`}), `1`)
}
