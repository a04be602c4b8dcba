package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"gloom/cmd/internal/boot"
)

// TestMain lets the test binary be the program that is killed, and its guard.
func TestMain(m *testing.M) {
	Main()
	if command := os.Getenv("LAUNCH_TEST_DAEMON"); command != "" {
		runDaemon(command)
	}
	os.Exit(m.Run())
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

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// commandOutput says how a process ended, and has its output.
type commandOutput struct {
	Result
	stdout, stderr string
}

func run(t *testing.T, args ...string) commandOutput {
	t.Helper()
	return runCommand(t, Command{Args: args})
}

// runCommand runs a command and keeps its output.
func runCommand(t *testing.T, c Command) commandOutput {
	t.Helper()
	out, err := &Capture{Limit: 1 << 20}, &Capture{Limit: 1 << 20}
	if c.Stdout == nil {
		c.Stdout = out
	}
	c.Stderr = err
	o := commandOutput{Result: endResult(t, start(t, c))}
	o.stdout, _ = out.TakeText()
	o.stderr, _ = err.TakeText()
	return o
}

func endResult(t *testing.T, p *Process) Result {
	t.Helper()
	select {
	case <-p.Ended():
	case <-time.After(45 * time.Second):
		p.SignalGroup(syscall.SIGKILL)
		t.Fatalf("process %d does not end", p.Pid())
	}
	return p.Result()
}

func eventually(t *testing.T, name string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(45 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 45 s: %s", name)
		}
	}
}

// readState returns a process's state, parent and group; the state is empty if the process does not
// exist.
func readState(pid int) (state string, parent, group int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fmt.Sscan(rest, &state, &parent, &group)
	return state, parent, group
}

func isGone(pid int) bool {
	state, _, _ := readState(pid)
	return state == "" || state == "Z"
}

// children returns a process's children with their states, inGroup the members of a group.
func children(pid int) map[int]string {
	return findProcesses(func(parent, _ int) bool { return parent == pid })
}

func inGroup(pid int) map[int]string {
	return findProcesses(func(_, group int) bool { return group == pid })
}

func findProcesses(match func(parent, group int) bool) map[int]string {
	found := make(map[int]string)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		if state, parent, group := readState(pid); state != "" && match(parent, group) {
			found[pid] = state
		}
	}
	return found
}

func TestExitCodesAndOutputsAreKept(t *testing.T) {
	job := script(t, `echo "out $1"; echo "err $2" >&2; exit $1`)
	for _, code := range []int{0, 1, 7, 255} {
		r := run(t, job, fmt.Sprint(code), "a b")
		want := commandOutput{Result{Code: code}, fmt.Sprintf("out %d\n", code), "err a b\n"}
		if r != want {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
}

func TestCommandSettingsApply(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LAUNCH_INHERITED", "yes")
	t.Setenv("LAUNCH_REPLACED", "old")
	job := script(t, `pwd; echo "$LAUNCH_INHERITED $LAUNCH_REPLACED $LAUNCH_ADDED"; cat; echo end`)
	r := runCommand(t, Command{
		Args: []string{job}, Dir: dir,
		Env: append(os.Environ(), "LAUNCH_REPLACED=new", "LAUNCH_ADDED=a b=c"),
	})
	if r.stdout != dir+"\nyes new a b=c\nend\n" {
		t.Fatalf("%q", r.stdout)
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<14) // more than a pipe holds
	var stdout bytes.Buffer
	if r := runCommand(t, Command{Args: []string{"cat"}, Stdin: text, Stdout: &stdout}); r.Code != 0 || !bytes.Equal(stdout.Bytes(), text) {
		t.Fatalf("%+v, %d bytes of %d came back", r, stdout.Len(), len(text))
	}
	if r := runCommand(t, Command{Args: []string{"true"}, Stdin: text}); r.Result != (Result{}) {
		t.Fatalf("without reading its input: %+v", r)
	}
	r0, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r0.Close()
	run := runCommand(t, Command{Args: []string{script(t, "echo third >&3")}, Files: []*os.File{w}})
	w.Close()
	if third, _ := io.ReadAll(r0); string(third) != "third\n" {
		t.Fatalf("%q, %+v", third, run)
	}
}

func TestProgramIsFoundInPath(t *testing.T) {
	path := script(t, "echo found")
	for name, c := range map[string]Command{
		"PATH":            {Args: []string{"job"}, Env: []string{"PATH=" + filepath.Dir(path) + ":/usr/bin:/bin"}},
		"directory":       {Args: []string{"./job"}, Dir: filepath.Dir(path)},
		"a relative PATH": {Args: []string{"job"}, Dir: filepath.Dir(path), Env: []string{"PATH=.:/bin"}},
	} {
		if r := runCommand(t, c); r.stdout != "found\n" {
			t.Errorf("by %s: %+v", name, r)
		}
	}
}

func TestStartErrorsSayWhy(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command Command
		want    []string
	}{
		{Command{Args: []string{"no-such-command-here", "1"}}, []string{"no-such-command-here", "no such file"}},
		{Command{Args: []string{"/no/such/file"}}, []string{"/no/such/file", "no such file"}},
		{Command{Args: []string{plain}}, []string{plain, "permission denied"}},
		{Command{Args: []string{"true"}, Dir: "/no/such/dir"}, []string{"/no/such/dir", "no such file"}},
		{Command{Args: []string{"true"}, Dir: plain}, []string{plain, "not a directory"}},
		{Command{}, []string{"empty"}},
	} {
		_, err := Start(c.command)
		if err == nil {
			t.Errorf("%+v started", c.command)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
	}
}

// TestLackOfFilesIsTemporary: whichever step of a start lacks a descriptor, the error says so.
func TestLackOfFilesIsTemporary(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	start(t, Command{Args: []string{"true"}}).Result() // opens what later starts keep open
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	var held []*os.File
	defer func() {
		for _, f := range held {
			f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		held = append(held, f)
	}
	// The last of the files is given to the process, so a start lacks a descriptor beyond it even if
	// there are free ones below.
	last := held[len(held)-1]
	for free := range 12 {
		if p, err := Start(Command{Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard, Files: []*os.File{last}}); err == nil {
			p.Result()
			t.Fatalf("with %d free descriptors, a process has started", free)
		} else if !IsTemporary(err) {
			t.Errorf("with %d free descriptors: %v", free, err)
		}
		held[free].Close()
	}
	start(t, Command{Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard}).Result()
}

func TestSignalsAreDelivered(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, 34, 45, 64} {
		p := start(t, Command{Args: []string{"sleep", "1000"}})
		if p.Signal(0) || p.Signal(-1) || p.Signal(65) || p.Signal(1000) {
			t.Fatal("a signal that does not exist was delivered")
		}
		if !p.Signal(signal) {
			t.Fatalf("%v was not delivered", signal)
		}
		if r := endResult(t, p); r.Signal != signal {
			t.Fatalf("%+v, want death by %v", r, signal)
		}
		if p.Signal(syscall.SIGTERM) || p.SignalGroup(syscall.SIGTERM) {
			t.Fatal("a signal was delivered to an ended process")
		}
	}
}

func TestSignalReachesProcessOrGroup(t *testing.T) {
	var out Capture
	out.Limit = 100
	c := Command{Args: []string{script(t, `trap 'echo got; exit 3' USR1
sleep 1000 & echo $!; wait`)}, Stdout: &out}
	var child int
	p := start(t, c)
	eventually(t, "the child of the job exists", func() bool {
		for pid := range children(p.Pid()) {
			child = pid
		}
		return child != 0
	})
	p.Signal(syscall.SIGUSR1)
	r := endResult(t, p)
	if text, _ := out.TakeText(); r.Code != 3 || !strings.HasSuffix(text, "got\n") {
		t.Fatalf("%+v, %q", r, text)
	}
	if isGone(child) {
		t.Fatal("the signal reached the child too")
	}
	syscall.Kill(child, syscall.SIGKILL)

	p = start(t, c)
	child = 0
	eventually(t, "the child of the job exists", func() bool {
		for pid := range children(p.Pid()) {
			child = pid
		}
		return child != 0
	})
	p.SignalGroup(syscall.SIGKILL)
	endResult(t, p)
	eventually(t, "the child is gone", func() bool { return isGone(child) })
}

func TestSignalNamesAreParsed(t *testing.T) {
	for n := syscall.Signal(1); n <= rtMax; n++ {
		name := SignalName(n)
		if len(name) > 10 {
			t.Errorf("%s has %d characters", name, len(name))
		}
		if parsed, ok := ParseSignal(name); !ok || parsed != n {
			t.Errorf("%d is named %s, which is %d, %v", n, name, parsed, ok)
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

func TestOpenPipeDoesNotDelayEnd(t *testing.T) {
	r := run(t, script(t, `echo before; (sleep 1000; echo late) & echo $! >&2; exit 4`))
	if r.Code != 4 || r.stdout != "before\n" {
		t.Fatalf("%+v", r)
	}
	var pid int
	fmt.Sscan(r.stderr, &pid)
	if isGone(pid) {
		t.Fatal("the descendant was killed")
	}
	syscall.Kill(pid, syscall.SIGKILL)
}

// TestLingeringProcessKeepsItsID: a descendant holds the output. Until Linger is over and the group
// has been killed, the process's id is not reused.
func TestLingeringProcessKeepsItsID(t *testing.T) {
	p := start(t, Command{Args: []string{script(t, `sleep 1000 & exit 4`)}, Stdout: io.Discard, Linger: 300 * time.Millisecond})
	var child int
	eventually(t, "the process has ended, not its child", func() bool {
		state, _, _ := readState(p.Pid())
		for pid := range inGroup(p.Pid()) {
			if pid != p.Pid() {
				child = pid
			}
		}
		return state == "Z" && child != 0 && !p.Running()
	})
	if p.Signal(syscall.SIGTERM) {
		t.Error("a signal was delivered to an ended process")
	}
	if r := endResult(t, p); r != (Result{Code: 4, OutputHeld: true}) {
		t.Fatalf("%+v", r)
	}
	eventually(t, "the child is gone", func() bool { return isGone(child) })
	if p.SignalGroup(syscall.SIGTERM) {
		t.Error("a signal was delivered to a group whose id may be somebody else's")
	}
	output := runCommand(t, Command{Args: []string{script(t, `(sleep 0.1; echo late) & exit 0`)}, Linger: time.Minute})
	if output.Result != (Result{}) || output.stdout != "late\n" {
		t.Fatalf("%+v", output)
	}
}

func TestChattyDescendantDiesOfClosedPipe(t *testing.T) {
	r := run(t, script(t, `yes & echo $! >&2; exit 0`))
	var pid int
	fmt.Sscan(r.stderr, &pid)
	eventually(t, "the descendant dies of its closed pipe", func() bool { return isGone(pid) })
}

// limitedWriter is a writer that accepts only a limited number of bytes.
type limitedWriter int

func (f *limitedWriter) Write(p []byte) (int, error) {
	*f -= limitedWriter(len(p))
	if *f < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestFullOutputClosesPipe(t *testing.T) {
	room := limitedWriter(100_000)
	if r := runCommand(t, Command{Args: []string{"yes"}, Stdout: &room}); r.Signal != syscall.SIGPIPE {
		t.Fatalf("%+v", r)
	}
}

func TestOutputBeforeExitIsKept(t *testing.T) {
	// A process fills the pipe with output, and then ends at once.
	for range 50 {
		if r := run(t, "head", "-c", "65536", "/dev/zero"); len(r.stdout) != 65536 {
			t.Fatalf("%d bytes", len(r.stdout))
		}
	}
}

func TestOutputIsCut(t *testing.T) {
	job := script(t, `yes äöü€ | head -c $1`)
	run := func(size int) (string, bool) {
		capture := &Capture{Limit: 1001}
		if r := runCommand(t, Command{Args: []string{job, fmt.Sprint(size)}, Stdout: capture}); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		return capture.TakeText()
	}
	if text, run := run(1000); len(text) != 1000 || run || strings.Contains(text, "cut") {
		t.Fatalf("%q", text)
	}
	for size := 1002; size < 1012; size++ {
		text, run := run(size)
		if len(text) > 1001 || len(text) < 960 || !strings.HasSuffix(text, "[output cut at 1001 bytes]") || !run ||
			!utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) {
			t.Fatalf("%d: %q", size, text)
		}
	}
	if text, _ := run(5_000_000); len(text) > 1001 {
		t.Fatalf("%d bytes", len(text))
	}
}

func TestTextIsValidAtEveryLimit(t *testing.T) {
	text := "aé€😀\xff\xf0\x9f b" + strings.Repeat("€", 60) + "\xe2\x82"
	for limit := range 300 {
		prefix := text[:min(limit, len(text))]
		got, _ := validText([]byte(prefix), limit < len(text), limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("limit %d: %q", limit, got)
		}
	}
	if got, cut := validText([]byte("a\xffb"), false, 100); got != "a\uFFFDb" || cut {
		t.Fatalf("%q", got)
	}
}

func TestOutputsAreBlocking(t *testing.T) {
	// A program that gets EAGAIN on its standard output may lose output.
	r := run(t, "grep", "flags", "/proc/self/fdinfo/1", "/proc/self/fdinfo/2")
	for line := range strings.Lines(r.stdout) {
		var flags int
		fmt.Sscanf(line[strings.Index(line, "flags:")+6:], "%o", &flags)
		if flags&syscall.O_NONBLOCK != 0 {
			t.Fatalf("not blocking: %q", r.stdout)
		}
	}
	if strings.Count(r.stdout, "\n") != 2 {
		t.Fatalf("%+v", r)
	}
}

func TestNoLeaks(t *testing.T) {
	run(t, "true")
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
			for range 300 {
				p, err := Start(Command{Args: []string{"true"}, Stdin: []byte("x"), Stdout: io.Discard, Stderr: io.Discard})
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
	before = count()
	for range 200 {
		Start(Command{Args: []string{"true"}, Dir: "/no/such/dir", Stdin: []byte("x"), Stdout: io.Discard})
	}
	if after := count(); after > before+2 {
		t.Errorf("failed starts leave %d descriptors", after-before)
	}
}

// threads returns how many threads this program has.
func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

func TestRunningProcessesNeedNoThreads(t *testing.T) {
	const n = 200
	var procs []*Process
	for range n {
		procs = append(procs, start(t, Command{Args: []string{"sleep", "1000"}}))
	}
	if got := threads(t); got >= n {
		t.Errorf("%d threads with %d processes, want fewer than one for each process", got, n)
	}
	for _, p := range procs {
		p.SignalGroup(syscall.SIGKILL)
	}
	for _, p := range procs {
		if r := p.Result(); r.Signal != syscall.SIGKILL || r.Err != nil {
			t.Fatalf("a killed process ended with %+v", r)
		}
	}
}

// TestRuntimeKeepsSpareThreads: the runtime keeps spare threads. If it needed another thread when the system
// allows none, it would abort the program.
func TestRuntimeKeepsSpareThreads(t *testing.T) {
	run(t, "true")
	if got := threads(t); got < spareThreads {
		t.Errorf("%d threads after the first process, want at least the %d spare ones", got, spareThreads)
	}
}

// TestCaptureTakesLittleMemory: an output takes its size in memory while it comes, and once more
// when it is complete. The capture does not keep it beside its text.
func TestCaptureTakesLittleMemory(t *testing.T) {
	const size = 16 << 20
	chunk := make([]byte, chunkSize)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := &Capture{Limit: size}
	for range size/chunkSize + 1 {
		c.Write(chunk)
	}
	text, truncated := c.TakeText()
	runtime.ReadMemStats(&after)
	if !truncated || len(text) != size {
		t.Errorf("%d bytes, truncated %v", len(text), truncated)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 5*size/2 {
		t.Errorf("%d MiB were allocated for %d MiB", n>>20, size>>20)
	}
	if c.pieces != nil {
		t.Error("the capture still holds the output")
	}
}

// TestLapsedGuardRests: long after the limit, a guard does not look for processes all the time,
// although other programs' processes begin.
func TestLapsedGuardRests(t *testing.T) {
	other := exec.Command("sleep", "60")
	other.Env = []string{} // it looks as if it were about to get its environment
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	for _, c := range []struct {
		ago  time.Duration
		want bool
	}{{time.Millisecond, true}, {time.Minute, false}} {
		s := guardState{owner: "nobody", processes: make(map[int]bool), deadline: int64(boot.Since() - c.ago)}
		s.expire()
		if s.mayHaveSurvivors != c.want {
			t.Errorf("%v after the limit the guard looks all the time: %v, want %v", c.ago, s.mayHaveSurvivors, c.want)
		}
	}
}
