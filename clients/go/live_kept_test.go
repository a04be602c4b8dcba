package gloom_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"gloom/broker/hub"
	gloom "gloom/clients/go"
)

func TestLiveWorkerServesSeveralTypes(t *testing.T) {
	b := startBroker(t)
	s := b.newSubmitter()
	firstJob := submit(t, s, gloom.Job{Type: "mail-early", Priority: 1})
	if err := firstJob.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	var order []string
	w := &gloom.Worker{Types: []string{"mail-*", "sms"}, Except: []string{"mail-x*"}, Headers: true,
		Options: []gloom.Option{gloom.Addrs(b.WorkerAddr().String()), quickBackoff},
		Handler: func(_ context.Context, job *gloom.Job) (any, error) {
			order = append(order, job.Type+string(job.Headers)) // one at a time
			return job.Type, nil
		}}
	if err := w.Start(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	defer w.Stop(waitContext(t))
	wantResult(t, firstJob, `"mail-early"`)
	doJob(t, s, gloom.Job{Type: "sms", Headers: gloom.Headers(`{ "a": 1.0}`)}, `"sms"`)
	doJob(t, s, gloom.Job{Type: "mail-new", Groups: []string{"tenant"}, Age: time.Hour}, `"mail-new"`)
	_, err := s.Do(waitContext(t), gloom.Job{Type: "mail-x1", Expires: 20 * time.Millisecond})
	wantError(t, err, gloom.ErrExpired)
	if len(order) != 3 || order[0] != "mail-early" || order[1] != `sms{ "a": 1.0}` {
		t.Errorf("served %q", order)
	}
}

func TestLiveJobIsChanged(t *testing.T) {
	b := startBroker(t)
	s := b.newSubmitter()
	first, second := submit(t, s, gloom.Job{ID: "first", Type: "echo"}), submit(t, s, gloom.Job{ID: "second", Type: "echo", Delay: time.Hour})
	if err := second.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := s.Change(waitContext(t), "second", gloom.Change{Priority: new(int64(5)), Delay: new(time.Duration(0))}); err != nil {
		t.Fatal(err)
	}
	starts, next := make(chan string, 2), make(chan struct{})
	b.serve(&gloom.Worker{Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		starts <- job.ID
		<-next
		return 1, nil
	}})
	if id := receive(t, starts, "the first run"); id != "second" {
		t.Errorf("%s ran first", id)
	}
	if got := endName(s.Change(waitContext(t), "second", gloom.Change{Priority: new(int64(0))})); got != "refused invalid_state" {
		t.Error(got)
	}
	if got := endName(s.Change(waitContext(t), "first", gloom.Change{})); got != "refused missing_field" {
		t.Error(got)
	}
	close(next)
	wantResult(t, first, "1")
	wantResult(t, second, "1")
	wantError(t, s.Change(waitContext(t), "second", gloom.Change{Groups: []string{}}), gloom.ErrUnknownID)
}

// A job that may run only once can be released and run again.
func TestLiveJobIsReleased(t *testing.T) {
	b := startBroker(t)
	s := b.newSubmitter()
	running, finish := make(chan struct{}, 1), make(chan struct{})
	first := b.serve(&gloom.Worker{Prefetch: 8, Concurrency: 1, Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		running <- struct{}{}
		<-finish
		return "first", nil
	}})
	var jobs []*gloom.Pending
	for range 5 {
		jobs = append(jobs, submit(t, s, gloom.Job{Type: "echo", Retries: gloom.NoRetries}))
	}
	receive(t, running, "the first run")
	runErr := make(chan error, 1)
	go func() { runErr <- first.Stop(waitContext(t)) }()
	var releases atomic.Int32
	b.serve(&gloom.Worker{Handler: func(context.Context, *gloom.Job) (any, error) {
		if releases.Add(1) <= 3 {
			return nil, gloom.Release(time.Millisecond)
		}
		return "second", nil
	}})
	for _, p := range jobs[1:] {
		wantResult(t, p, `"second"`)
	}
	close(finish)
	wantResult(t, jobs[0], `"first"`)
	if err := receive(t, runErr, "Stop"); err != nil {
		t.Fatal(err)
	}
}

func TestLiveJobIsAttachedTo(t *testing.T) {
	b := startBroker(t)
	running, finish := make(chan struct{}, 2), make(chan struct{})
	b.serve(&gloom.Worker{Concurrency: 2, Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		running <- struct{}{}
		<-finish
		return job.ID, nil
	}})
	one, two := b.newSubmitter(), b.newSubmitter()
	a, leftJob := submit(t, one, gloom.Job{ID: "a", Type: "echo", Keep: time.Minute}), submit(t, one, gloom.Job{ID: "b", Type: "echo", Keep: time.Minute})
	receive(t, running, "a run")
	receive(t, running, "a run")
	attachedJob, err := two.Attach(waitContext(t), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := attachedJob.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	var jobErr *gloom.JobError
	if err := resultError(t, a); !errors.As(err, &jobErr) || jobErr.Code != gloom.ErrTakenOver {
		t.Errorf("error is %v", err)
	}
	conns := func() (n int) {
		b.Hub().EachConn(func(*hub.Conn) { n++ })
		return n
	}
	before := conns()
	one.Close()
	wantError(t, resultError(t, leftJob), gloom.ErrClosed)
	// Until then, the broker may send the outcome of b into the closed connection.
	eventually(t, "the broker has seen that the submitter went", func() bool { return conns() < before })
	close(finish)
	wantResult(t, attachedJob, `"a"`)
	fetched, err := two.Attach(waitContext(t), "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	wantResult(t, fetched, `"b"`)
	if fetched, err = two.Attach(waitContext(t), "b", nil); err != nil {
		t.Fatal(err)
	}
	if got := endName(resultError(t, fetched)); got != "refused unknown_id" {
		t.Error(got)
	}
}

// A broker that was restarted at the same address has forgotten all jobs.
func TestLiveKeptJobsNewBroker(t *testing.T) {
	before, after := startBroker(t), startBroker(t)
	var at atomic.Value
	at.Store(before.SubmitAddr().String())
	sockets := make(chan net.Conn, 2)
	s := before.newSubmitter(gloom.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, at.Load().(string))
		sockets <- nc
		return nc, err
	}))
	onceJob := submit(t, s, gloom.Job{Type: "echo", Body: []byte("1"), Keep: time.Minute})
	repeatableJob := submit(t, s, gloom.Job{Type: "echo", Body: []byte("2"), Keep: time.Minute, AtLeastOnce: true})
	for _, p := range []*gloom.Pending{onceJob, repeatableJob} {
		if err := p.Ack(waitContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	at.Store(after.SubmitAddr().String())
	receive(t, sockets, "the connection").Close()
	if got := endName(resultError(t, onceJob)); got != "lost, acked, unknown_id" {
		t.Error(got)
	}
	after.serve(&gloom.Worker{Handler: echoHandler})
	wantResult(t, repeatableJob, "2")
}
