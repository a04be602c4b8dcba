package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/cmd/internal/testing/controltest"
	"gloom/cmd/internal/testing/peertest"
	"gloom/cmd/jobd-master/master"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/peer"
)

// The tests in this file run the daemon with an engine that has no database; the tests of package
// bridge use a database.

// runningDaemon is a daemon that runs in this process.
type runningDaemon struct {
	t              *testing.T
	engine         *controltest.Engine
	out            *throwaway.Log
	addr, httpAddr string
	done           chan error
}

var readyPattern = regexp.MustCompile(`jobd is ready addr=(\S+)(?: http_addr=(\S+))?\n`)

func start(t *testing.T, cfg config.Worker) *runningDaemon {
	t.Helper()
	d := &runningDaemon{t: t, engine: controltest.New("w1/low", "any"), out: &throwaway.Log{}, done: make(chan error, 1)}
	cfg.Server.Host = "127.0.0.1"
	cfg.Log = config.Log{LevelConsole: "trace"}
	open := func(_ context.Context, c config.Worker, _ zerolog.Logger, _ prometheus.Registerer, _ func(error)) (control.Daemon, error) {
		if c.Name == "" {
			t.Error("the engine gets no name")
		}
		return d.engine, nil
	}
	go func() { d.done <- run(&cfg, open, d.out) }()
	peertest.WaitUntil(t, "the daemon is ready", func() bool { return readyPattern.MatchString(d.out.String()) })
	serverConfig := readyPattern.FindStringSubmatch(d.out.String())
	d.addr, d.httpAddr = serverConfig[1], serverConfig[2]
	return d
}

func (d *runningDaemon) sendSignal(sig syscall.Signal) {
	d.t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		d.t.Fatal(err)
	}
}

func (d *runningDaemon) wait() error {
	d.t.Helper()
	select {
	case err := <-d.done:
		return err
	case <-time.After(45 * time.Second):
		d.t.Fatalf("the daemon does not end; its log:\n%s", d.out)
		return nil
	}
}

func TestWorkerLifecycle(t *testing.T) {
	m := master.New(master.Options{PingInterval: time.Minute, WorkerTimeout: 5 * time.Second, Log: zerolog.Nop()})
	defer m.Close()
	server, err := peer.Listen("127.0.0.1", 0, peer.Options{Password: "s3cret", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(m.Routes())
	defer server.Close()

	d := start(t, config.Worker{
		Server:     config.Server{Password: "s3cret"},
		MasterHost: "127.0.0.1", MasterPort: server.Addr().(*net.TCPAddr).Port, MasterReconnectTimeout: 50 * time.Millisecond,
		HTTPAddr: "127.0.0.1:0", Name: "probe-w1", Warnings: []string{"something is odd"},
	})
	release := make(chan struct{})
	zero := 0
	d.engine.Put(43, controltest.Job{Target: "any", Status: "manual", Hold: release, Outcome: control.JobResult{Result: "ok", Code: &zero}})
	d.engine.HoldShutdown(release)

	client := peertest.Dial(t, server.Addr().String())
	request := func(rest string) string { return client.Ask(`[0,{"no":1,"password":"s3cret","type":` + rest + `}]`) }
	peertest.WaitUntil(t, "the worker is registered", func() bool {
		return strings.Contains(request(`"status"`), `"targets":["w1/low","any"],"name":"probe-w1"`)
	})
	direct := peertest.Dial(t, d.addr)
	if got := direct.Ask(`[0,{"no":1,"type":"add-target","data":{"target":"new","concurrency":3},"password":"s3cret"}]`); got != `[1,{"no":1,"data":"ok"}]` {
		t.Error(got)
	}
	peertest.WaitUntil(t, "the master knows of the target", func() bool {
		return strings.Contains(request(`"status"`), `"targets":["w1/low","any","new"]`)
	})
	get := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get("http://" + d.httpAddr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	if code, body := get("/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("ready: %d %s", code, body)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "process_open_fds") {
		t.Errorf("metrics: %d %s", code, body)
	}

	// When the daemon stops, all waiting clients get their answers, both over the link and
	// directly.
	client.Write(`[0,{"no":2,"type":"run-manual","data":{"jobs":[{"id":43,"target":"any"}]}}]|`)
	peertest.WaitUntil(t, "the job is waited for", func() bool {
		return strings.Contains(direct.Ask(`[0,{"no":2,"type":"status"}]`), `"jobPromisesCount":1`)
	})
	d.sendSignal(syscall.SIGTERM)
	peertest.WaitUntil(t, "the engine is shut down", func() bool { return strings.Contains(strings.Join(d.engine.Calls(), " "), "shutdown") })
	direct.ExpectNothing() // still served
	close(release)
	client.Expect(`[1,{"no":2,"data":{"jobs":{"43":{"result":"ok","code":0,"signal":null,"stdout":"","stderr":""}}}}]`)
	if err := d.wait(); err != nil {
		t.Error(err)
	}
	direct.ExpectEnd()
	if log := d.out.String(); strings.Contains(log, "s3cret") || !strings.Contains(log, "WRN something is odd") {
		t.Errorf("the log:\n%s", log)
	}
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	d := start(t, config.Worker{ShutdownTimeout: time.Hour})
	d.engine.HoldShutdown(make(chan struct{}))
	d.sendSignal(syscall.SIGINT)
	peertest.WaitUntil(t, "the engine is shut down", func() bool { return strings.Contains(strings.Join(d.engine.Calls(), " "), "shutdown") })
	d.sendSignal(syscall.SIGTERM)
	if err := d.wait(); err == nil || err.Error() != "stopped before all work had ended" {
		t.Errorf("got %v", err)
	}
}

func TestEngineFailureEndsDaemon(t *testing.T) {
	d := start(t, config.Worker{HTTPAddr: "127.0.0.1:0"})
	d.engine.End(errors.New("the table is gone"))
	if err := d.wait(); err == nil || err.Error() != "the bridge has ended: the table is gone" {
		t.Errorf("got %v", err)
	}
}

func TestReadyzSaysWhyNot(t *testing.T) {
	d := start(t, config.Worker{HTTPAddr: "127.0.0.1:0"})
	d.engine.SetError(errors.New("the database is away"))
	response, err := http.Get("http://" + d.httpAddr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != 503 || string(body) != "the database is away\n" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	d.engine.SetError(nil)
	d.sendSignal(syscall.SIGTERM)
	if err := d.wait(); err != nil {
		t.Error(err)
	}
}

// TestBusyPortFailsBeforeEngine: an address in use is detected before the engine touches a row.
func TestBusyPortFailsBeforeEngine(t *testing.T) {
	busyPort, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busyPort.Close()
	port := busyPort.Addr().(*net.TCPAddr).Port
	for name, cfg := range map[string]config.Worker{
		"control": {Server: config.Server{Host: "127.0.0.1", Port: port}},
		"http":    {Server: config.Server{Host: "127.0.0.1"}, HTTPAddr: fmt.Sprintf("127.0.0.1:%d", port)},
	} {
		err := run(&cfg, func(context.Context, config.Worker, zerolog.Logger, prometheus.Registerer, func(error)) (control.Daemon, error) {
			t.Error("the engine was opened")
			return nil, errors.New("no")
		}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommandLineErrorsAreReported(t *testing.T) {
	binary, err := throwaway.Build(t.TempDir(), "jobd", false)
	if err != nil {
		t.Fatal(err)
	}
	const example = "config/examples/jobd.conf"
	empty := filepath.Join(t.TempDir(), "empty.conf")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{nil, 1, "", "config parsing error: file /etc/jobd.conf not found\nhint: copy the example, cmd/jobd/config/examples/jobd.conf in the repository, or name another file with --config; jobd --help says more\n"},
		{[]string{"--config", "/no/such.conf"}, 1, "", "config parsing error: file /no/such.conf not found\n"},
		{[]string{"--config", "/dev/zero"}, 1, "", "config parsing error: read /dev/zero: the file has more than 16777216 bytes; the limit is 16777216\n"},
		{[]string{"--config", empty}, 1, "", "config parsing error: 'host' is not defined\n"},
		{[]string{"--config", example, "--check"}, 0, example + ": no errors\n", ""},
		{[]string{"--nonsense"}, 1, "", "unknown flag: --nonsense\n"},
	} {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(binary, tc.args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != tc.code || stdout.String() != tc.stdout || stderr.String() != tc.stderr {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}

// TestWaitForDatabaseIsReported: a daemon that waits for its database says so to its clients, and
// can be stopped.
func TestWaitForDatabaseIsReported(t *testing.T) {
	out, done, online := &throwaway.Log{}, make(chan error, 1), make(chan struct{})
	engine := controltest.New("any")
	open := func(ctx context.Context, _ config.Worker, log zerolog.Logger, _ prometheus.Registerer, waits func(error)) (control.Daemon, error) {
		log.Info().Msg("opening")
		waits(errors.New("no route to the database"))
		select {
		case <-online:
			return engine, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	cfg := config.Worker{Server: config.Server{Host: "127.0.0.1", Port: freePort(t)}, HTTPAddr: fmt.Sprintf("127.0.0.1:%d", freePort(t)),
		Log: config.Log{LevelConsole: "info"}}
	go func() { done <- run(&cfg, open, out) }()
	peertest.WaitUntil(t, "the daemon opens", func() bool { return strings.Contains(out.String(), "opening") })
	client := peertest.Dial(t, fmt.Sprintf("127.0.0.1:%d", cfg.Server.Port))
	var shutdownCtx string
	peertest.WaitUntil(t, "requests are refused with the reason", func() bool {
		shutdownCtx = client.Ask(`[0,{"no":1,"type":"run-manual","data":{"ids":[1]}}]`)
		return shutdownCtx == `[1,{"no":1,"error":"no route to the database"}]`
	})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503} {
		if r, err := http.Get("http://" + cfg.HTTPAddr + path); err != nil || r.StatusCode != want {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
	}
	close(online)
	peertest.WaitUntil(t, "the same connection is served", func() bool {
		return client.Ask(`[0,{"no":2,"type":"poll","data":{"targets":["any"]}}]`) == `[1,{"no":2,"data":"ok"}]`
	})
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	online = make(chan struct{})
	go func() { done <- run(&cfg, open, out) }()
	peertest.WaitUntil(t, "the daemon opens again", func() bool { return strings.Count(out.String(), "opening") == 2 })
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("stopped while it waits: %v", err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestUnitsRunAsOwnUser: the daemons run as their own user, which sysusers.conf creates. The
// service manager passes the configuration to the daemons.
func TestUnitsRunAsOwnUser(t *testing.T) {
	users, err := os.ReadFile("systemd/sysusers.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"jobd", "jobd-master"} {
		text, err := os.ReadFile("systemd/" + name + ".service")
		if err != nil {
			t.Fatal(err)
		}
		user := regexp.MustCompile(`(?m)^User=(.+)$`).FindSubmatch(text)
		if user == nil || !regexp.MustCompile(`(?m)^u `+string(user[1])+` `).Match(users) {
			t.Errorf("%s runs as %s", name, user)
		}
		for _, line := range []string{"LoadCredential=" + name + ".conf:/etc/" + name + ".conf\n", " --config ${CREDENTIALS_DIRECTORY}/" + name + ".conf\n"} {
			if !bytes.Contains(text, []byte(line)) {
				t.Errorf("%s lacks %q", name, line)
			}
		}
	}
}

// TestFileLimitBoundsConnections: the daemon accepts no more connections than the limit on open files
// allows.
func TestFileLimitBoundsConnections(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lowLimit := limit
	lowLimit.Cur = 256
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lowLimit); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	d := start(t, config.Worker{Server: config.Server{MaxConnections: 1024}, HTTPAddr: "127.0.0.1:0"})
	if log := d.out.String(); !strings.Contains(log, "max_connections is lowered to 96") {
		t.Errorf("no word of the limit in the log:\n%s", log)
	}
	d.sendSignal(syscall.SIGTERM)
	if err := d.wait(); err != nil {
		t.Error(err)
	}
}
