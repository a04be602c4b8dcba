package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gloom/cmd/internal/process"
)

// TestKilledWorker: when a worker is killed, its commands and their processes end, because the
// worker's job runs again elsewhere.
func TestKilledWorker(t *testing.T) { awaitCommandsEnd(t, syscall.SIGKILL, 10*time.Second) }

// TestStoppedWorker: when a worker is stopped (SIGSTOP), the same processes end before the broker
// considers the worker lost. The broker's two beats of 15 seconds began at the worker's last byte,
// which is at most a beat old.
func TestStoppedWorker(t *testing.T) { awaitCommandsEnd(t, syscall.SIGSTOP, 15*time.Second) }

// awaitCommandsEnd sends a signal to a worker whose command has started another process. It waits
// until the command and the process have ended.
func awaitCommandsEnd(t *testing.T, signal syscall.Signal, limit time.Duration) {
	t.Parallel()
	b, err := startBroker(t.TempDir(), "--submit-addr", "127.0.0.1:0", "--worker-addr", "127.0.0.1:0", "--http-addr", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	file := filepath.Join(t.TempDir(), "pid")
	tool := func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, "gloom"), args...)
		cmd.Env = append(os.Environ(), "GLOOM_SUBMIT_ADDR="+b.submit, "GLOOM_WORKER_ADDR="+b.worker)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	worker := tool("work", "-q", "t", "--", "sh", "-c", `sleep 300 & echo $! >"$0.new"; mv "$0.new" "$0"; wait`, file)
	t.Cleanup(func() {
		worker.Process.Kill()
		worker.Wait()
	})
	submit := tool("submit", "t", "x", "--detach")
	if err := submit.Wait(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for deadline := time.Now().Add(30 * time.Second); pid == 0; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(file)
		if _, err := fmt.Sscan(string(text), &pid); err != nil && time.Now().After(deadline) {
			t.Fatal("the command does not start")
		}
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	if err := worker.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if _, state := process.StartTime(pid); state == "" || state == "Z" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("what the command has started runs on %v after %v", limit, signal)
		}
	}
}

// TestKilledCommandsLoseNoLine streams lines through workers of eight commands each, which are
// killed at random: every line still gets its own answer. GLOOM_LINES sets the number of lines,
// GLOOM_SEED the seed of the kills.
func TestKilledCommandsLoseNoLine(t *testing.T) {
	lines, seed := 1500, uint64(time.Now().UnixNano())
	for name, v := range map[string]any{"GLOOM_LINES": &lines, "GLOOM_SEED": &seed} {
		if s := os.Getenv(name); s != "" {
			if _, err := fmt.Sscan(s, v); err != nil {
				t.Fatalf("%s=%q: %v", name, s, err)
			}
		}
	}
	t.Logf("GLOOM_SEED=%d GLOOM_LINES=%d", seed, lines)
	rnd := rand.New(rand.NewPCG(seed, 0))

	b, err := startBroker(t.TempDir(), "--submit-addr", "127.0.0.1:0", "--worker-addr", "127.0.0.1:0", "--http-addr", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	tool := func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, "gloom"), args...)
		cmd.Env = append(os.Environ(), "GLOOM_SUBMIT_ADDR="+b.submit, "GLOOM_WORKER_ADDR="+b.worker, "GORACE=atexit_sleep_ms=0")
		return cmd
	}
	worker := func() *exec.Cmd {
		cmd := tool("work", "-q", "-j", "8", "sha256", "--", "sha256sum")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	workers := make([]*exec.Cmd, 3)
	for i := range workers {
		workers[i] = worker()
	}
	t.Cleanup(func() {
		for _, w := range workers {
			w.Process.Kill()
			w.Wait()
		}
	})

	var in, want strings.Builder
	for i := range lines {
		line := fmt.Sprintf("line %d of %d", i, seed)
		fmt.Fprintln(&in, line)
		fmt.Fprintf(&want, "%x  -\n", sha256.Sum256([]byte(line)))
	}
	var stdout, stderr bytes.Buffer
	submit := tool("submit", "sha256", "--lines", "-", "--ordered", "--retries", "1000")
	submit.Stdin, submit.Stdout, submit.Stderr = strings.NewReader(in.String()), &stdout, &stderr
	if err := submit.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- submit.Wait() }()
	kills := 0
	timeout := time.After(3 * time.Minute)
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("submit: %v\n%s", err, stderr.String())
			}
			running = false
		case <-time.After(time.Duration(rnd.IntN(200)) * time.Millisecond):
			i := rnd.IntN(len(workers))
			workers[i].Process.Kill()
			workers[i].Wait()
			workers[i] = worker()
			kills++
		case <-timeout:
			submit.Process.Kill()
			t.Fatalf("not done; %d of %d answers, %d workers killed", strings.Count(stdout.String(), "\n"), lines, kills)
		}
	}
	t.Logf("%d workers killed", kills)
	if kills == 0 {
		t.Error("no worker was killed: too few lines")
	}
	if got := stdout.String(); got != want.String() {
		t.Errorf("%d answers, want %d", strings.Count(got, "\n"), lines)
		for i, g := range strings.Split(got, "\n") {
			if w := strings.Split(want.String(), "\n"); i >= len(w) || w[i] != g {
				t.Fatalf("line %d: got %q", i+1, g)
			}
		}
	}
}
