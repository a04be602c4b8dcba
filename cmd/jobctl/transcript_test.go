package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/cmd/internal/testing/controltest"
	"gloom/cmd/internal/testing/peertest"
	"gloom/cmd/jobd-master/master"
	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/peer"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata with what the program prints")

var dir, binary string

func TestMain(m *testing.M) {
	os.Exit(throwaway.Main(&dir, func() (_ int, err error) {
		if binary, err = throwaway.Build(dir, "jobctl", false); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}))
}

// world is a worker and a master where it is registered, both with a password, and a home directory
// whose .jobctl.conf names the worker.
type world struct {
	engine         *controltest.Engine
	worker, master int // ports
	home           string
}

const password = "s3cret"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{engine: controltest.New("w1/low", "any", "toString"), home: t.TempDir()}
	zero, seven, term := 0, 7, "SIGTERM"
	w.engine.SetQueueLength("any", 12)
	w.engine.Put(37, controltest.Job{Target: "any", Status: "manual", Outcome: control.JobResult{Result: "ok", Code: &zero, Stdout: "to stdout\n", Stderr: "to stderr\n"}})
	w.engine.Put(38, controltest.Job{Target: "any", Status: "manual", Outcome: control.JobResult{Result: "fail", Signal: &term}})
	w.engine.Put(39, controltest.Job{Target: "any", Status: "manual", Outcome: control.JobResult{Result: "fail", Code: &seven}})
	w.engine.Put(40, controltest.Job{Target: "any", Status: "done"})
	w.engine.Put(46, controltest.Job{Target: "any", Status: "running", IsRunning: true})
	opt := peer.Options{Password: password, Log: zerolog.Nop()}
	w.worker = serve(t, opt, control.Routes(w.engine))
	m := master.New(master.Options{PingInterval: time.Minute, PokeThrottle: 0, WorkerTimeout: 300 * time.Millisecond, Log: zerolog.Nop()})
	t.Cleanup(m.Close)
	w.master = serve(t, opt, m.Routes())
	w.register(t, control.Routes(w.engine), `{"targets":["w1/low","any"],"name":"probe-w1"}`)
	conf := fmt.Sprintf("password = %s ; of both\nport = %d\n", password, w.worker)
	if err := os.WriteFile(filepath.Join(w.home, ".jobctl.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func serve(t *testing.T, opt peer.Options, routes peer.Routes) (port int) {
	t.Helper()
	s, err := peer.Listen("127.0.0.1", 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(routes)
	t.Cleanup(s.Close)
	return s.Addr().(*net.TCPAddr).Port
}

// register adds a worker to the master.
func (w *world) register(t *testing.T, routes peer.Routes, data string) {
	t.Helper()
	opt := peer.Options{Password: password, Log: zerolog.Nop()}
	c, err := peer.Dial(t.Context(), "127.0.0.1", w.master, opt, routes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Call(t.Context(), "register-worker", raw(data)); err != nil {
		t.Fatal(err)
	}
}

// run runs a command line. It returns the output, with standard error marked, and the exit code if
// the code is not 0.
func (w *world) run(t *testing.T, line, stdin string) string {
	t.Helper()
	closedPort := freePort(t)
	line = strings.NewReplacer("$WORKER", strconv.Itoa(w.worker), "$MASTER", strconv.Itoa(w.master),
		"$CLOSED", closedPort, "$HOME", w.home).Replace(line)
	args := strings.Fields(line)[1:]
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], `""`, "")
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = []string{"HOME=" + w.home}
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	out := stdout.String()
	for text := range strings.Lines(stderr.String()) {
		out += "! " + text
	}
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	if exit != nil {
		out += fmt.Sprintf("exit %d\n", exit.ExitCode())
	}
	return strings.NewReplacer(strconv.Itoa(w.worker), "$WORKER", strconv.Itoa(w.master), "$MASTER",
		closedPort, "$CLOSED", w.home, "$HOME").Replace(out)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// TestTranscriptsMatchOutput runs the command lines in testdata/*.txt, which begin with "$ ", and
// compares their output with the lines below them. "! " marks lines of standard error, "< " typed
// input, and "= " calls of the engine.
func TestTranscriptsMatchOutput(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d transcripts, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			got := w.replay(t, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// replay repeats a transcript: it keeps comments, blank lines and commands, and puts the current
// output under each command.
func (w *world) replay(t *testing.T, lines []string) string {
	t.Helper()
	var out strings.Builder
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "#"), line == "":
			out.WriteString(line + "\n")
		case strings.HasPrefix(line, "$ jobctl"):
			out.WriteString(line + "\n")
			stdin := ""
			for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], "< "); i++ {
				stdin += lines[i+1][2:] + "\n"
				out.WriteString(lines[i+1] + "\n")
			}
			w.engine.Calls()
			out.WriteString(w.run(t, line[2:], stdin))
			for _, call := range w.engine.Calls() {
				out.WriteString("= " + call + "\n")
			}
		}
	}
	return out.String()
}

// TestPokeReachesTheWorker: the master answers without waiting for the polls that it passes on, so
// the engine gets the polls a little later.
func TestPokeReachesTheWorker(t *testing.T) {
	w := newWorld(t)
	if got := w.run(t, "jobctl --master --port $MASTER poke any", ""); got != "ok\n" {
		t.Fatal(got)
	}
	peertest.WaitUntil(t, "the worker polls", func() bool { return strings.Join(w.engine.Calls(), "") == "poll [any]" })
}

// TestWorkerWithoutStatus: a worker that does not report its status is an error in every
// format.
func TestWorkerWithoutStatus(t *testing.T) {
	w := newWorld(t)
	w.register(t, nil, `{"targets":["any"],"name":"mute"}`)
	for _, command := range []string{"list-workers", "list-workers --json", "status", "status --json"} {
		got := w.run(t, "jobctl --master --port $MASTER "+command, "")
		if !strings.HasSuffix(got, "! jobctl: worker 'mute' (127.0.0.1): unknown request type: 'status'\nexit 1\n") || !strings.Contains(got, "probe-w1") {
			t.Errorf("%s: %s", command, got)
		}
	}
}

// TestAnswersLackWhatWasAsked: the exit code is 0 only if the answer says that all is well.
func TestAnswersLackWhatWasAsked(t *testing.T) {
	w := newWorld(t)
	empty := func(data string) peer.Route {
		return peer.Route{Handle: func(context.Context, *peer.Conn, json.RawMessage) (any, error) { return raw(data), nil }}
	}
	port := serve(t, peer.Options{Log: zerolog.Nop()}, peer.Routes{
		"run-manual": empty(`{"jobs":{"1":{"result":"ok","code":0,"signal":null,"stdout":"","stderr":""}}}`), "send-signal": empty(`{"1":true}`),
	})
	const noResult = "the daemon has answered without a result for this job"
	for line, want := range map[string]string{
		"run-manual 1 2":       "ID | RESULT | CODE | SIGNAL | ERROR                                                \n-- | ------ | ---- | ------ | -----------------------------------------------------\n1  | ok     | 0    | -      |                                                      \n2  | -      | -    | -      | " + noResult + "\n! jobctl: not all jobs have succeeded\nexit 1\n",
		"run-manual 1":         "ID | RESULT | CODE | SIGNAL | ERROR\n-- | ------ | ---- | ------ | -----\n1  | ok     | 0    | -      |      \n",
		"send-signal TERM 1 2": "ID | SENT | ERROR                                                \n-- | ---- | -----------------------------------------------------\n1  | yes  |                                                      \n2  | no   | " + noResult + "\n! jobctl: not all jobs could be signalled\nexit 1\n",
		"send-signal TERM 1":   "ID | SENT | ERROR\n-- | ---- | -----\n1  | yes  |      \n",
	} {
		if got := w.run(t, fmt.Sprintf("jobctl --port %d %s", port, line), ""); got != want {
			t.Errorf("%s: got %q\nwant %q", line, got, want)
		}
	}
	for line, want := range map[string]string{
		"jobctl --port $MASTER list-targets":          "! jobctl: the daemon has answered without targets\n! hint: it may be a jobd-master: add --master\nexit 1\n",
		"jobctl --port $MASTER status --json":         "! jobctl: the daemon has answered without targets\n! hint: it may be a jobd-master: add --master\nexit 1\n",
		"jobctl --master --port $WORKER list-workers": "! jobctl: the daemon has answered without workers\n! hint: it may be a jobd: leave out --master, or use --master=false\nexit 1\n",
		"jobctl --master --port $WORKER status":       "! jobctl: the daemon has answered without workers\n! hint: it may be a jobd: leave out --master, or use --master=false\nexit 1\n",
	} {
		if got := w.run(t, line, ""); got != want {
			t.Errorf("%s: got %q", line, got)
		}
	}
	if got := w.run(t, "jobctl --port $MASTER memory-usage", ""); !strings.HasPrefix(got, "WHAT ") {
		t.Errorf("memory-usage: %s", got)
	}
}

// TestLogHasTimes: jobctl's own messages begin with the time.
func TestLogHasTimes(t *testing.T) {
	w := newWorld(t)
	got := w.run(t, "jobctl --log-level info poll any", "")
	if !regexp.MustCompile(`(?m)^! \d\d:\d\d:\d\d INF connected`).MatchString(got) {
		t.Error(got)
	}
}

func TestMemoryUsage(t *testing.T) {
	w := newWorld(t)
	for line, want := range map[string][]string{
		"jobctl memory-usage":                         {"rss", "heapTotal", "heapUsed", "external", "arrayBuffers", "pendingJobPromises"},
		"jobctl --master --port $MASTER memory-usage": {"rss", "heapTotal", "heapUsed", "external", "arrayBuffers"},
	} {
		lines := strings.Split(strings.TrimSuffix(w.run(t, line, ""), "\n"), "\n")
		if len(lines) != len(want)+2 || !strings.HasPrefix(lines[0], "WHAT ") || !strings.HasSuffix(strings.TrimRight(lines[0], " "), "| VALUE") {
			t.Fatalf("%s: %q", line, lines)
		}
		for i, l := range lines[2:] {
			label, value, _ := strings.Cut(l, "|")
			if strings.TrimSpace(label) != want[i] {
				t.Errorf("%s: line %d is %s, want %s", line, i, l, want[i])
			}
			if _, err := strconv.Atoi(strings.TrimSpace(value)); err != nil {
				t.Error(err)
			}
		}
	}
	for line, want := range map[string]string{
		"jobctl status --json":                         `{"targets":{"w1/low":{"paused":`,
		"jobctl --master --port $MASTER status --json": `{"workers":[{"remoteAddr":"127.0.0.1","remotePort":`,
		"jobctl memory-usage --json":                   `{"rss":`,
	} {
		if got := w.run(t, line, ""); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %s", line, got)
		}
	}
	got := w.run(t, "jobctl status", "")
	if !strings.HasPrefix(got, "TARGET   | CONCURRENCY | LENGTH | PAUSED\n") || !strings.Contains(got, "\n\nWHAT  ") {
		t.Error(got)
	}
	for _, name := range []string{"resident bytes", "heap bytes", "heap bytes in use", "other bytes", "jobs that clients wait for"} {
		if !strings.Contains(got, "\n"+name+" ") {
			t.Errorf("status has no %s:\n%s", name, got)
		}
	}
	if strings.Contains(got, "heapTotal") || strings.Contains(got, "arrayBuffers") {
		t.Errorf("status has names of the protocol:\n%s", got)
	}
}

func TestCompletionAsksDaemon(t *testing.T) {
	w := newWorld(t)
	for line, want := range map[string]string{
		"jobctl __complete poll t":                         "toString\n:4\n",
		"jobctl __complete pause any w":                    "w1/low\n:4\n",
		"jobctl __complete --master --port $MASTER poke a": "any\n:4\n",
		"jobctl __complete --port $CLOSED poll t":          ":4\n",
		"jobctl __complete list-w":                         "list-workers\tList the registered workers and their targets\n:4\n",
	} {
		got, _, _ := strings.Cut(w.run(t, line, ""), "! Completion ended")
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := w.run(t, "jobctl completion "+shell, ""); !strings.Contains(got, "__complete") {
			t.Errorf("%s: %.200s", shell, got)
		}
	}
}

// TestFlagsOverrideFile: flags override the file.
func TestFlagsOverrideFile(t *testing.T) {
	w := newWorld(t)
	conf := fmt.Sprintf("master = true\npassword = %s\nport = %d\n", password, w.master)
	if err := os.WriteFile(filepath.Join(w.home, "m.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := w.run(t, "jobctl --config $HOME/m.conf --master=false --port $WORKER list-targets", ""); !strings.HasPrefix(got, "TARGET ") {
		t.Error(got)
	}
}

// TestUnwrittenOutputIsAnError: the exit code tells that a job's output could not be printed.
func TestUnwrittenOutputIsAnError(t *testing.T) {
	w := newWorld(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := exec.Command(binary, "run-manual", "37", "--output")
	cmd.Env, cmd.Stdout = []string{"HOME=" + w.home}, full
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 1 {
		t.Error(err)
	}
}
