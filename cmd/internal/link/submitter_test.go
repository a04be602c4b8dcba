package link

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/testing/proxytest"

	"github.com/rs/zerolog"
)

// TestJobsAreAcceptedWithRegainedRights: the refusal of a job that the token does not allow is
// reported. Such a job is accepted once the token allows it again, and jobs that the old connection
// submitted continue.
func TestJobsAreAcceptedWithRegainedRights(t *testing.T) {
	const token = "0123456789abcdef"
	path := filepath.Join(t.TempDir(), "tokens")
	allowTypes := func(types string) {
		if err := os.WriteFile(path, []byte(token+" submit,work "+types+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	allowTypes("mine")
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr, opt.TokenFile = "127.0.0.1:0", "127.0.0.1:0", "", path
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	l, err := Open(Config{Program: "door", SubmitAddr: srv.SubmitAddr().String(), WorkerAddr: srv.WorkerAddr().String(), Token: token}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	jobs, err := l.NewJobSubmitter()
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Close()
	submit := func(typ string) error {
		_, err := jobs.Current().Do(t.Context(), gloom.Job{Type: typ, Body: []byte("1"), Retries: gloom.NoRetries})
		jobs.NoteRefusal(typ, err, true)
		return err
	}

	ownJob, err := jobs.Current().Submit(t.Context(), gloom.Job{Type: "mine", Body: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	var refused *gloom.RefusedError
	if err := submit("other"); !errors.As(err, &refused) || refused.Code != gloom.ErrForbidden {
		t.Fatalf("a job of a type that the token does not cover: %v", err)
	}
	if l.Health() == nil {
		t.Error("nothing tells that jobs are refused")
	}
	allowTypes("mine,other")
	if err := srv.Reload(); err != nil {
		t.Fatal(err)
	}
	for _, typ := range []string{"mine", "other"} {
		w := &gloom.Worker{Types: []string{typ}, Handler: func(_ context.Context, job *gloom.Job) (any, error) { return job.Body, nil }, Options: l.WorkerOptions(typ)}
		go w.Run(t.Context())
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := submit("other")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the job is still refused: %v", err)
		}
	}
	if _, err := ownJob.Result(t.Context()); err != nil {
		t.Errorf("the job of the connection before: %v", err)
	}
}

// TestJobsOfSuspendedDoorEnd: if a door hangs with its connection open, its jobs no longer wait for workers
// when its lease expires.
func TestJobsOfSuspendedDoorEnd(t *testing.T) {
	const lease = 3 * time.Second
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	var frozen atomic.Bool
	front := proxytest.Start(t, srv.SubmitAddr().String(), func(net.Conn) (toServer, toClient proxytest.Filter, err error) {
		return func(sent []byte) ([]byte, error) {
			for frozen.Load() {
				time.Sleep(10 * time.Millisecond)
			}
			return sent, nil
		}, nil, nil
	})
	l, err := Open(Config{Program: "door", SubmitAddr: front.String(), WorkerAddr: srv.WorkerAddr().String(), Lease: lease}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	jobs, err := l.NewJobSubmitter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Current().Submit(t.Context(), gloom.Job{Type: "t", Body: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	waiting := func() (n int) {
		srv.Hub().View(func(b *broker.Broker, _ int64) { n = int(b.JobCount()) })
		return n
	}
	time.Sleep(lease) // until then the door is not disconnected
	if waiting() != 1 {
		t.Fatal("the job of a door that is well is gone")
	}
	frozen.Store(true)
	defer jobs.Close()
	defer frozen.Store(false)
	// Three quarters of the lease, and some time for a busy machine.
	for deadline := time.Now().Add(lease * 7 / 8); waiting() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the job still waits for a worker")
		}
	}
}
