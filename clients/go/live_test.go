package gloom_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// liveBroker is a broker in this process.
type liveBroker struct {
	*server.Server
	t testing.TB
}

func startBroker(t testing.TB, change ...func(*settings.Options)) *liveBroker {
	t.Helper()
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
	for _, c := range change {
		c(&opt)
	}
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return &liveBroker{srv, t}
}

func (l *liveBroker) newSubmitter(opts ...gloom.Option) *gloom.Submitter {
	l.t.Helper()
	s, err := gloom.Dial(waitContext(l.t), append([]gloom.Option{gloom.Addrs(l.SubmitAddr().String()), quickBackoff}, opts...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { s.Close() })
	return s
}

// serve starts a worker and returns once it has joined.
func (l *liveBroker) serve(w *gloom.Worker, opts ...gloom.Option) *gloom.Worker {
	l.t.Helper()
	if w.Type == "" {
		w.Type = "echo"
	}
	w.Options = append([]gloom.Option{gloom.Addrs(l.WorkerAddr().String()), quickBackoff}, opts...)
	if err := w.Start(waitContext(l.t)); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.Stop(ctx)
	})
	return w
}

func doJob(t testing.TB, s *gloom.Submitter, job gloom.Job, want string) {
	t.Helper()
	r, err := s.Do(waitContext(t), job)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Body) != want {
		t.Fatalf("result %s, want %s", r.Body, want)
	}
}

func TestLiveJobsAreAnswered(t *testing.T) {
	for name, w := range map[string]*gloom.Worker{
		"sockets":  {Handler: echoHandler, Concurrency: 4},
		"prefetch": {Handler: echoHandler, Concurrency: 4, Prefetch: 16},
		"one job":  {Handler: echoHandler},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t)
			b.serve(w)
			s := b.newSubmitter(gloom.Window(100))
			var wg sync.WaitGroup
			for n := range 2000 {
				body := fmt.Sprintf(`{"n": %d}`, n)
				wg.Add(1)
				job := gloom.Job{Type: "echo", Body: []byte(body), NoAck: n%5 == 0, Priority: int64(n % 3)}
				err := s.SubmitFunc(waitContext(t), job, func(r gloom.Result, err error) {
					defer wg.Done()
					if err != nil || string(r.Body) != body {
						t.Errorf("%s gave %s, %v", body, r.Body, err)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			wg.Wait()
		})
	}
}

func TestLiveFailuresAreReported(t *testing.T) {
	b := startBroker(t)
	var runs atomic.Int32
	b.serve(&gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		switch n := runs.Add(1); {
		case string(job.Body) == `"fatal"`:
			return nil, gloom.Fatal(errors.New("no use"))
		case string(job.Body) == `"panic"`:
			panic("oh")
		case n < 3:
			return nil, gloom.RetryAfter(errors.New("again"), time.Millisecond)
		}
		return "third time lucky", nil
	}}, gloom.Notify(func(gloom.Notice) {}))
	s := b.newSubmitter()
	doJob(t, s, gloom.Job{Type: "echo", Backoff: time.Hour}, `"third time lucky"`)
	if n := runs.Load(); n != 3 {
		t.Errorf("%d runs", n)
	}
	for body, reason := range map[string]string{`"fatal"`: "no use", `"panic"`: "panic: oh"} {
		_, err := s.Do(waitContext(t), gloom.Job{Type: "echo", Body: []byte(body), Retries: gloom.NoRetries})
		var jobErr *gloom.JobError
		if !errors.As(err, &jobErr) || jobErr.Code != gloom.ErrJobFailed || !strings.Contains(jobErr.Reason, reason) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestLiveProgressAndCancelArrive(t *testing.T) {
	b := startBroker(t)
	runEnd := make(chan error, 1)
	b.serve(&gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		if err := job.Progress("under way"); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		runEnd <- context.Cause(ctx)
		return nil, nil
	}})
	s := b.newSubmitter()
	news := make(chan string, 1)
	p := submit(t, s, gloom.Job{Type: "echo", OnProgress: func(b json.RawMessage) { news <- string(b) }})
	if got := receive(t, news, "progress"); got != `"under way"` {
		t.Errorf("progress %s", got)
	}
	if err := p.Cancel(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	wantError(t, resultError(t, p), gloom.ErrCancelled)
	wantError(t, receive(t, runEnd, "the end of the handler"), gloom.ErrCancelled)
	wantError(t, p.Cancel(waitContext(t)), gloom.ErrUnknownID)
	wantError(t, s.Cancel(waitContext(t), "never was"), gloom.ErrUnknownID)
}

func TestLiveRunTimesOut(t *testing.T) {
	b := startBroker(t)
	b.serve(&gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		<-ctx.Done()
		return nil, nil
	}})
	s := b.newSubmitter()
	for range 2 { // each one frees the slot again
		_, err := s.Do(waitContext(t), gloom.Job{Type: "echo", Timeout: 10 * time.Millisecond, Retries: gloom.NoRetries})
		wantError(t, err, gloom.ErrJobFailed)
	}
}

func TestLiveOptionsTakeEffect(t *testing.T) {
	b := startBroker(t)
	s := b.newSubmitter()
	_, err := s.Do(waitContext(t), gloom.Job{Type: "nobody", Expires: 5 * time.Millisecond})
	wantError(t, err, gloom.ErrExpired)
	_, err = s.Do(waitContext(t), gloom.Job{Type: "nobody", Delay: time.Second, Expires: time.Second})
	wantError(t, err, gloom.ErrInvalidValue)
	_, err = s.Do(waitContext(t), gloom.Job{Type: "nobody", Retries: 1001})
	wantError(t, err, gloom.ErrInvalidValue)
	_, err = s.Do(waitContext(t), gloom.Job{Type: "nobody", Retries: 1001, NoAck: true})
	if got := endName(err); got != "refused invalid_value" {
		t.Error(got)
	}

	// Detached jobs outlive their submitter; any submitter may cancel them.
	for _, quiet := range []bool{false, true} {
		submitter := b.newSubmitter()
		if _, err := submitter.Do(waitContext(t), gloom.Job{ID: "d", Type: "nobody", Detach: true, NoAck: quiet}); err != nil {
			t.Fatal(err)
		}
		_, err = submitter.Do(waitContext(t), gloom.Job{ID: "d", Type: "nobody", Detach: true, NoAck: quiet})
		wantError(t, err, gloom.ErrIDExists)
		submitter.Close()
		if err := s.Cancel(waitContext(t), "d"); err != nil {
			t.Fatal(err)
		}
	}

	other := b.newSubmitter()
	p := submit(t, other, gloom.Job{ID: "held", Type: "nobody"})
	if err := p.Ack(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	_, err = s.Do(waitContext(t), gloom.Job{ID: "held", Type: "nobody"})
	if got := endName(err); got != "refused id_exists" {
		t.Error(got)
	}
	if err := s.Ping(waitContext(t)); err != nil {
		t.Error(err)
	}
}

func TestLiveDoAbandons(t *testing.T) {
	b := startBroker(t)
	s := b.newSubmitter(gloom.Window(1))
	for range 3 { // each takes the only place in the window
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, err := s.Do(ctx, gloom.Job{ID: "x", Type: "nobody"})
		cancel()
		wantError(t, err, context.DeadlineExceeded)
		eventually(t, "the job is cancelled", func() bool { return s.Outstanding() == 0 })
	}
}

func TestLiveStopLosesNoJob(t *testing.T) {
	for name, prefetch := range map[string]int{"sockets": 0, "prefetch": 8} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t)
			s := b.newSubmitter(gloom.Window(5000))
			var jobs []*gloom.Pending
			for range 3000 {
				jobs = append(jobs, submit(t, s, gloom.Job{Type: "echo", Body: []byte("1"), Retries: gloom.NoRetries}))
			}
			// Workers join and leave; a lost job would fail, because it has no retries.
			for done := false; !done; {
				w := b.serve(&gloom.Worker{Handler: echoHandler, Concurrency: 4, Prefetch: prefetch})
				select {
				case <-jobs[len(jobs)-1].Done():
					done = true
				case <-time.After(time.Millisecond):
				}
				if err := w.Stop(waitContext(t)); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range jobs {
				wantResult(t, p, "1")
			}
		})
	}
}

func TestLiveLostWorkerIsReported(t *testing.T) {
	b := startBroker(t)
	var runs atomic.Int32
	start := make(chan struct{})
	first := b.serve(&gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		runs.Add(1)
		close(start)
		<-ctx.Done()
		return nil, nil
	}})
	s := b.newSubmitter()
	p := submit(t, s, gloom.Job{Type: "echo", Body: []byte("5")})
	receive(t, start, "the job")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	wantError(t, first.Stop(now), context.Canceled)
	b.serve(&gloom.Worker{Handler: echoHandler})
	wantResult(t, p, "5")
}

func TestLiveDrainEndsJobs(t *testing.T) {
	firstBroker := startBroker(t)
	two := startBroker(t)
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(firstBroker.SubmitAddr().String(), two.SubmitAddr().String()), quickBackoff)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	running, release := make(chan struct{}, 1), make(chan struct{})
	w := &gloom.Worker{Type: "echo", Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		if string(job.Body) == `"slow"` {
			running <- struct{}{}
			<-release
		}
		return job.Body, nil
	}, Options: []gloom.Option{gloom.Addrs(firstBroker.WorkerAddr().String(), two.WorkerAddr().String()), quickBackoff}}
	if err := w.Start(waitContext(t)); err != nil {
		t.Fatal(err)
	}
	defer w.Stop(waitContext(t))
	slowJob := submit(t, s, gloom.Job{Type: "echo", Body: []byte(`"slow"`)})
	receive(t, running, "the slow job")
	drained := make(chan error, 1)
	go func() { drained <- firstBroker.Shutdown(waitContext(t)) }()
	eventually(t, "the drain has begun", firstBroker.Draining)
	eventually(t, "jobs go to the other broker", func() bool {
		_, err := s.Do(waitContext(t), gloom.Job{Type: "echo", Body: []byte("1")})
		if err != nil && !errors.Is(err, gloom.ErrDraining) {
			t.Fatal(err)
		}
		return err == nil
	})
	close(release)
	wantResult(t, slowJob, `"slow"`)
	if err := receive(t, drained, "the drain"); err != nil {
		t.Fatal(err)
	}
	doJob(t, s, gloom.Job{Type: "echo", Body: []byte("2")}, "2")
}

func TestLiveBrokerStops(t *testing.T) {
	b := startBroker(t)
	b.serve(&gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		<-ctx.Done()
		return nil, nil
	}})
	s := b.newSubmitter()
	var jobs []*gloom.Pending
	for range 10 {
		jobs = append(jobs, submit(t, s, gloom.Job{Type: "echo"}))
	}
	for _, p := range jobs {
		if err := p.Ack(waitContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	for _, p := range jobs {
		err := resultError(t, p)
		if got := endName(err); got != "lost, acked" && got != "ended draining" {
			t.Errorf("%s: %v", got, err)
		}
	}
}

func TestLiveTokensAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("sub submit echo*\nwrk work\nboth submit,work echo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, func(o *settings.Options) { o.TokenFile = file })
	b.serve(&gloom.Worker{Handler: echoHandler}, gloom.Token("wrk"), gloom.ClientName("live"), gloom.Heartbeat(2*time.Second))
	s := b.newSubmitter(gloom.Token("sub"), gloom.Heartbeat(2*time.Second))
	doJob(t, s, gloom.Job{Type: "echo", Body: []byte("1")}, "1")
	_, err := s.Do(waitContext(t), gloom.Job{Type: "mail"})
	wantError(t, err, gloom.ErrForbidden)

	_, err = gloom.Dial(waitContext(t), gloom.Addrs(b.SubmitAddr().String()), gloom.Token("wrong"))
	wantError(t, err, gloom.ErrUnauthorized)
	w := &gloom.Worker{Type: "mail", Handler: echoHandler, Options: []gloom.Option{gloom.Addrs(b.WorkerAddr().String()), gloom.Token("both")}}
	wantError(t, w.Run(context.Background()), gloom.ErrForbidden)
	tokenlessSubmitter := b.newSubmitter()
	_, err = tokenlessSubmitter.Do(waitContext(t), gloom.Job{Type: "echo"})
	wantError(t, err, gloom.ErrUnauthorized)

	// Heartbeats keep an idle connection open: it is still the same one after more than three
	// beats, when either side would otherwise have closed it.
	var lost atomic.Bool
	idle := b.newSubmitter(gloom.Token("sub"), gloom.Heartbeat(2*time.Second),
		gloom.Notify(func(n gloom.Notice) {
			if n.Event == gloom.EventLost {
				lost.Store(true)
			}
		}))
	p := submit(t, idle, gloom.Job{Type: "echo-nobody", Expires: 6500 * time.Millisecond})
	wantError(t, resultError(t, p), gloom.ErrExpired)
	if lost.Load() {
		t.Error("the connection was lost")
	}
}

func TestLiveTLSIsUsed(t *testing.T) {
	cert, pool := selfSigned(t)
	dir := t.TempDir()
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "key": {Type: "EC PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := startBroker(t, func(o *settings.Options) {
		o.TLSCert, o.TLSKey = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	})
	tlsOption := gloom.TLS(&tls.Config{RootCAs: pool})
	b.serve(&gloom.Worker{Handler: echoHandler, Concurrency: 2}, tlsOption)
	s := b.newSubmitter(tlsOption)
	for range 50 {
		doJob(t, s, gloom.Job{Type: "echo", Body: []byte(`"secret"`)}, `"secret"`)
	}
}

func TestLiveUnixSocketsAreUsed(t *testing.T) {
	dir, err := os.MkdirTemp("", "gloom")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sub, work := "unix:"+filepath.Join(dir, "s"), "unix:"+filepath.Join(dir, "w")
	b := startBroker(t, func(o *settings.Options) { o.SubmitAddr, o.WorkerAddr = sub, work })
	b.serve(&gloom.Worker{Handler: echoHandler}, gloom.Addrs(work))
	doJob(t, b.newSubmitter(gloom.Addrs(sub)), gloom.Job{Type: "echo", Body: []byte("1")}, "1")
}

func TestLiveLargeBodiesArrive(t *testing.T) {
	b := startBroker(t)
	b.serve(&gloom.Worker{Handler: echoHandler})
	s := b.newSubmitter()
	body := make([]byte, 16<<20-200)
	for i := range body {
		body[i] = 'x'
	}
	body[0], body[len(body)-1] = '"', '"'
	r, err := s.Do(waitContext(t), gloom.Job{Type: "echo", Body: body})
	if err != nil || string(r.Body) != string(body) {
		t.Fatalf("%d bytes, %v", len(r.Body), err)
	}
}
