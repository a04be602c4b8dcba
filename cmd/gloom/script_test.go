package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/natstest"
)

// bin holds the programs under test, built once.
var bin string

func TestMain(m *testing.M) {
	os.Exit(throwaway.Main(&bin, func() (int, error) {
		for name, race := range map[string]bool{"gloom": throwaway.Race, "gloomd": false, "jq-master": false, "serverlessd": false, "jobd": false, "jobd-master": false} {
			if _, err := throwaway.Build(bin, name, race); err != nil {
				return 1, err
			}
		}
		return m.Run(), nil
	}))
}

// patience bounds everything that a test waits for.
const patience = 45 * time.Second

// TestScripts runs the transcripts in testdata against a real broker. Besides
// the usual commands there are
//
//	broker [FLAGS]      starts gloomd on free ports, or again at its last addresses, and
//	                    points GLOOM_… at it; with unix first, on unix sockets
//	stopbroker SIGNAL   ends it
//	door PROGRAM …      starts a daemon on a free port, and sets $GLOOM_DOOR to its address
//	jobd                starts MariaDB, jobd and jobd-master, whose address is then $GLOOM_DOOR
//	sql TEXT            runs statements in that database
//	post …              sends a request directly to a door (door_test.go)
//	nats                starts a NATS server, and sets $NATS to its address
//	original            starts a broker that knows no hello, and points GLOOM_… at it
//	until REGEXP CMD…   runs a command until its output matches
//	status N CMD…       runs a command that must exit with N
//	gone FILE           waits until the process with the id in a file has ended
//	matches FILE N RE   counts the lines of a file that match
func TestScripts(t *testing.T) {
	demo, err := filepath.Abs("demo.sh")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:      "testdata",
		Deadline: time.Now().Add(8 * time.Minute),
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=0")
			env.Setenv("TERM", "dumb")
			env.Setenv("BIN", bin)
			env.Setenv("DEMO", demo)
			env.Setenv("TMPDIR", env.WorkDir)
			b := &broker{}
			env.Values[brokerKey{}] = b
			env.Defer(b.kill)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"broker":     cmdBroker,
			"stopbroker": cmdStopBroker,
			"door":       cmdDoor,
			"post":       cmdPost,
			"jobd":       cmdJobd,
			"sql":        cmdSQL,
			"nats":       cmdNATS,
			"original":   cmdOriginal,
			"until":      cmdUntil,
			"status":     cmdStatus,
			"matches":    cmdMatches,
			"gone":       cmdGone,
			"certs":      func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(throwaway.WriteCerts(ts.MkAbs("."))) },
		},
	})
}

type brokerKey struct{}

// broker is a running gloomd.
type broker struct {
	*throwaway.Daemon

	submit, worker, http string
}

// startBroker starts gloomd and waits until it serves.
func startBroker(dir string, flags ...string) (*broker, error) {
	cmd := exec.Command(filepath.Join(bin, "gloomd"), flags...)
	cmd.Dir = dir
	d, err := throwaway.Start(cmd, "gloomd is ready")
	return &broker{d, d.Field("submit_addr"), d.Field("worker_addr"), d.Field("http_addr")}, err
}

func (b *broker) kill() {
	if b.Daemon != nil {
		b.Kill()
	}
}

func cmdBroker(ts *testscript.TestScript, neg bool, args []string) {
	b := ts.Value(brokerKey{}).(*broker)
	addrs := []string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"}
	prefix := ""
	switch {
	case len(args) > 0 && args[0] == "unix":
		args, prefix = args[1:], "unix:"
		for i, name := range []string{"s", "w", "h"} {
			addrs[i] = "unix:" + ts.MkAbs(name)
		}
	case b.submit != "":
		addrs = []string{b.submit, b.worker, b.http}
	}
	b.kill()
	next, err := startBroker(ts.MkAbs("."), append([]string{
		"--submit-addr", addrs[0], "--worker-addr", addrs[1], "--http-addr", addrs[2],
	}, args...)...)
	ts.Check(err)
	*b = *next
	ts.Setenv("GLOOM_SUBMIT_ADDR", prefix+b.submit)
	ts.Setenv("GLOOM_WORKER_ADDR", prefix+b.worker)
	ts.Setenv("GLOOM_HTTP_ADDR", prefix+b.http)
}

func cmdStopBroker(ts *testscript.TestScript, neg bool, args []string) {
	b := ts.Value(brokerKey{}).(*broker)
	sig := syscall.SIGTERM
	if len(args) > 0 && args[0] == "KILL" {
		sig = syscall.SIGKILL
	}
	b.Signal(sig)
	select {
	case <-b.Exited():
	case <-time.After(patience):
		ts.Fatalf("gloomd did not stop")
	}
}

func cmdNATS(ts *testscript.TestScript, neg bool, args []string) {
	servers, err := natstest.Cluster(1)
	ts.Check(err)
	ts.Defer(func() { natstest.Close(servers) })
	ts.Setenv("NATS", servers[0].URL)
}

func cmdOriginal(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					var n uint32
					if binary.Read(c, binary.BigEndian, &n) != nil {
						return
					}
					frame, err := io.ReadAll(io.LimitReader(c, int64(n)))
					reply := `{"ok":true}`
					if strings.Contains(string(frame), `"action":"hello"`) {
						reply = `{"error":"unknown_action","reason":"unknown action"}`
					}
					if err != nil || binary.Write(c, binary.BigEndian, append(binary.BigEndian.AppendUint32(nil, uint32(len(reply))), reply...)) != nil {
						return
					}
				}
			}()
		}
	}()
	ts.Setenv("GLOOM_SUBMIT_ADDR", l.Addr().String())
	ts.Setenv("GLOOM_WORKER_ADDR", l.Addr().String())
}

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND [ARGUMENT...]")
	}
	want, err := regexp.Compile(`(?m)` + args[0])
	ts.Check(err)
	deadline := time.Now().Add(patience)
	for {
		ts.Exec(args[1], args[2:]...)
		out := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if want.MatchString(out) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("after %v %q is still %v; the output is\n%s", patience, args[0], neg, out)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit status %d, want %s", code, args[0])
	}
}

func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	pid := strings.TrimSpace(ts.ReadFile(args[0]))
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		_, state, _ := strings.Cut(string(stat), ") ")
		if err != nil || strings.HasPrefix(state, "Z") { // a zombie has ended, too
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("process %s is still there: %s", pid, stat)
		}
	}
}

func cmdMatches(ts *testscript.TestScript, neg bool, args []string) {
	want, err := regexp.Compile(args[2])
	ts.Check(err)
	n := 0
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if want.MatchString(strings.TrimSuffix(line, "\n")) {
			n++
		}
	}
	if fmt.Sprint(n) != args[1] {
		ts.Fatalf("%d lines of %s match %q, want %s", n, args[0], args[2], args[1])
	}
}
