package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// TestMain lets the test binary be the daemon that is killed.
func TestMain(m *testing.M) {
	if command := os.Getenv("LAUNCH_TEST_DAEMON"); command != "" {
		daemon(command)
	}
	os.Exit(m.Run())
}

func launcher(t *testing.T, opt Options) *Launcher {
	t.Helper()
	if opt.MaxOutput == 0 {
		opt.MaxOutput = 1 << 20
	}
	l, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// script makes an executable shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, l *Launcher, id int64) *Process {
	t.Helper()
	p, err := l.Start(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func run(t *testing.T, l *Launcher, id int64) Result {
	t.Helper()
	return result(t, start(t, l, id))
}

func result(t *testing.T, p *Process) Result {
	t.Helper()
	select {
	case <-p.Ended():
	case <-time.After(20 * time.Second):
		p.SignalGroup(syscall.SIGKILL)
		t.Fatalf("process %d does not end", p.Pid())
	}
	return p.Result()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

// look returns a process's state and parent; no state when there is none.
func look(pid int) (state string, parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fmt.Sscan(rest, &state, &parent)
	return state, parent
}

func gone(pid int) bool {
	state, _ := look(pid)
	return state == "" || state == "Z"
}

// children returns a process's children and their states.
func children(parent int) map[int]string {
	found := make(map[int]string)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		if state, p := look(pid); p == parent {
			found[pid] = state
		}
	}
	return found
}

func TestCommandIsSplitOnSpacesOnly(t *testing.T) {
	for _, c := range []struct {
		command string
		want    []string
	}{
		{"php /x.php {id}", []string{"php", "/x.php", "37"}},
		{"  a   b  ", []string{"a", "b"}},
		{`a "b c" 'd'`, []string{"a", `"b`, `c"`, "'d'"}},
		{"a{id}b{id} {ID} $HOME\t*", []string{"a37b37", "{ID}", "$HOME\t*"}},
		{"", nil},
	} {
		if got := words(c.command, 37); fmt.Sprint(got) != fmt.Sprint(c.want) || len(got) != len(c.want) {
			t.Errorf("%q: %q, want %q", c.command, got, c.want)
		}
	}
}

func TestExitCodesAndOutputs(t *testing.T) {
	l := launcher(t, Options{Command: script(t, `echo "out $1"; echo "err $2" >&2; exit $1`) + " {id} x{id}"})
	for _, code := range []int64{0, 1, 7, 255} {
		r := run(t, l, code)
		want := Result{Code: int(code), Stdout: fmt.Sprintf("out %d\n", code), Stderr: fmt.Sprintf("err x%d\n", code)}
		if r != want {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
}

func TestDirectoryEnvironmentAndInput(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LAUNCH_INHERITED", "yes")
	t.Setenv("LAUNCH_REPLACED", "old")
	l := launcher(t, Options{
		Command: script(t, `pwd; echo "$LAUNCH_INHERITED $LAUNCH_REPLACED $LAUNCH_ADDED"; cat; echo end`),
		Dir:     dir,
		Env:     []string{"LAUNCH_REPLACED=new", "LAUNCH_ADDED=a b=c"},
	})
	if r := run(t, l, 1); r.Stdout != dir+"\nyes new a b=c\nend\n" {
		t.Fatalf("%q", r.Stdout)
	}
}

func TestCommandIsFoundWithTheJobsPathAndDirectory(t *testing.T) {
	path := script(t, "echo found")
	l := launcher(t, Options{Command: "job", Env: []string{"PATH=" + filepath.Dir(path) + ":/usr/bin:/bin"}})
	if r := run(t, l, 1); r.Stdout != "found\n" {
		t.Fatalf("by PATH: %+v", r)
	}
	l = launcher(t, Options{Command: "./job", Dir: filepath.Dir(path)})
	if r := run(t, l, 1); r.Stdout != "found\n" {
		t.Fatalf("by directory: %+v", r)
	}
	l = launcher(t, Options{Command: "job", Dir: filepath.Dir(path), Env: []string{"PATH=.:/bin"}})
	if r := run(t, l, 1); r.Stdout != "found\n" {
		t.Fatalf("by a relative PATH: %+v", r)
	}
}

func TestReasonOfWhatCannotStart(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opt  Options
		want []string
	}{
		{Options{Command: "no-such-command-here {id}"}, []string{"no-such-command-here", "no such file"}},
		{Options{Command: "/no/such/file"}, []string{"/no/such/file", "no such file"}},
		{Options{Command: plain}, []string{plain, "permission denied"}},
		{Options{Command: "true", Dir: "/no/such/dir"}, []string{"/no/such/dir", "no such file"}},
		{Options{Command: "true", Dir: plain}, []string{plain, "not a directory"}},
		{Options{Command: "  "}, []string{"empty"}},
	} {
		_, err := launcher(t, c.opt).Start(1)
		if err == nil {
			t.Errorf("%+v started", c.opt)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
	}
}

func TestSignals(t *testing.T) {
	l := launcher(t, Options{Command: "sleep 1000"})
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, 34, 45, 64} {
		p := start(t, l, 1)
		if p.Signal(0) || p.Signal(-1) || p.Signal(65) || p.Signal(1000) {
			t.Fatal("a signal that does not exist was delivered")
		}
		if !p.Signal(signal) {
			t.Fatalf("%v was not delivered", signal)
		}
		if r := result(t, p); r.Signal != signal {
			t.Fatalf("%+v, want death by %v", r, signal)
		}
		if p.Signal(syscall.SIGTERM) || p.SignalGroup(syscall.SIGTERM) {
			t.Fatal("a signal was delivered to an ended process")
		}
	}
}

func TestSignalIsForTheProcessAndGroupSignalForAll(t *testing.T) {
	l := launcher(t, Options{Command: script(t, `trap 'echo got; exit 3' USR1
sleep 1000 & echo $!; wait`)})
	var child int
	p := start(t, l, 1)
	eventually(t, "the child of the job exists", func() bool {
		for pid := range children(p.Pid()) {
			child = pid
		}
		return child != 0
	})
	p.Signal(syscall.SIGUSR1)
	if r := result(t, p); r.Code != 3 || !strings.HasSuffix(r.Stdout, "got\n") {
		t.Fatalf("%+v", r)
	}
	if gone(child) {
		t.Fatal("the signal reached the child too")
	}
	syscall.Kill(child, syscall.SIGKILL)

	p = start(t, l, 1)
	child = 0
	eventually(t, "the child of the job exists", func() bool {
		for pid := range children(p.Pid()) {
			child = pid
		}
		return child != 0
	})
	p.SignalGroup(syscall.SIGKILL)
	result(t, p)
	eventually(t, "the child is gone", func() bool { return gone(child) })
}

func TestSignalNames(t *testing.T) {
	for n := syscall.Signal(1); n <= rtMax; n++ {
		name := SignalName(n)
		if len(name) > nameSize {
			t.Errorf("%s has %d characters", name, len(name))
		}
		if back, ok := ParseSignal(name); !ok || back != n {
			t.Errorf("%d is named %s, which is %d, %v", n, name, back, ok)
		}
	}
	for name, want := range map[string]syscall.Signal{
		"SIGTERM": 15, "SIGUSR1": 10, "SIGIOT": 6, "SIGRTMIN": 34, "SIGRTMIN+15": 49, "SIGRTMAX-14": 50, "SIGRTMAX": 64,
	} {
		if got, ok := ParseSignal(name); !ok || got != want {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "SIG", "TERM", "sigterm", "SIGNOPE", "SIG0", "SIG65", "SIG-1", "SIGRTMIN+31", "SIGRTMIN-1", "SIGRTMAX+1", "SIGRTMAX-31", "15"} {
		if got, ok := ParseSignal(name); ok {
			t.Errorf("%q is taken for %d", name, got)
		}
	}
}

func TestJobEndsWithItsProcessNotWithItsPipe(t *testing.T) {
	l := launcher(t, Options{Command: script(t, `echo before; (sleep 1000; echo late) & echo $! >&2; exit 4`)})
	r := run(t, l, 1)
	if r.Code != 4 || r.Stdout != "before\n" {
		t.Fatalf("%+v", r)
	}
	var pid int
	fmt.Sscan(r.Stderr, &pid)
	syscall.Kill(pid, syscall.SIGKILL)
}

func TestChattyDescendantDoesNotHoldUpTheJob(t *testing.T) {
	l := launcher(t, Options{Command: script(t, `yes & echo $! >&2; exit 0`)})
	r := run(t, l, 1)
	var pid int
	fmt.Sscan(r.Stderr, &pid)
	eventually(t, "the descendant dies of its closed pipe", func() bool { return gone(pid) })
}

func TestEverythingWrittenBeforeTheEndIsKept(t *testing.T) {
	// As much as a pipe holds, left there by a process that is gone at once.
	l := launcher(t, Options{Command: "head -c 65536 /dev/zero"})
	for range 50 {
		if r := run(t, l, 1); len(r.Stdout) != 65536 {
			t.Fatalf("%d bytes", len(r.Stdout))
		}
	}
}

func TestOutputIsCut(t *testing.T) {
	l := launcher(t, Options{Command: script(t, `yes äöü€ | head -c $1; yes x | head -c $1 >&2`) + " {id}", MaxOutput: 1001})
	r := run(t, l, 1000)
	if len(r.Stdout) != 1000 || strings.Contains(r.Stdout, "cut") || len(r.Stderr) != 1000 {
		t.Fatalf("%q", r.Stdout)
	}
	for size := int64(1002); size < 1012; size++ {
		r := run(t, l, size)
		if len(r.Stdout) > 1001 || len(r.Stdout) < 960 || !strings.HasSuffix(r.Stdout, "[output cut at 1001 bytes]") ||
			!utf8.ValidString(r.Stdout) || strings.ContainsRune(r.Stdout, utf8.RuneError) {
			t.Fatalf("%d: %q", size, r.Stdout)
		}
	}
	if r := run(t, l, 5_000_000); len(r.Stdout) > 1001 || len(r.Stderr) > 1001 || r.Code != 0 {
		t.Fatalf("%d and %d bytes, code %d", len(r.Stdout), len(r.Stderr), r.Code)
	}
}

func TestTextAtEveryLimit(t *testing.T) {
	whole := "aé€😀\xff\xf0\x9f b" + strings.Repeat("€", 60) + "\xe2\x82"
	for limit := range 300 {
		kept := whole[:min(limit, len(whole))]
		got := text([]byte(kept), limit < len(whole), limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("limit %d: %q", limit, got)
		}
	}
	if got := text([]byte("a\xffb"), false, 100); got != "a\uFFFDb" {
		t.Fatalf("%q", got)
	}
}

func TestBlockingOutputs(t *testing.T) {
	// A program that meets EAGAIN on its standard output may lose what it says.
	l := launcher(t, Options{Command: script(t, `grep flags /proc/self/fdinfo/1 /proc/self/fdinfo/2`)})
	r := run(t, l, 1)
	for line := range strings.Lines(r.Stdout) {
		var flags int
		fmt.Sscanf(line[strings.Index(line, "flags:")+6:], "%o", &flags)
		if flags&syscall.O_NONBLOCK != 0 {
			t.Fatalf("not blocking: %q", r.Stdout)
		}
	}
	if strings.Count(r.Stdout, "\n") != 2 {
		t.Fatalf("%q %q", r.Stdout, r.Stderr)
	}
}

func TestThousandsOfJobsLeakNothing(t *testing.T) {
	l := launcher(t, Options{Command: "true"})
	run(t, l, 1)
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range int64(300) {
				p, err := l.Start(i)
				if err != nil {
					t.Error(err)
					return
				}
				p.Result()
			}
		})
	}
	wg.Wait()
	if after := count(); after > before+2 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	for pid, state := range children(os.Getpid()) {
		if state == "Z" {
			t.Errorf("%d is a zombie", pid)
		}
	}
	failing := launcher(t, Options{Command: "true", Dir: "/no/such/dir"})
	before = count()
	for i := range int64(200) {
		failing.Start(i)
	}
	if after := count(); after > before+2 {
		t.Errorf("failed starts leave %d descriptors", after-before)
	}
}

func TestClosedLauncherStartsNothing(t *testing.T) {
	l, err := New(Options{Command: "true"})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	l.Close()
	if _, err := l.Start(1); err != ErrClosed {
		t.Fatalf("%v", err)
	}
}
