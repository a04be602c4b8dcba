package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/server"

	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/testing/proxytest"
	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/store"
	"gloom/wire"

	"github.com/goccy/go-json"
	"github.com/rs/zerolog"
)

// restartableBroker is a broker that can be restarted.
type restartableBroker struct {
	t       *testing.T
	options settings.Options
	server  *server.Server
}

func newRestartableBroker(t *testing.T) *restartableBroker {
	t.Helper()
	dir := t.TempDir()
	s := &restartableBroker{t: t, options: settings.Default()}
	s.options.SubmitAddr, s.options.WorkerAddr, s.options.HTTPAddr = "unix:"+filepath.Join(dir, "s"), "unix:"+filepath.Join(dir, "w"), ""
	s.start()
	t.Cleanup(func() { s.server.Close() })
	return s
}

func (s *restartableBroker) start() {
	s.t.Helper()
	var err error
	if s.server, err = server.Start(s.options, zerolog.Nop()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *restartableBroker) configure(cfg *config.Worker) {
	cfg.Broker.SubmitAddr, cfg.Broker.WorkerAddr = s.options.SubmitAddr, s.options.WorkerAddr
	cfg.Broker.TypePrefix = "rows."
}

// startWorker joins a type until the test ends or stop is called.
func (s *restartableBroker) startWorker(typ string, concurrency int, h gloom.Handler) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &gloom.Worker{Type: typ, Concurrency: concurrency, Handler: h, StopTimeout: time.Millisecond,
		Options: []gloom.Option{gloom.Addrs(s.options.WorkerAddr), gloom.Backoff(time.Millisecond, 50*time.Millisecond)}}
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(stop)
	return stop
}

// TestTargetWithHalfItsConnectionsIsUnhealthy: a target whose slots need two connections is
// unhealthy with one connection.
func TestTargetWithHalfItsConnectionsIsUnhealthy(t *testing.T) {
	s := newRestartableBroker(t)
	var mu sync.Mutex
	var conns []net.Conn
	var maxConns, connCount atomic.Int64
	maxConns.Store(2)
	proxy := proxytest.Start(t, s.options.WorkerAddr, func(c net.Conn) (toServer, toClient proxytest.Filter, err error) {
		if connCount.Add(1) > maxConns.Load() {
			return nil, nil, io.EOF
		}
		mu.Lock()
		conns = append(conns, c)
		mu.Unlock()
		return nil, nil, nil
	})
	cfg := configFor(t, "a=300")
	writeLauncher(t, &cfg, printAndExit)
	s.configure(&cfg)
	cfg.Broker.WorkerAddr = proxy.String()
	f := startBridge(t, storetest.NewTable(), cfg)
	joinedCount := func() int {
		n := 0
		s.server.Hub().View(func(b *broker.Broker, _ int64) { n = b.IdleWorkerCount(wire.Canonical(nil, f.cfg.TypeOf("a"))) })
		return n
	}
	eventually(t, "all slots are joined", func() bool { return joinedCount() == 2 && f.Health() == nil })
	connCount.Store(0)
	maxConns.Store(1)
	mu.Lock()
	for _, c := range conns {
		c.Close()
	}
	mu.Unlock()
	eventually(t, "the loss is noticed", func() bool { return f.Health() != nil })
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f.Health() == nil {
			t.Fatalf("well with %d of 2 connections", joinedCount())
		}
	}
	if n := joinedCount(); n != 1 {
		t.Errorf("%d connections have joined", n)
	}
	maxConns.Store(1000)
	eventually(t, "all slots are joined", func() bool { return joinedCount() == 2 && f.Health() == nil })
}

func TestRemoteWorkersRunRows(t *testing.T) {
	s := newRestartableBroker(t)
	cfg := configFor(t, "a=2")
	s.configure(&cfg)
	f := startBridge(t, storetest.NewTable(), cfg)
	var maxHeld, heldCount atomic.Int64
	s.startWorker("rows.a", 8, func(_ context.Context, job *gloom.Job) (any, error) {
		if n := heldCount.Add(1); n > maxHeld.Load() {
			maxHeld.Store(n)
		}
		defer heldCount.Add(-1)
		var row struct{ ID int64 }
		if err := json.Unmarshal(job.Body, &row); err != nil || job.ID != fmt.Sprint("app.jobs/", row.ID) {
			return nil, gloom.Fatal(fmt.Errorf("%s %s", job.ID, job.Body))
		}
		switch row.ID {
		case 1:
			return "line\n\"two\" é", nil
		case 2:
			return json.RawMessage(`{"n": [1, 2.50]}`), nil
		case 3:
			return nil, errors.New("no such invoice")
		case 4:
			return nil, nil
		}
		return row.ID, nil
	})
	f.insert(store.Waiting, "a", 1, 2, 3, 4, 5, 6, 7, 8)
	f.insert(store.Manual, "a", 9)
	f.Poll(nil)
	f.await(store.Done, 1, 2, 3, 4, 5, 6, 7, 8)
	for id, want := range map[int64]string{1: "ok line\n\"two\" é ", 2: `ok {"n": [1, 2.50]} `, 3: "fail  no such invoice", 4: "ok null ", 5: "ok 5 "} {
		r := f.readRecord(id)
		if got := fmt.Sprint(*r.Result, " ", *r.Stdout, " ", *r.Stderr); got != want || r.Code != nil || r.Signal != nil || r.TimeStarted == 0 {
			t.Errorf("row %d: %q, want %q, %+v", id, got, want, r)
		}
	}
	if maxHeld.Load() > 2 {
		t.Errorf("%d rows were out at once", maxHeld.Load())
	}
	got, _, err := runManual(t, f, 9)
	if err != nil || got[9].Result != "ok" || got[9].Stdout != "9" || got[9].Code != nil {
		t.Fatal(got, err)
	}
	if f.SendSignal(t.Context(), map[int64]syscall.Signal{1: syscall.SIGTERM})[1] {
		t.Error("a signal was delivered to somebody else's worker")
	}
}

// lateStore is a store that holds back its first accepted rows until a test releases them.
type lateStore struct {
	*storetest.Memory
	acceptDone, release chan struct{}
	stopped             *atomic.Bool
}

func (l lateStore) Accept(ctx context.Context, requests []store.AcceptRequest, limit int) (store.Page, error) {
	p, err := l.Memory.Accept(ctx, requests, limit)
	if len(p.Rows) > 0 && !l.stopped.Swap(true) {
		close(l.acceptDone)
		<-l.release
	}
	return p, err
}

// TestRowsOfPausedTargetWaitAgain: rows that have begun in a fetch when their target is paused,
// resized or removed do not run: they wait again. Other rows do not take a place that is kept for
// these rows.
func TestRowsOfPausedTargetWaitAgain(t *testing.T) {
	for _, change := range []string{"pause", "resize", "remove", "stop", ""} {
		t.Run(change, func(t *testing.T) {
			s := newRestartableBroker(t)
			cfg := configFor(t, "a=2")
			s.configure(&cfg)
			table := storetest.NewTable()
			l := lateStore{table.Open(cfg.Name, cfg.Lease, store.Process{}), make(chan struct{}), make(chan struct{}), new(atomic.Bool)}
			f := &fixture{t: t, table: table}
			var err error
			if f.Bridge, err = open(t.Context(), cfg, zerolog.Nop(), nil, l); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			var heldCount, maxHeld, runs atomic.Int64
			release := make(chan struct{})
			s.startWorker("rows.a", 8, func(ctx context.Context, job *gloom.Job) (any, error) {
				if n := heldCount.Add(1); n > maxHeld.Load() {
					maxHeld.Store(n)
				}
				defer heldCount.Add(-1)
				runs.Add(1)
				select {
				case <-release:
				case <-ctx.Done():
				}
				return "ok", nil
			})
			f.insert(store.Waiting, "a", 1, 2)
			f.insert(store.Manual, "a", 3)
			f.Poll(nil)
			<-l.acceptDone
			f.await(store.Running, 1, 2)
			byHand := make(chan error, 1)
			if change == "" {
				go func() { _, _, err := runManual(t, f, 3); byHand <- err }()
				f.await(store.Accepted, 3)
			}
			stopped := make(chan error, 1)
			limit := int64(2)
			switch change {
			case "pause":
				f.Pause(nil)
				limit = 0
			case "resize":
				if err := f.SetConcurrency("a", 1); err != nil {
					t.Fatal(err)
				}
				limit = 1
			case "remove":
				if err := f.RemoveTarget("a"); err != nil {
					t.Fatal(err)
				}
				limit = 0
			case "stop":
				go func() { stopped <- f.Shutdown(t.Context()) }()
				eventually(t, "it stops", f.isStopping)
				limit = 0
			}
			close(l.release)
			waiting := func() (n int64) {
				for id := int64(1); id <= 2; id++ {
					if r, _ := table.Get(id); r.Status == store.Waiting && r.TimeStarted == 0 {
						n++
					}
				}
				return n
			}
			eventually(t, "the others wait again", func() bool { return waiting() == 2-limit && runs.Load() == limit })
			close(release)
			switch change {
			case "pause":
				f.Continue(nil)
			case "remove":
				if err := f.AddTarget("a", 2); err != nil {
					t.Fatal(err)
				}
				f.Poll(nil)
			case "stop":
				if err := <-stopped; err != nil || table.ClaimCount() != 0 {
					t.Fatal(err, table.ClaimCount())
				}
				return
			case "":
				if err := <-byHand; err != nil {
					t.Fatal(err)
				}
			}
			f.await(store.Done, 1, 2)
			if maxHeld.Load() > max(limit, 2) || table.ClaimCount() != 0 {
				t.Fatal(maxHeld.Load(), table.ClaimCount())
			}
		})
	}
}

func TestRowOfLostWorkerFollowsPolicy(t *testing.T) {
	for _, orphans := range []string{"fail", "requeue"} {
		t.Run(orphans, func(t *testing.T) {
			s := newRestartableBroker(t)
			cfg := configFor(t, "a")
			s.configure(&cfg)
			cfg.Orphans = orphans
			f := startBridge(t, storetest.NewTable(), cfg)
			begun := make(chan struct{}, 10)
			stop := s.startWorker("rows.a", 1, func(ctx context.Context, _ *gloom.Job) (any, error) {
				begun <- struct{}{}
				<-ctx.Done()
				return nil, nil
			})
			f.insert(store.Waiting, "a", 1)
			f.Poll(nil)
			<-begun
			stop()
			if orphans == "fail" {
				f.await(store.Done, 1)
				if r := f.readRecord(1); *r.Result != "fail" || !strings.Contains(*r.Stderr, "worker was lost") {
					t.Fatalf("%+v", r)
				}
				return
			}
			s.startWorker("rows.a", 1, func(context.Context, *gloom.Job) (any, error) { return "second", nil })
			f.await(store.Done, 1)
			if r := f.readRecord(1); *r.Result != "ok" || *r.Stdout != "second" {
				t.Fatalf("%+v", r)
			}
		})
	}
}

func TestRequeuesAreLimited(t *testing.T) {
	s := newRestartableBroker(t)
	cfg := configFor(t, "a")
	s.configure(&cfg)
	cfg.Orphans = "requeue"
	f := startBridge(t, storetest.NewTable(), cfg)
	var runs atomic.Int64
	stops := make(chan func(), 1)
	var next func()
	next = func() {
		stops <- s.startWorker("rows.a", 1, func(ctx context.Context, _ *gloom.Job) (any, error) {
			runs.Add(1)
			go func() { (<-stops)(); next() }()
			<-ctx.Done()
			return nil, nil
		})
	}
	next()
	f.insert(store.Waiting, "a", 1)
	f.Poll(nil)
	f.await(store.Done, 1)
	if r := f.readRecord(1); *r.Result != "fail" || !strings.Contains(*r.Stderr, "run again 3 times") || runs.Load() != 4 {
		t.Fatalf("%+v after %d runs", r, runs.Load())
	}
	(<-stops)()
}

// TestBrokerRestartSettlesRows restarts the broker while it has rows with and without a worker:
// rows that may have run are settled, and all other rows are submitted again.
func TestBrokerRestartSettlesRows(t *testing.T) {
	s := newRestartableBroker(t)
	cfg := configFor(t, "a=2", "b=1")
	s.configure(&cfg)
	f := startBridge(t, storetest.NewTable(), cfg)
	begun := make(chan struct{}, 10)
	s.startWorker("rows.a", 1, func(ctx context.Context, job *gloom.Job) (any, error) {
		if job.ID == "app.jobs/1" {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return "fine", nil
	})
	f.insert(store.Waiting, "a", 1, 2, 3)
	f.Poll(nil)
	<-begun
	s.server.Close()
	f.await(store.Done, 1)
	if r := f.readRecord(1); *r.Result != "fail" || !strings.Contains(*r.Stderr, "broker") {
		t.Fatalf("%+v", r)
	}
	f.insert(store.Waiting, "b", 4)
	f.Poll(nil)
	f.await(store.Running, 4)
	if f.Health() == nil {
		t.Error("healthy without a broker")
	}
	s.start()
	s.startWorker("rows.b", 1, func(context.Context, *gloom.Job) (any, error) { return "late", nil })
	f.await(store.Done, 2, 3, 4)
	if r := f.readRecord(4); *r.Result != "ok" || *r.Stdout != "late" {
		t.Fatalf("%+v", r)
	}
	eventually(t, "healthy again", func() bool { return f.Health() == nil })
}

// TestLostRunsCountInConcurrency: the runs of rows that were given up with the connection to the
// broker count against the concurrency of their target until they end.
func TestLostRunsCountInConcurrency(t *testing.T) {
	for _, orphans := range []string{"fail", "requeue"} {
		t.Run(orphans, func(t *testing.T) {
			s := newRestartableBroker(t)
			conns := make(chan net.Conn, 100)
			proxy := proxytest.Start(t, s.options.SubmitAddr, func(c net.Conn) (toServer, toClient proxytest.Filter, err error) {
				conns <- c
				return nil, nil, nil
			})
			cfg := configFor(t, "a=2", "b=2")
			s.configure(&cfg)
			cfg.Broker.SubmitAddr, cfg.Orphans = proxy.String(), orphans
			f := startBridge(t, storetest.NewTable(), cfg)
			var running, maxRunning, runs atomic.Int64
			release := make(chan struct{})
			s.startWorker("rows.a", 8, func(context.Context, *gloom.Job) (any, error) {
				if n := running.Add(1); n > maxRunning.Load() {
					maxRunning.Store(n)
				}
				defer running.Add(-1)
				if runs.Add(1) <= 2 {
					<-release
				}
				return "ok", nil
			})
			s.startWorker("rows.b", 8, func(context.Context, *gloom.Job) (any, error) { return "ok", nil })
			f.insert(store.Waiting, "a", 1, 2)
			f.Poll(nil)
			eventually(t, "two rows run", func() bool { return running.Load() == 2 })
			(<-conns).Close()
			<-conns
			f.insert(store.Waiting, "a", 3, 4)
			f.insert(store.Waiting, "b", 5, 6)
			f.Poll(nil)
			f.await(store.Done, 5, 6)
			close(release)
			f.await(store.Done, 1, 2, 3, 4)
			if maxRunning.Load() > 2 {
				t.Errorf("%d rows ran at once", maxRunning.Load())
			}
			eventually(t, "the target is empty", func() bool { return f.queueLength("a") == 0 })
			if n := f.table.ClaimCount(); n != 0 {
				t.Error(n, "claims are left")
			}
		})
	}
}

// TestRowsOfKilledDaemonKeepSlots: the rows that workers still run for a killed daemon count in
// its target's concurrency when it is started again.
func TestRowsOfKilledDaemonKeepSlots(t *testing.T) {
	s := newRestartableBroker(t)
	cfg := configFor(t, "a=2")
	s.configure(&cfg)
	table := storetest.NewTable()
	f := &fixture{t: t, table: table}
	f.insert(store.Waiting, "a", 1, 2, 3, 4)
	deadStore := table.Open(cfg.Name, cfg.Lease, store.Process{})
	if err := deadStore.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := deadStore.Accept(t.Context(), []store.AcceptRequest{{Target: "a", Rows: 2, MaxBegin: 2}}, 0); err != nil {
		t.Fatal(err)
	}
	var running, maxRunning atomic.Int64
	release := make(chan struct{})
	s.startWorker("rows.a", 8, func(_ context.Context, job *gloom.Job) (any, error) {
		if n := running.Add(1); n > maxRunning.Load() {
			maxRunning.Store(n)
		}
		defer running.Add(-1)
		if job.ID == "app.jobs/1" || job.ID == "app.jobs/2" {
			<-release
		}
		return "ok", nil
	})
	submitter, err := gloom.Dial(t.Context(), gloom.Addrs(s.options.SubmitAddr))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"app.jobs/1", "app.jobs/2"} {
		if _, err := submitter.Submit(t.Context(), gloom.Job{ID: id, Type: "rows.a"}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "two rows run", func() bool { return running.Load() == 2 })
	submitter.Close()
	if err := deadStore.Leave(t.Context()); err != nil { // so that it is considered dead at the first check
		t.Fatal(err)
	}
	f.Bridge = startBridge(t, table, cfg).Bridge
	if got := fmt.Sprint(f.rowStatus(1), f.rowStatus(2), f.rowStatus(3), f.queueLength("a")); got != "donedonewaiting2" {
		t.Errorf("after the start: %s", got)
	}
	close(release)
	f.await(store.Done, 3, 4)
	if maxRunning.Load() > 2 {
		t.Errorf("%d rows ran at once", maxRunning.Load())
	}
	eventually(t, "the target is empty", func() bool { return f.queueLength("a") == 0 })
}

// TestRowWaitsForEarlierCopy: the id is taken, so the row waits until it is free.
func TestRowWaitsForEarlierCopy(t *testing.T) {
	s := newRestartableBroker(t)
	cfg := configFor(t, "a")
	s.configure(&cfg)
	other, err := gloom.Dial(t.Context(), gloom.Addrs(s.options.SubmitAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p, err := other.Submit(t.Context(), gloom.Job{ID: "app.jobs/1", Type: "elsewhere"})
	if err != nil || p.Ack(t.Context()) != nil {
		t.Fatal(err)
	}
	f := startBridge(t, storetest.NewTable(), cfg)
	s.startWorker("rows.a", 1, func(context.Context, *gloom.Job) (any, error) { return "fine", nil })
	f.insert(store.Waiting, "a", 1, 2)
	f.Poll(nil)
	f.await(store.Running, 1)
	if f.rowStatus(2) == store.Done {
		t.Fatal("row 2 went past")
	}
	if err := p.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.await(store.Done, 1, 2)
}

// TestLauncherWithSharedBroker loses the shared broker while a process runs. The process and its
// row finish; a row that had not begun is submitted again.
func TestLauncherWithSharedBroker(t *testing.T) {
	s := newRestartableBroker(t)
	cfg := configFor(t, "a=1", "b=1")
	s.configure(&cfg)
	writeLauncher(t, &cfg, "while [ ! -e {dir}/go.$id ]; do sleep 0.02; done; echo done $id")
	dir := filepath.Dir(strings.Fields(cfg.Launcher)[0])
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1, 2)
	f.Poll(nil)
	f.await(store.Running, 1)
	s.server.Close()
	touch(t, dir, "go.1")
	f.await(store.Done, 1)
	f.insert(store.Waiting, "b", 3)
	f.Poll(nil)
	f.await(store.Accepted, 2, 3)
	touch(t, dir, "go.2")
	touch(t, dir, "go.3")
	s.start()
	f.await(store.Done, 2, 3)
	for id := int64(1); id <= 3; id++ {
		if r := f.readRecord(id); *r.Result != "ok" || *r.Stdout != fmt.Sprintf("done %d\n", id) {
			t.Fatalf("%+v", r)
		}
	}
}

// TestDaemonsOfOneNameShareNoRows: daemons with the same name, as on one host, do not get each
// other's rows, although their tables and targets have the same names.
func TestDaemonsOfOneNameShareNoRows(t *testing.T) {
	s := newRestartableBroker(t)
	cfg := configFor(t, "a=1")
	s.configure(&cfg)
	writeLauncher(t, &cfg, "echo $id")
	f := startBridge(t, storetest.NewTable(), cfg)
	cfg.Targets[0].Concurrency = 10
	cfg.MySQL.Database = "other"
	slots := startBridge(t, storetest.NewTable(), cfg)
	slots.mu.Lock() // so that the second daemon's slots begin no row
	defer slots.mu.Unlock()
	f.insert(store.Waiting, "a", 1, 2, 3, 4)
	f.Poll(nil)
	f.await(store.Done, 1, 2, 3, 4)
}

func TestStopWithRemoteRows(t *testing.T) {
	for _, orphans := range []string{"fail", "requeue"} {
		t.Run(orphans, func(t *testing.T) {
			s := newRestartableBroker(t)
			cfg := configFor(t, "a=2")
			s.configure(&cfg)
			cfg.Orphans = orphans
			cfg.ShutdownTimeout = 50 * time.Millisecond
			f := startBridge(t, storetest.NewTable(), cfg)
			f.insert(store.Waiting, "a", 1, 2, 3)
			f.fillTarget("a")
			f.Poll(nil)
			f.await(store.Running, 1, 2)
			f.await(store.Accepted, 3)
			// The rows are written before the bridge has them: a stop at this moment would give them back.
			eventually(t, "two rows are in the broker", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return len(f.rowsInBroker) == 2
			})
			if err := f.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"fail": store.Done, "requeue": store.Waiting}[orphans]
			if f.rowStatus(1) != want || f.rowStatus(2) != want || f.rowStatus(3) != store.Waiting {
				t.Fatal(f.rowStatus(1), f.rowStatus(2), f.rowStatus(3))
			}
			if n := f.table.ClaimCount(); n != 0 {
				t.Fatal(n)
			}
		})
	}
}

func TestErrorsGiveRunResults(t *testing.T) {
	for _, c := range []struct {
		err  error
		want runResult
	}{
		{nil, runAnswered},
		{&gloom.JobError{Code: gloom.ErrJobFailed, Reason: "no"}, runFailed},
		{&gloom.JobError{Code: gloom.ErrJobFailed, Reason: "its worker was lost, says the worker"}, runFailed},
		{&gloom.JobError{Code: gloom.ErrJobFailed, Reason: "gone", Lost: true}, runUnknown},
		{&gloom.JobError{Code: gloom.ErrDraining}, runUnknown},
		{&gloom.JobError{Code: gloom.ErrCancelled}, runFailed},
		{&gloom.LostError{Sent: true}, runUnknown},
		{&gloom.LostError{}, runNotBegun},
		{&gloom.RefusedError{Code: gloom.ErrIDExists}, runNotBegun},
		{&gloom.RefusedError{Code: gloom.ErrOverloaded}, runNotBegun},
		{&gloom.RefusedError{Code: gloom.ErrForbidden}, runNotBegun},
		{&gloom.RefusedError{Code: gloom.ErrSizeError}, runFailed},
		{context.Canceled, runNotBegun},
	} {
		if got, _ := runResultOf(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}
