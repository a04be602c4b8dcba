package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gloom/bench/proc"
	"gloom/bench/throwaway"
	"gloom/cmd/internal/testing/peertest"
)

var testDir, binary string

func TestMain(m *testing.M) {
	os.Exit(throwaway.Main(&testDir, func() (_ int, err error) {
		if binary, err = throwaway.Build(testDir, "jobd-master", false); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}))
}

// process is a running daemon.
type process struct {
	*throwaway.Daemon
	t        *testing.T
	addr     string // address of the control port
	httpAddr string // address of the HTTP port
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, config string) *process {
	t.Helper()
	d, err := throwaway.Start(exec.Command(binary, "--config", writeConfig(t, config)), "jobd-master is ready")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return &process{d, t, d.Field("addr"), d.Field("http_addr")}
}

// stop sends a signal and returns the exit code.
func (p *process) stop(sig syscall.Signal) int {
	p.t.Helper()
	p.Signal(sig)
	select {
	case <-p.Exited():
	case <-time.After(45 * time.Second):
		p.Kill()
	}
	return p.State().ExitCode()
}

func TestStartErrorsAreReported(t *testing.T) {
	busyPort, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busyPort.Close()
	port := busyPort.Addr().(*net.TCPAddr).Port
	const fine = "host = 127.0.0.1\nport = 0\n"
	for name, tc := range map[string]struct{ config, want string }{
		"no host":       {"port = 1", "config parsing error: 'host' is not defined\n"},
		"port":          {"host = a\nport = b", "config parsing error: 'port' must be an integer\n"},
		"log level":     {fine + "log_level_console = loud", "config parsing error: 'log_level_console': level 'loud' is not allowed, use one of [trace debug info warn error]\n"},
		"busy port":     {fmt.Sprintf("host = 127.0.0.1\nport = %d", port), fmt.Sprintf("listen tcp4 127.0.0.1:%d: bind: address already in use\n", port)},
		"busy web port": {fmt.Sprintf(fine+"http_addr = 127.0.0.1:%d", port), fmt.Sprintf("http_addr: listen tcp4 127.0.0.1:%d: bind: address already in use\n", port)},
		"log file":      {fine + "log_file = /no/such/dir/log", "cannot write the log file: open /no/such/dir/log: no such file or directory\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			cmd := exec.Command(binary, "--config", writeConfig(t, tc.config))
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 1 || stderr.String() != tc.want || stdout.Len() > 0 {
				t.Errorf("exit %d, stdout %q, stderr %q; want 1 and %q", code, stdout.String(), stderr.String(), tc.want)
			}
		})
	}
	out, err := exec.Command(binary, "--config", "/no/such.conf").CombinedOutput()
	if err == nil || string(out) != "config parsing error: file /no/such.conf not found\n" {
		t.Errorf("no file: %s, %v", out, err)
	}
	path := writeConfig(t, fine)
	if out, err := exec.Command(binary, "--config", path, "--check").CombinedOutput(); err != nil || string(out) != path+": no errors\n" {
		t.Errorf("--check: %s, %v", out, err)
	}
	if out, err := exec.Command(binary, "--version").CombinedOutput(); err != nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("--version: %s, %v", out, err)
	}
	if out, err := exec.Command(binary, "--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "/etc/jobd-master.conf") {
		t.Errorf("--help: %s, %v", out, err)
	}
}

func TestMasterLifecycle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "master.log")
	p := start(t, `host = 127.0.0.1
port = 0
password = "s3cret # word"
ping_interval = 0.1
http_addr = 127.0.0.1:0
log_file = `+file+`
log_level_file = warn
log_level_console = trace
typo_key = 1
`)
	w := peertest.Dial(t, p.addr)
	if got := w.Ask(`[0,{"no":1,"type":"register-worker","data":{"targets":["x"],"name":"w"},"password":"s3cret # word"}]`); got != `[1,{"no":1,"data":"ok"}]` {
		t.Fatal(got)
	}
	w.Expect(`[2]`) // pings
	wrongPassword := peertest.Dial(t, p.addr)
	wrongPassword.Write(`[0,{"no":9,"type":"status","password":"gu3ss"}]|[2]|`)
	wrongPassword.Expect(`[1,{"no":9,"error":"invalid password"}]`)
	wrongPassword.ExpectEnd()

	get := func(path string) string {
		t.Helper()
		response, err := http.Get("http://" + p.httpAddr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		return string(body)
	}
	if got := get("/healthz") + get("/readyz"); got != "ok\nok\n" {
		t.Errorf("health: %q", got)
	}
	if got := get("/metrics"); !strings.Contains(got, "\njobd_master_workers 1\n") || !strings.Contains(got, "\ngo_goroutines ") {
		t.Errorf("metrics: %s", got)
	}

	// After a SIGHUP, a moved log file is not written any more.
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	p.Signal(syscall.SIGHUP)
	peertest.WaitUntil(t, "the log file is opened again", func() bool {
		c := peertest.Dial(t, p.addr)
		c.Write(`[4]|`)
		c.Read()
		c.Close()
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "unexpected type 4")
	})
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d", code)
	}
	w.ExpectEndAfterPings()
	old, err := os.ReadFile(file + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(old), "test.conf:9: unknown key 'typo_key' is ignored") || strings.Contains(string(old), "INF") {
		t.Errorf("the file's log:\n%s", old)
	}
	for _, log := range []string{p.Log.String(), string(old)} {
		if strings.Contains(log, "s3cret") || strings.Contains(log, "gu3ss") {
			t.Errorf("a password in the log:\n%s", log)
		}
		if !strings.Contains(log, "invalid password") {
			t.Errorf("no word of the wrong password in the log:\n%s", log)
		}
	}
}

func TestQuietByDefault(t *testing.T) {
	var stdout bytes.Buffer
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd := exec.Command(binary, "--config", writeConfig(t, fmt.Sprintf("host = 127.0.0.1\nport = %d\n", port)))
	cmd.Stdout, cmd.Stderr = &stdout, &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	peertest.WaitUntil(t, "the port is open", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	peertest.Dial(t, addr).ExpectNothing()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || stdout.Len() > 0 {
		t.Errorf("%v, output %q", err, stdout.String())
	}
}

// TestUnfinishedMessagesAreBounded: many connections, among them a registered worker's, send the beginnings
// of messages, while another client sends a message in two pieces. The daemon's memory stays
// bounded, and only the connections that hold the most are closed.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	const limit = 48 << 20
	p := start(t, fmt.Sprintf("host = 127.0.0.1\nport = 0\nlog_level_console = info\nmax_unfinished_size = %d\n", limit))
	bystander := peertest.Dial(t, p.addr)
	bystander.WriteRaw(`[0,{"no":1,"type":"po`)
	part := strings.Repeat("x", 1<<20)
	var wg sync.WaitGroup
	sendPieces := func(first string, pieces int) {
		wg.Go(func() {
			sock, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer sock.Close()
			_ = sock.SetDeadline(time.Now().Add(45 * time.Second))
			_, err = io.WriteString(sock, first)
			for i := 0; i < pieces && err == nil; i++ {
				_, err = io.WriteString(sock, part)
			}
			if err != nil {
				return // the connection is closed, as it should be
			}
			_, _ = io.Copy(io.Discard, sock) // until it is
		})
	}
	sendPieces(`[0,{"no":1,"type":"register-worker","data":{"targets":["x"],"name":"w"}}]`+"\x04"+`[1,{"no":1,"data":"`, 400)
	for range 32 {
		sendPieces(`[0,{"no":1,"type":"`, 15)
	}
	peak := int64(0)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for refused := false; !refused; {
		select {
		case <-done:
			refused = true
		case <-time.After(5 * time.Millisecond):
			now, err := proc.ResidentMemory(p.PID())
			if err != nil {
				t.Fatal(err)
			}
			peak = max(peak, now)
			if strings.Count(p.Log.String(), "too many unfinished") > 28 {
				refused = true
			}
		}
	}
	bystander.WriteRaw(`ke","data":{"targets":["y"]}}]` + "\x04")
	bystander.Expect(`[1,{"no":1,"data":"ok"}]`)
	t.Logf("%d MiB at most", peak>>20)
	if maxBytes := limit + limit/4 + 64<<20; peak > int64(maxBytes) {
		t.Errorf("%d bytes resident, more than %d", peak, maxBytes)
	}
	if !strings.Contains(p.Log.String(), "too many unfinished messages") {
		t.Error("nobody was closed")
	}
	p.Kill()
	<-done
}

// TestFloodsLeaveFreeFiles: connections to both ports never take all the files that the process may
// open.
func TestFloodsLeaveFreeFiles(t *testing.T) {
	const files = 256
	cmd := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, files), "sh", binary, "--config",
		writeConfig(t, "host = 127.0.0.1\nport = 0\nhttp_addr = 127.0.0.1:0\nlog_level_console = info\n"))
	d, err := throwaway.Start(cmd, "jobd-master is ready")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	if log := d.Log.String(); !strings.Contains(log, "max_connections is lowered to 64") {
		t.Errorf("no word of the limit in the log:\n%s", log)
	}
	for _, addr := range []string{d.Field("addr"), d.Field("http_addr")} {
		for range files + 50 {
			nc, err := net.DialTimeout("tcp", addr, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
		}
		client := &http.Client{Timeout: 10 * time.Second}
		peertest.WaitUntil(t, "all were accepted", func() bool {
			r, err := client.Get("http://" + d.Field("http_addr") + "/healthz")
			return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
		})
		if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID())); err != nil || len(open) > files-50 {
			t.Errorf("%d of %d files are open, %v", len(open), files, err)
		}
	}
	if log := d.Log.String(); strings.Contains(log, "too many open files") {
		t.Errorf("out of files:\n%s", log)
	}
}
